"""Measure the time to extract features, relative to the network alone in torch.

    python benchmarks/features.py FOLDER [--model lite0] [--images 512] [--rounds 5] [--threads 1] [--into FILE]

Images per second of `extract_features` on the photos of a folder, with decoding, storing and the making of the graph,
with the network in torch and with the graph that it uses; and of forward passes of both on batches in memory. They take
turns; medians over the rounds are printed, and ratios of CPU time, which a busy machine changes less. `--into` adds
those of the network to a file, which tools/photo_tables.py reads.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from _kept import keep

from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.models.backbone import load_backbone
from evenhand.training import features
from evenhand.training.compiled_backbone import compile_backbone
from evenhand.training.features import BATCH_SIZE


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--model", default="lite0")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--into", type=Path)
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
    graph = compile_backbone(backbone, batch)
    number = len(chosen) // BATCH_SIZE

    def forward(network: Callable[[torch.Tensor], torch.Tensor]) -> None:
        with torch.inference_mode():
            for _ in range(number):
                network(batch)

    def extract(compile_from: float) -> None:
        features.COMPILE_FROM = compile_from  # type: ignore[assignment]
        with tempfile.TemporaryDirectory() as cache:
            features.extract_features(chosen, backbone, cache=Path(cache), progress=False)

    # Each way, its images, and the way it is compared with.
    ways: dict[str, tuple[Callable[[], None], int, str]] = {
        "network in torch": (lambda: forward(backbone), number * BATCH_SIZE, "network in torch"),
        "network as a graph": (lambda: forward(graph), number * BATCH_SIZE, "network in torch"),
        "features by torch": (lambda: extract(math.inf), len(chosen), "features by torch"),
        "features": (lambda: extract(0), len(chosen), "features by torch"),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, (work, images, _) in ways.items():
            start, used = time.perf_counter(), time.process_time()
            work()
            wall[name].append(images / (time.perf_counter() - start))
            cpu[name].append(images / (time.process_time() - used))
    ratios = {
        name: statistics.median(one / other for one, other in zip(cpu[name], cpu[plain], strict=True))
        for name, (_, _, plain) in ways.items()
    }
    for name, (_, _, plain) in ways.items():
        speed = f"{statistics.median(wall[name]):.1f} images/s ({options.model}, {options.threads} threads)"
        print(f"{name}: {speed}; {ratios[name]:.2f} times as fast as {plain} by CPU time")
    with torch.inference_mode():
        within = float((graph(batch) - backbone(batch)).abs().max())
    print(f"largest difference of features: {within:.1g}")
    if options.into is not None:
        found = {"graph": ratios["network as a graph"], "features": ratios["features"], "within": within}
        about = {"images": len(chosen), "threads": options.threads, "load": os.getloadavg()[0]}
        keep(options.into, "extraction", {options.model: found | about})


if __name__ == "__main__":
    main()
