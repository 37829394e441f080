"""Measure, in a process of its own, how much memory loading and one epoch take beyond what was in use before.

Writes JSON: for images of one size and of several, decoded, read from the cache and streamed, the kind of images, the
budget, and the peak in bytes while they were opened and while an epoch was served.
"""

import ctypes
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.data.batches import Batches, Preprocessing
from evenhand.data.images import Images, open_images

from .pictures import noise, table_of, write

COPIES = 192
BATCH = 128
VIEW = Preprocessing(crop_size=64, mean=(0.5,) * 3, std=(0.5,) * 3)


MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1
"""Of glibc's `mallopt`."""


def main(folder: Path) -> None:
    """Measure into `found.json`."""
    torch.set_num_threads(1)
    # Freed memory goes back to the system at once, so that the peak is what was really in use.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for option in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            mallopt(option, 65536)
    found = []
    for wider in (0, 1):
        files = {f"{wider}/{i}.png": noise(64, 64 + wider * i, seed=i) for i in range(8)}
        write(folder, files)
        needed = COPIES * sum(image.size for image in files.values())
        names = list(files)
        measure(folder, names * 16, folder / "warm", 0)  # libraries take what they keep
        measure(folder, names * 16, folder / "warm", needed)
        for budget, cache in [(needed, "cache"), (needed, "cache"), (needed // 10, "other")]:
            found.append(measure(folder, names * COPIES, folder / cache, budget))
    (folder / "found.json").write_text(json.dumps(found))


def measure(folder: Path, paths: list[str], cache: Path, budget: int) -> dict[str, int | str]:
    table = table_of(folder, paths)
    Path("/proc/self/clear_refs").write_text("5")
    before = peak()
    images = open_images(table, cache=cache, budget=budget, workers=2)
    opened = peak() - before
    serve(images, table.labels)
    return {"kind": type(images).__name__, "budget": budget, "opened": opened, "served": peak() - before}


def serve(images: Images, labels: NDArray[np.int64]) -> None:
    for batch in Batches(images, labels, np.arange(len(labels)), VIEW, batch_size=BATCH).train(seed=0, epoch=0):
        del batch


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
