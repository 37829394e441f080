"""Compare batches of evenhand with the usual torchvision pipeline: images per second and memory.

    python benchmarks/data.py [--images cifar10.npz] [--count 5000] [--rounds 5] [--into FILE]

Both read the same PNG files of 32 x 32 pixels on one thread and return batches of 128: padded by 4, randomly cropped
and flipped, normalised. torchvision uses ImageFolder, PIL transforms and a DataLoader without workers. Both do the same
work in turn in each round, and ratios are medians over the rounds. Without `--images` (an .npz with `train_images` and
`train_labels`) the files are scikit-learn's digits, enlarged and in colour. `--into` writes the ratios into a file,
which tools/speed_tables.py reads.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from _kept import how_measured, keep
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

from evenhand.data.batches import Batches, Preprocessing, make_preprocessing
from evenhand.data.images import Images, open_images
from evenhand.data.table import FilePixels, SampleTable

BATCH = 128
MEAN, STD = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


def load(path: str | None, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (N, 32, 32, 3) and labels."""
    if path is not None:
        with np.load(path, allow_pickle=False) as file:
            return file["train_images"][:count], file["train_labels"][:count].reshape(-1)
    from sklearn.datasets import load_digits

    digits = load_digits()
    chosen = np.arange(count) % len(digits.target)
    images = np.kron(digits.images[chosen] * 15.9, np.ones((4, 4))).astype(np.uint8)
    return np.repeat(images[..., None], 3, 3), digits.target[chosen]


def write(root: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    """Write class folders of PNG files."""
    for label in np.unique(labels):
        (root / str(label)).mkdir(parents=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(image).save(root / str(label) / f"{number:06d}.png")


def table_of(root: Path) -> SampleTable:
    """List the files as a source."""
    paths = sorted(str(path.relative_to(root)) for path in root.glob("*/*.png"))
    names = sorted({path.split("/")[0] for path in paths})
    labels = np.array([names.index(path.split("/")[0]) for path in paths])
    return SampleTable("files", tuple(names), labels, np.array(paths), FilePixels(root, paths))


def torchvision_loader(root: Path) -> DataLoader[tuple[torch.Tensor, int]]:
    """Build the torchvision pipeline."""
    steps = [
        transforms.RandomCrop(32, padding=4),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return DataLoader(datasets.ImageFolder(str(root), transforms.Compose(steps)), BATCH, shuffle=True, num_workers=0)


def seconds(batches: object) -> float:
    """Time one pass."""
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def first_epoch(table: SampleTable, cache: Path) -> tuple[float, Images]:
    """Time decoding, writing the cache, statistics and one epoch."""
    start = time.perf_counter()
    images = open_images(table, cache=cache, workers=1, progress=False)
    preprocessing = make_preprocessing(table, images, np.arange(len(table)), flip=True)
    seconds(Batches(images, table.labels, np.arange(len(table)), preprocessing, BATCH).train(0, 0))
    return time.perf_counter() - start, images


def measure_speed(root: Path, cache: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Print images per second and their ratios to torchvision; return the ratios."""
    table, loader = table_of(root), torchvision_loader(root)
    preprocessing = Preprocessing(crop_size=32, mean=MEAN, std=STD)
    times: dict[str, list[float]] = {name: [] for name in ("torchvision", "first", "reopened", "later", "streamed")}
    for number in range(rounds + 1):
        taken = {"torchvision": seconds(loader)}
        taken["first"], images = first_epoch(table, cache / str(number))
        taken["reopened"], images = first_epoch(table, cache / str(number))
        batches = Batches(images, table.labels, np.arange(len(table)), preprocessing, BATCH)
        taken["later"] = statistics.median(seconds(batches.train(0, epoch)) for epoch in range(5))
        streamed = open_images(table, cache=cache / str(number), budget=0)
        taken["streamed"] = seconds(
            Batches(streamed, table.labels, np.arange(len(table)), preprocessing, BATCH).train(0, 0)
        )
        for name, value in taken.items() if number else ():  # the first round warms up
            times[name].append(value)
    names = {
        "torchvision": "torchvision ImageFolder, every epoch",
        "first": "first epoch: decode, write cache, statistics",
        "reopened": "first epoch of the next run: read cache",
        "later": "every later epoch",
        "streamed": "streamed, every epoch",
    }
    print(f"{'':46}  images/s   times torchvision (range over {rounds} rounds)")
    found = {}
    for name, title in names.items():
        ratios = [base / value for base, value in zip(times["torchvision"], times[name], strict=True)]
        found[name] = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        speed = len(table) / statistics.median(times[name])
        print(f"{title:46} {speed:9,.0f}   {found[name]['median']:6.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return found


def memory_of(root: Path, cache: Path, budget: int) -> str:
    """Iterate over an epoch within a memory budget and return a line about its memory; needs a process of its own."""
    table = table_of(root)
    preprocessing = Preprocessing(crop_size=32, mean=MEAN, std=STD)
    few = np.arange(3 * BATCH)

    def serve(images: Images, rows: NDArray[np.int64]) -> None:
        for batch in Batches(images, table.labels, rows, preprocessing, BATCH).train(0, 0):
            del batch

    serve(
        open_images(table, cache=cache / "warm", budget=0, progress=False), few
    )  # memory that libraries keep is allocated first
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    images = open_images(table, cache=cache / "measured", budget=budget, progress=False)
    serve(images, np.arange(len(table)))
    used = peak() - before
    return f"{type(images).__name__:15} {budget / 2**20:8.1f} {used / 2**20:8.1f} {(used - budget) / 2**20:+8.1f}"


def peak() -> int:
    """Return the peak memory of this process since it was last reset, in bytes (Linux)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", help="an .npz with train_images (N, 32, 32, 3) and train_labels")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--into", type=Path)
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        root, cache, budget = options.memory
        print(memory_of(Path(root), Path(cache), int(budget)))
        return
    images, labels = load(options.images, options.count)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "files"
        write(root, images, labels)
        print(f"{len(images)} PNG files, one thread, batches of {BATCH}, torch {torch.__version__}\n")
        found = measure_speed(root, Path(folder) / "cache", options.rounds)
        if options.into is not None:
            keep(options.into, "batches", found | {"images": len(images), "rounds": options.rounds})
            keep(options.into, "measured", {"batches": how_measured()})
        print(f"\nmemory, MB (a batch as floats: {BATCH * 3 * 32 * 32 * 4 / 2**20:.1f})")
        print(f"{'':15} {'budget':>8} {'used':>8} {'beyond':>8}")
        for budget in (images.nbytes, images.nbytes // 4):
            command = [sys.executable, __file__, "--memory", str(root), f"{folder}/{budget}", str(budget)]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip())


if __name__ == "__main__":
    main()
