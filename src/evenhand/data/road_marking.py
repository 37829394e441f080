"""The Road Marking data set of Wu and Ranganathan (2012), cropped from its video frames."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular
from evenhand.core.text import some
from evenhand.data.table import DatasetInfo, FilePixels, SampleTable

PAGE = "http://www.ananth.in/RoadMarkingDetection.html"
COUNTS = {
    "leftturn": 705,
    "35": 112,
    "rightturn": 101,
    "rail": 90,
    "forward": 80,
    "40": 69,
    "xing": 64,
    "ped": 54,
    "stop": 49,
    "bike": 41,
    "25": 15,
    "forward&right": 13,
    "yield": 7,
    "X-crossing": 6,
    "clear": 6,
    "forward&left": 6,
    "keep": 6,
    "hump": 3,
    "school": 3,
    "stripe": 3,
    "30": 2,
    "slow": 2,
    "speed": 2,
    "car": 1,
    "diamond": 1,
    "lane": 1,
    "pool": 1,
}
WIDTH, HEIGHT = 800, 600
MARGIN = 0.1
GAP = 5
# Files of one class that show the same pass, the same clouds above the same road, though they are numbered apart.
SAME_PASS = ((11, 778), (67, 820), (83, 755), (171, 752), (211, 753), (793, 823))


def load_road_marking(
    root: Path, *, download: bool = True, classes: int | str = 9, split: str = "random"
) -> SampleTable:
    """Read the Road Marking data set from `<root>/road-marking`: `dataset_annotations.txt` and `images/`.

    A sample is the bounding box of a marking's four corners with a margin of 10% of its larger side, stretched to a
    square: markings are seen at a flat angle, about 2.5 times as wide as high, and a square crop would cut STOP to TO.
    One frame may have several markings; it is then stored once for each.

    `split="random"` sets no groups: with a test fraction of 20% this is the paper's 8:2 split. Consecutive files are
    frames of one drive, so both sides then have near duplicates. `split="runs"` makes groups of them: a run is a
    sequence of files of one class, each at most 5 file numbers after the previous one; six pairs of runs that are
    frames of one pass with distant numbers are joined. (With a gap of 1, 202 of the 1,443 samples would have a near
    duplicate of their frame in another run of their class, with a correlation of 40x30 grey thumbnails above 0.95:
    where frames have several markings, the files of classes alternate. With a gap of 5 there are none.)

    Args:
        root: the data root.
        download: has no effect; the data set cannot be downloaded automatically.
        classes: how many of the largest classes to keep: 9 (as the paper), 10, or `"all"` (27).
        split: `"random"` or `"runs"`.
    """
    del download
    known = {"9": 9, "10": 10, "all": len(COUNTS), str(len(COUNTS)): len(COUNTS)}
    if str(classes) not in known:
        raise EvenhandError(f"road-marking has classes=9, 10 or all, got {str(classes)!r}.")
    if split not in ("random", "runs"):
        raise EvenhandError(f"road-marking has split=random or runs, got {split!r}.")
    names = tuple(COUNTS)[: known[str(classes)]]
    folder = root / "road-marking"
    markings, corners = _read_annotations(folder / "dataset_annotations.txt")
    paths = _image_paths(folder, len(markings))
    boxes, repaired = _boxes(corners)
    rows = np.flatnonzero(np.isin(markings, names))
    groups = _runs(markings)[rows] if split == "runs" else None
    notes = [f"Damaged rows of the annotations were repaired: {', '.join(map(str, repaired))}."] if repaired else []
    if split == "random":
        notes.append(
            "Consecutive files are frames of one drive, so a random split has near duplicates on both sides: "
            "road-marking:split=runs keeps them together."
        )
    return SampleTable(
        name="road-marking" + f":classes={classes}" * (len(names) != 9) + f":split={split}" * (split == "runs"),
        class_names=names,
        labels=np.array([names.index(marking) for marking in markings[rows]]),
        ids=np.array([paths[row] for row in rows]),
        pixels=FilePixels(folder, [paths[row] for row in rows], boxes[rows], stretch=True),
        groups=groups,
        info=DatasetInfo(flip=False, image_size=64),
        notes=tuple(notes),
    )


def _read_annotations(path: Path) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Return the classes, (N,), and the corners, (N, 8), of the rows x1, x2, x3, x4, y1, y2, y3, y4, class, file."""
    if not path.is_file():
        raise EvenhandError(
            f"road-marking cannot be downloaded automatically; get it from {PAGE} and put dataset_annotations.txt and "
            f"images/ into {path.parent}."
        )
    try:
        with open_regular(path) as opened, io.TextIOWrapper(opened, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
        corners = np.array([[float(value) for value in row[:8]] for row in rows])
        markings = np.array([row[8] for row in rows])
        files = [row[9] for row in rows]
    except (OSError, ValueError, IndexError, csv.Error) as error:
        raise _unlike(path, f"it cannot be read ({error})") from error
    if len(rows) != sum(COUNTS.values()):
        raise _unlike(path, f"it has {len(rows):,} rows instead of {sum(COUNTS.values()):,}")
    if files != [f"roadmark_{number:04d}.png" for number in range(1, len(files) + 1)]:
        raise _unlike(path, f"its files are not roadmark_0001.png to roadmark_{len(files)}.png in order")
    if Counter(markings.tolist()) != COUNTS:
        raise _unlike(path, "its classes have other counts")
    return markings, corners


def _image_paths(folder: Path, count: int) -> list[str]:
    """Return the paths of the images: .jpg, though the annotations name .png."""
    paths = [f"images/roadmark_{number:04d}.jpg" for number in range(1, count + 1)]
    present = {f"images/{path.name}" for path in (folder / "images").glob("roadmark_*.jpg")}
    missing = [path for path in paths if path not in present]
    if missing:
        raise EvenhandError(f"{folder} lacks {some(missing, 3)}; get the road marking data set again from {PAGE}.")
    for path in paths:
        try:
            with open_regular(folder / path) as file, Image.open(file) as image:
                size = image.size
        except (OSError, ValueError, SyntaxError):
            continue  # the decoder reports unreadable images
        if size != (WIDTH, HEIGHT):
            raise EvenhandError(
                f"{folder / path} is {size[0]}x{size[1]}, but the annotations are for {WIDTH}x{HEIGHT}; "
                f"get the road marking data set again from {PAGE}."
            )
    return paths


def _boxes(corners: NDArray[np.float64]) -> tuple[NDArray[np.int64], list[int]]:
    """Return the box of each marking, (N, 4) of left, top, right, bottom, and the numbers of the repaired rows.

    In two rows x4 was written twice, which shifted y1 to y3 by one and lost y4, as the images and the neighbouring
    frames of rows 351 and 353 show. The lost corner is placed to complete a parallelogram; in rows 351 and 353 that
    estimate is off by less than the margin.
    """
    x, y = corners[:, :4], corners[:, 4:].copy()
    damaged = np.flatnonzero(y[:, 0] == x[:, 3])
    y[damaged, :3] = y[damaged, 1:]
    y[damaged, 3] = y[damaged, 0] + y[damaged, 2] - y[damaged, 1]
    low, high = np.stack([x.min(1), y.min(1)], 1), np.stack([x.max(1), y.max(1)], 1)
    margin = MARGIN * (high - low).max(1, keepdims=True)
    low, high = np.floor(low - margin), np.ceil(high + margin)
    boxes = np.concatenate([np.maximum(low, 0), np.minimum(high, (WIDTH, HEIGHT))], 1)
    outside = np.flatnonzero(~(boxes[:, :2] < boxes[:, 2:]).all(1))
    if len(outside):
        raise EvenhandError(
            f"Row {outside[0] + 1} of the road marking annotations is outside its frame; get them again from {PAGE}."
        )
    return boxes.astype(np.int64), (damaged + 1).tolist()


def _runs(markings: Sequence[str] | NDArray[np.str_]) -> NDArray[np.str_]:
    """Name the run of each file by its class and first file number."""
    last: dict[str, tuple[int, str]] = {}
    runs = []
    for number, marking in enumerate(map(str, markings), 1):
        before, run = last.get(marking, (-GAP, ""))
        if number - before > GAP:
            run = f"{marking} from {number:04d}"
        last[marking] = (number, run)
        runs.append(run)
    named = np.array(runs)
    for first, second in SAME_PASS:
        named[named == named[second - 1]] = named[first - 1]
    return named


def _unlike(path: Path, difference: str) -> EvenhandError:
    return EvenhandError(
        f"{path} is not the file of the road marking data set: {difference}; get it again from {PAGE}."
    )
