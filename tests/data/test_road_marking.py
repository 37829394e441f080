"""Road Marking: the annotations as they are, the boxes, the runs; and copies that are not the real thing."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.road_marking import COUNTS, PAGE, load_road_marking
from evenhand.data.splits import make_splits
from evenhand.data.table import FilePixels, SampleTable
from tests.real_data import DATA, needs

real = needs("road-marking")


def boxes_of(table: SampleTable) -> np.ndarray:
    assert isinstance(table.pixels, FilePixels)
    assert table.pixels.boxes is not None
    return table.pixels.boxes


@real
@pytest.mark.parametrize(("classes", "rows", "count"), [(9, 1324, 9), ("10", 1365, 10), ("all", 1443, 27)])
def test_counts(classes: int | str, rows: int, count: int) -> None:
    table = load_road_marking(DATA, classes=classes)
    assert len(table) == rows
    assert dict(zip(table.class_names, table.counts().tolist(), strict=True)) == dict(list(COUNTS.items())[:count])
    assert table.class_names[:3] == ("leftturn", "35", "rightturn")
    assert (table.splits, table.groups) == (None, None)
    assert (table.info.flip, table.info.image_size) == (False, 64)
    assert all((table.pixels.root / path).is_file() for path in table.pixels.paths)
    assert len(set(table.ids.tolist())) == rows


@real
def test_boxes_lie_on_the_road() -> None:
    """Below the horizon, above the bonnet, and wider than high, as what is painted on a road looks from a car."""
    left, top, right, bottom = boxes_of(load_road_marking(DATA, classes="all")).T
    assert left.min() >= 0
    assert right.max() <= 800
    assert top.min() > 240
    assert bottom.max() < 510
    assert np.median((right - left) / (bottom - top)) > 1.5
    assert (right - left).max() < 400
    assert (bottom - top).min() > 12


@real
def test_the_first_box_and_the_repaired_rows() -> None:
    table = load_road_marking(DATA)
    boxes = dict(zip(table.ids.tolist(), boxes_of(table).tolist(), strict=True))
    # Row 1: x from 321.96 to 456.41, y from 317.17 to 344.33, and 13.44 more on each side.
    assert boxes["images/roadmark_0001.jpg"] == [308, 303, 470, 358]
    assert boxes["images/roadmark_0105.jpg"] == [377, 290, 477, 339]
    assert boxes["images/roadmark_0352.jpg"] == [177, 311, 320, 363]
    assert table.notes[0] == "Damaged rows of the annotations were repaired: 105, 352."


@real
def test_the_repaired_boxes_hold_a_marking() -> None:
    """White paint on a dark road: the brightest part of a box is far above its median, and not at its border."""
    table = load_road_marking(DATA)
    for name in ("images/roadmark_0105.jpg", "images/roadmark_0352.jpg"):
        row = table.ids.tolist().index(name)
        with Image.open(table.pixels.root / name) as image:
            crop = np.asarray(image.convert("L").crop(tuple(boxes_of(table)[row].tolist())), float)
        height, width = crop.shape
        middle = crop[height // 5 : -height // 5, width // 5 : -width // 5]
        assert np.percentile(middle, 98) > np.median(crop) + 60


@real
@pytest.mark.parametrize("classes", [9, 10])
def test_runs_stay_together(classes: int) -> None:
    table = load_road_marking(DATA, classes=classes, split="runs")
    splits = make_splits(table)
    assert table.groups is not None
    sides = [set(table.groups[rows]) for rows in (splits.train, splits.val, splits.test)]
    assert sum(map(len, sides)) == len(set.union(*sides))
    assert table.counts(splits.train).min() > 0
    assert table.counts(splits.test).min() > 0
    assert 0.12 < len(splits.test) / len(table) < 0.28
    numbers = np.array([int(name[-8:-4]) for name in table.ids])
    for group in set(table.groups.tolist()):
        of_group = np.flatnonzero(table.groups == group)
        assert len(set(table.labels[of_group])) == 1
        assert (np.diff(numbers[of_group]) > 5).sum() <= 2  # two runs are joined to the first of them
    assert len(set(table.groups[table.labels == 0])) == 23


@real
def test_no_run_has_a_near_copy_in_another() -> None:
    table = load_road_marking(DATA, split="runs")
    assert table.groups is not None
    thumbnails = []
    for path in table.pixels.paths:
        with Image.open(table.pixels.root / path) as image:
            image.draft("L", (100, 75))  # decodes at an eighth of the size
            thumbnails.append(np.asarray(image.convert("L").resize((40, 30), Image.Resampling.BOX), float).ravel())
    same = (table.labels[:, None] == table.labels) & (table.groups[:, None] != table.groups)
    assert np.corrcoef(thumbnails)[same].max() < 0.95


@real
def test_the_random_split_is_8_to_2() -> None:
    table = load_road_marking(DATA)
    splits = make_splits(table, val_fraction=0)
    assert splits.counts.tolist() == [564, 90, 81, 72, 64, 55, 51, 43, 39]
    assert len(splits.test) == 1324 - splits.counts.sum()


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the layout of the data set, with one frame 1,443 times."""
    root = tmp_path_factory.mktemp("root")
    images = root / "road-marking" / "images"
    images.mkdir(parents=True)
    Image.new("RGB", (800, 600)).save(images / "roadmark_0001.jpg")
    for number in range(2, 1444):
        os.link(images / "roadmark_0001.jpg", images / f"roadmark_{number:04d}.jpg")
    return root


