"""Measure a run of a grid that trains a last layer on cached features.

    python benchmarks/heads.py [--images 8750] [--classes 101] [--epochs 20] [--rounds 5] [--objective ce]

CPU time of whole runs in a grid's process: finding the features by the content of the files, training, evaluation,
writing the folder. Images and features are synthetic: JPEG files of 256 x 192 px, of which 20% are for testing, and
features (1280) of mostly separable classes. Each run has a process of its own, as in a grid; the minimum and the median
over the rounds are printed.
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
from PIL import Image


def make_source(folder: Path, images: int, classes: int) -> None:
    """Write images into class folders, and features of them into the cache."""
    from evenhand.core.cache import cache_root
    from evenhand.data.sources import load_source
    from evenhand.data.table import FilePixels
    from evenhand.models.backbone import load_backbone
    from evenhand.training.features import _open_store, _rows_by_content

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
    rows = _rows_by_content(table.pixels, {}, progress=False)
    means = 0.17 * random.normal(size=(classes, backbone.num_features))
    features = np.maximum(means[table.labels] + random.normal(size=(images, backbone.num_features)), 0) / 2
    order = [row for (row,) in rows.values()]
    _open_store(cache_root() / "features", backbone, mirror=False).add(list(rows), features[order].astype(np.float16))


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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = f"{place}/cache"
        make_source(Path(place, "photos"), options.images, options.classes)

        import evenhand.experiments.grid._preload  # noqa: F401 - as the server of a grid's processes does
        from evenhand.experiments.grid.jobs import make_grid
        from evenhand.runs.config import make_config

        config = make_config("photos", data__source=f"{place}/photos", epochs=options.epochs)
        jobs = make_grid(f"{place}/runs", config, objectives=[options.objective], seeds=range(options.rounds))
        context = multiprocessing.get_context("fork")
        used, clock = [], []
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
    what = f"{options.objective}, {options.images:,} images, {options.classes} classes, {options.epochs} epochs"
    print(f"a run on cached features ({what})")
    print(f"CPU time: minimum {min(used):.2f} s, median {statistics.median(used):.2f} s")
    print(f"wall time: median {statistics.median(clock):.2f} s")


if __name__ == "__main__":
    main()
