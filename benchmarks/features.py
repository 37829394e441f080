"""Measure the time to extract features, relative to the network alone in torch.

    python benchmarks/features.py FOLDER [--model lite0] [--images 128] [--rounds 5] [--threads 1]

Images per second of `extract_features` on the photos of a folder, with decoding and storing, and of forward passes on
batches of the same size in memory: the network in torch (float32, channels last), and the graph that extraction uses. They
take turns; medians over the rounds are printed, and ratios of CPU time, which a busy machine changes less.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels
from evenhand.models.backbone import load_backbone
from evenhand.training.compiled_backbone import compile_backbone
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
    graph = compile_backbone(backbone, batch)
    number = len(chosen) // BATCH_SIZE

    def forward(network: Callable[[torch.Tensor], torch.Tensor]) -> None:
        with torch.inference_mode():
            for _ in range(number):
                network(batch)

    def extract() -> None:
        with tempfile.TemporaryDirectory() as cache:
            extract_features(chosen, backbone, cache=Path(cache), progress=False)

    ways: dict[str, tuple[Callable[[], None], int]] = {
        "network in torch": (lambda: forward(backbone), number * BATCH_SIZE),
        "network as compiled": (lambda: forward(graph), number * BATCH_SIZE),
        "features": (extract, len(chosen)),
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, (work, images) in ways.items():
            start, used = time.perf_counter(), time.process_time()
            work()
            wall[name].append(images / (time.perf_counter() - start))
            cpu[name].append(images / (time.process_time() - used))
    plain = "network in torch"
    for name in ways:
        ratio = statistics.median(one / other for one, other in zip(cpu[name], cpu[plain], strict=True))
        print(
            f"{name}: {statistics.median(wall[name]):.1f} images/s, {ratio:.2f} times the network in torch by CPU time "
            f"({options.model}, {options.threads} threads)"
        )
    with torch.inference_mode():
        print(f"largest difference of features: {float((graph(batch) - backbone(batch)).abs().max()):.1g}")


if __name__ == "__main__":
    main()
