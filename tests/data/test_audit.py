"""The audit: duplicates, leaks, small classes, and advice that follows from the numbers."""

import json
from pathlib import Path

import numpy as np

from evenhand.data.audit import audit, find_duplicates
from evenhand.data.imbalance import Imbalance
from evenhand.data.splits import Splits, make_splits
from evenhand.data.table import ArrayPixels, FilePixels, SampleTable


def array_table(images: np.ndarray, labels: list[int], splits: list[str] | None = None) -> SampleTable:
    return SampleTable(
        name="made-up",
        class_names=("cat", "dog", "owl")[: max(labels) + 1],
        labels=np.array(labels),
        ids=np.array([f"image {i}" for i in range(len(labels))]),
        pixels=ArrayPixels(images),
        splits=None if splits is None else np.array(splits),
    )


def distinct_images(n: int) -> np.ndarray:
    return np.arange(n * 16, dtype=np.uint32).view(np.uint8).reshape(n, 8, 8, 1)


def test_duplicates_name_the_pairs_leaks_first() -> None:
    images = distinct_images(8)
    images[1] = images[0]  # inside training
    images[7] = images[3]  # training and test, and another label
    table = array_table(images, [0, 0, 0, 0, 1, 1, 0, 1], ["train"] * 6 + ["test"] * 2)
    found = find_duplicates(table, make_splits(table, val_fraction=0))
    assert [each.ids for each in found] == [("image 3", "image 7"), ("image 0", "image 1")]
    assert [each.leaks for each in found] == [True, False]
    assert [each.conflicts for each in found] == [True, False]
    result = audit(table, make_splits(table, val_fraction=0))
    assert any("1 image is in both test and training" in line for line in result.advice)
    assert any("copies with another label" in line for line in result.advice)


def test_duplicate_files_are_found_by_content_and_boxes_tell_crops_apart(tmp_path: Path) -> None:
    for name, content in {"a": b"same", "b": b"same", "c": b"othr", "d": b"longer"}.items():
        (tmp_path / name).write_bytes(content)
    paths = ["a", "b", "c", "d", "a"]

    def table(boxes: np.ndarray | None) -> SampleTable:
        return SampleTable(
            name="files",
            class_names=("x", "y"),
            labels=np.array([0, 1, 0, 1, 0]),
            ids=np.array(["1", "2", "3", "4", "5"]),
            pixels=FilePixels(tmp_path, paths, boxes),
        )

    splits = Splits(np.array([0, 2, 3, 4]), np.array([], int), np.array([1]), np.array([3, 1]))
    (whole,) = find_duplicates(table(None), splits)
    assert whole.ids == ("1", "2", "5")
    assert whole.leaks
    boxes = np.zeros((5, 4), np.int64)
    boxes[4] = 9
    (cropped,) = find_duplicates(table(boxes), splits)
    assert cropped.ids == ("1", "2")


def test_rows_that_no_split_uses_are_no_duplicates() -> None:
    images = distinct_images(60)
    images[:20] = images[0]
    table = array_table(images, [0] * 30 + [1] * 30)
    thinned = make_splits(table, imbalance=Imbalance("step", 12))
    used = {*thinned.train, *thinned.val, *thinned.test}
    for duplicate in find_duplicates(table, thinned):
        assert {int(name.split()[1]) for name in duplicate.ids} <= used


def test_numbers_of_an_audit() -> None:
    table = array_table(distinct_images(280), [0] * 200 + [1] * 60 + [2] * 20)
    splits = make_splits(table)
    result = audit(table, splits)
    assert [(row.name, row.train, row.val, row.test, row.group) for row in result.classes] == [
        ("cat", 160, 16, 40, "many"),
        ("dog", 48, 5, 12, "medium"),
        ("owl", 16, 2, 4, "few"),
    ]
    assert result.imbalance_ratio == 10
    assert abs(sum(row.share for row in result.classes) - 1) < 1e-12
    assert result.resembles == "exp:10"
    assert result.too_small_to_judge == ("owl",)
    assert (result.sizes, result.modes) == (((8, 8, 280),), {"L": 280})
    # Wilson's interval of 2 in 4 is 15% to 85%.
    assert any("has 4 test images" in line and "15% to 85%" in line for line in result.advice)
    assert any("Always predicting 'cat' would be correct for 71%" in line for line in result.advice)
    assert json.loads(json.dumps(result.as_dict()))["classes"][2]["name"] == "owl"


def test_without_splits_all_samples_are_counted_and_the_problem_is_kept() -> None:
    table = array_table(distinct_images(5), [0, 0, 0, 0, 1])
    result = audit(table, None, problems=["'dog' has one image."])
    assert [row.train for row in result.classes] == [4, 1]
    assert result.problems == ("'dog' has one image.",)
    assert result.too_small_to_judge == ()
