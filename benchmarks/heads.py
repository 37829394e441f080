"""Measure a run of a grid that trains a last layer on cached features.

    python benchmarks/heads.py [--images 8750] [--classes 101] [--epochs 20] [--rounds 5] [--objective ce] [--into FILE]

CPU time of whole runs in a grid's process: finding the features by the content of the files, training, evaluation,
writing the folder. Images and features are synthetic: JPEG files of 256 x 192 px, of which 20% are for testing, and
features (1280) of mostly separable classes. Each run has a process of its own, as in a grid. In turn with it, the plain
way is measured: a loop over a DataLoader of the same features, with a linear layer, cross entropy and SGD, and nothing
else. The minimum and the median over the rounds are printed, and the median ratio of CPU time. `--into` writes
them into a file, which tools/photo_tables.py reads.
"""

import argparse
import io
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _kept import keep
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_source(folder: Path, images: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Write images into class folders, and features of them into the cache; return features and labels."""
    from evenhand.core.cache import cache_root
    from evenhand.data.sources import load_source
    from evenhand.data.table import FilePixels
    from evenhand.models.backbone import load_backbone
    from evenhand.training.features import open_store, rows_by_content

    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (32, 12, 16, 3), dtype=np.uint8)
    images_as_jpeg = []
    for pixels in coarse:
        file = io.BytesIO()
        Image.fromarray(pixels).resize((256, 192), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        images_as_jpeg.append(file.getvalue())
    for number in range(images):
        path = folder / f"class {number % classes:03}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images_as_jpeg[number % len(images_as_jpeg)] + f"{number}".encode())  # no two files are equal
    table, backbone = load_source(folder), load_backbone("lite0")
    assert isinstance(table.pixels, FilePixels)
    rows = rows_by_content(table.pixels, {}, progress=False)
    means = 0.17 * random.normal(size=(classes, backbone.num_features))
    features = np.maximum(means[table.labels] + random.normal(size=(images, backbone.num_features)), 0) / 2
    order = [row for (row,) in rows.values()]
    open_store(cache_root() / "features", backbone, mirror=False).add(list(rows), features[order].astype(np.float16))
    return torch.from_numpy(features.astype(np.float32)), torch.from_numpy(table.labels)


def plain_loop(features: torch.Tensor, labels: torch.Tensor, epochs: int) -> float:
    """Train a linear layer as a script would; return the CPU time in seconds."""
    used = time.process_time()
    layer = nn.Linear(features.shape[1], int(labels.max()) + 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for _ in range(epochs):
        for batch, target in DataLoader(TensorDataset(features, labels), batch_size=64, shuffle=True):
            loss = F.cross_entropy(layer(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return time.process_time() - used


def one_run(job: Any, answer: Any) -> None:
    """Do a run and send its CPU time and wall time in seconds."""
    from evenhand.experiments.grid._worker import do_run

    torch.set_num_threads(1)
    used, clock = time.process_time(), time.perf_counter()
    end = do_run(job)
    answer.send((end.kind, end.reason, time.process_time() - used, time.perf_counter() - clock))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=8750)
    parser.add_argument("--classes", type=int, default=101)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--objective", default="ce")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = f"{place}/cache"
        features, labels = make_source(Path(place, "photos"), options.images, options.classes)
        kept = torch.from_numpy(np.random.default_rng(0).permutation(len(labels))[: int(0.72 * len(labels))])

        import evenhand.experiments.grid._preload  # noqa: F401 - as the server of a grid's processes does
        from evenhand.experiments.grid.jobs import make_grid
        from evenhand.runs.config import make_config

        config = make_config("photos", data__source=f"{place}/photos", epochs=options.epochs)
        jobs = make_grid(f"{place}/runs", config, objectives=[options.objective], seeds=range(options.rounds))
        context = multiprocessing.get_context("fork")
        torch.set_num_threads(1)
        used, clock, plain = [], [], []
        for job in jobs:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=one_run, args=(job, theirs))
            process.start()
            kind, reason, cpu, seconds = ours.recv()
            process.join()
            if kind != "done":
                parser.error(f"the run {kind}: {reason}")
            used.append(cpu)
            clock.append(seconds)
            plain.append(plain_loop(features[kept], labels[kept], options.epochs))
    what = f"{options.objective}, {options.images:,} images, {options.classes} classes, {options.epochs} epochs"
    print(f"a run on cached features ({what})")
    print(f"CPU time: minimum {min(used):.2f} s, median {statistics.median(used):.2f} s")
    ratio = statistics.median(one / other for one, other in zip(used, plain, strict=True))
    print(f"plain loop: CPU time: minimum {min(plain):.2f} s, median {statistics.median(plain):.2f} s")
    print(f"ratio of CPU time, a run to the plain loop: {ratio:.2f}")
    print(f"wall time: median {statistics.median(clock):.2f} s")
    if options.into is not None:
        seconds = {"least": min(used), "median": statistics.median(used), "plain": statistics.median(plain)}
        about = {"images": options.images, "classes": options.classes, "epochs": options.epochs}
        load = {"ratio": ratio, "load": os.getloadavg()[0]}
        keep(options.into, "head", {options.objective: about | seconds | load})


if __name__ == "__main__":
    main()