def annotations() -> list[str]:
    labels = [name for name, count in COUNTS.items() for _ in range(count)]
    corners = "300.5,400.5,380.0,320.0,340.0,340.0,320.5,320.5"
    return [f"{corners},{label},roadmark_{number:04d}.png" for number, label in enumerate(labels, 1)]


def written(root: Path, lines: list[str]) -> Path:
    (root / "road-marking" / "dataset_annotations.txt").write_text("\n".join(lines) + "\n")
    return root


def test_order_of_the_coordinates_and_margin(copy: Path) -> None:
    """x1 to x4, then y1 to y4: 100 wide and 19.5 high, with 10 more on each side."""
    assert boxes_of(load_road_marking(written(copy, annotations())))[0].tolist() == [290, 310, 411, 350]


def test_a_box_is_clipped_to_the_frame(copy: Path) -> None:
    lines = annotations()
    lines[0] = lines[0].replace("300.5,400.5", "1.5,799.5")
    assert boxes_of(load_road_marking(written(copy, lines)))[0].tolist() == [0, 240, 800, 420]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "1,442 rows instead of 1,443"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "in order"),
        (lambda lines: [lines[0].replace("leftturn", "rightturn"), *lines[1:]], "other counts"),
        (lambda lines: [lines[0].replace("300.5", "wide"), *lines[1:]], "cannot be read"),
        (lambda lines: [lines[0].replace("300.5,", ""), *lines[1:]], "cannot be read"),
        (lambda lines: [lines[0].replace("300.5", "nan"), *lines[1:]], "Row 1 .* outside its frame"),
        (lambda lines: ["1300,1400,1380,1320,340,340,320,320,leftturn,roadmark_0001.png", *lines[1:]], "outside"),
        (lambda _: ["<html>"], "cannot be read"),
    ],
)
def test_other_annotations_are_refused(copy: Path, change: object, message: str) -> None:
    with pytest.raises(EvenhandError, match=message) as caught:
        load_road_marking(written(copy, change(annotations())))  # type: ignore[operator]
    assert PAGE in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_images_are_refused(copy: Path) -> None:
    written(copy, annotations())
    first = copy / "road-marking" / "images" / "roadmark_0001.jpg"
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(EvenhandError, match=r"lacks 'images/roadmark_0001\.jpg'"):
        load_road_marking(copy)
    Image.new("RGB", (400, 300)).save(first)
    with pytest.raises(EvenhandError, match="is 400x300, but the annotations are for 800x600"):
        load_road_marking(copy)
    first.write_bytes(b"no image")  # for the decoder to report
    assert len(load_road_marking(copy)) == 1324
    first.write_bytes(content)


def test_options_and_absence(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="classes=9, 10 or all, got '5'"):
        load_road_marking(tmp_path, classes=5)
    with pytest.raises(EvenhandError, match="split=random or runs, got 'odd'"):
        load_road_marking(tmp_path, split="odd")
    with pytest.raises(EvenhandError, match=f"get it from {PAGE}"):
        load_road_marking(tmp_path)
