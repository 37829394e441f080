"""Measure the time to extract features, relative to the network alone.

    python benchmarks/features.py FOLDER [--model lite0] [--images 128] [--rounds 5] [--threads 1]

Images per second of `extract_features` on the photos of a folder, with decoding and storing, and of the network's
forward pass on batches of the same size in memory. The two take turns; medians over the rounds are printed.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.models.backbone import load_backbone
from evenhand.training.features import BATCH_SIZE, extract_features


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--model", default="lite0")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pixels = load_source(options.folder).pixels
    if not isinstance(pixels, FilePixels):
        parser.error("give a folder of photos")
    step = max(1, len(pixels) // options.images)
    chosen = FilePixels(pixels.root, list(pixels.paths)[::step][: options.images])
    backbone = load_backbone(options.model).to(memory_format=torch.channels_last)
    size = backbone.transform.crop_size
    batch = torch.randn(BATCH_SIZE, 3, size, size).contiguous(memory_format=torch.channels_last)
    speeds: dict[str, list[float]] = {"network alone": [], "features": []}
    for _ in range(options.rounds):
        start = time.perf_counter()
        with torch.inference_mode():
            for _ in range(len(chosen) // BATCH_SIZE):
                backbone(batch)
        speeds["network alone"].append(len(chosen) // BATCH_SIZE * BATCH_SIZE / (time.perf_counter() - start))
        with tempfile.TemporaryDirectory() as cache:
            start = time.perf_counter()
            extract_features(chosen, backbone, cache=Path(cache))
            speeds["features"].append(len(chosen) / (time.perf_counter() - start))
    for name, values in speeds.items():
        print(f"{name}: {statistics.median(values):.1f} images/s ({options.model}, {options.threads} threads)")
    ratios = [whole / alone for whole, alone in zip(speeds["features"], speeds["network alone"], strict=True)]
    print(f"features / network alone: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
