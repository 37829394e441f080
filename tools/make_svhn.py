"""Make svhn.npz: the digits of SVHN, cut out of its house numbers by their boxes.

Usage:
    git clone --bare https://github.com/jake-tolleson/dlimgproj images.git
    git clone --bare https://github.com/penny4860/svhn-voc-annotation-format boxes.git
    python tools/make_svhn.py images.git boxes.git DATA/svhn.npz

The pictures are those of jake-tolleson/dlimgproj on GitHub (SVHN/train/N.png and SVHN/test/N.png), the boxes those of
penny4860/svhn-voc-annotation-format (annotation/train/N.xml and annotation/test/N.xml).

The crops are ours, not those of the official files train_32x32.mat and test_32x32.mat, whose code is not published. The
rule is the one that SVHN's page describes: the shorter side of a digit's box is extended on both sides to a square, so
nothing is distorted, and the square is resized to 32x32. An odd pixel is added on the right or below. Where the square
passes the edge of the picture, the nearest pixel is repeated. The filter is Pillow's bicubic. Digits are sorted by the
number of their picture, then as their boxes are listed; their number per class is checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from git_files import Examples, decode, list_files, read_files, run, stack, write_dataset
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.standard import SVHN

SIZE = 32
TEST_COUNTS = (1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595)
"""Test images of the digits 0 to 9."""

Box = tuple[int, int, int, int]
"""xmin, ymin, xmax, ymax, in pixels from 0; the last two are outside."""


@dataclass(frozen=True)
class Annotation:
    """What is known of one picture."""

    size: tuple[int, int]
    """Width and height."""
    boxes: tuple[Box, ...]
    digits: tuple[int, ...]
    """0 to 9, one per box."""


def cut_square(picture: NDArray[np.uint8], box: Box) -> NDArray[np.uint8]:
    """Return a box of a picture (H, W, 3) widened to a square, (S, S, 3); beyond an edge its pixels are repeated."""
    xmin, ymin, xmax, ymax = box
    width, height = xmax - xmin, ymax - ymin
    side = max(width, height)
    left, top = xmin - (side - width) // 2, ymin - (side - height) // 2
    rows = np.clip(np.arange(top, top + side), 0, picture.shape[0] - 1)
    columns = np.clip(np.arange(left, left + side), 0, picture.shape[1] - 1)
    return picture[rows[:, None], columns]


def resize(square: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a square as (32, 32, 3)."""
    return np.asarray(Image.fromarray(square).resize((SIZE, SIZE), Image.Resampling.BICUBIC))


def parse_annotation(name: str, content: bytes) -> Annotation:
    """Read a VOC annotation; the digit 0 may be labelled 0 or 10."""
    boxes: list[Box] = []
    digits: list[int] = []
    try:
        root = ElementTree.fromstring(content)
        size = (int(root.findtext("size/width", "")), int(root.findtext("size/height", "")))
        for found in root.iter("object"):
            label = int(found.findtext("name", ""))
            xmin, ymin, xmax, ymax = (
                int(found.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
            if not 0 <= label <= 10 or xmin >= xmax or ymin >= ymax:
                raise ValueError(f"{label} in the box {xmin}, {ymin}, {xmax}, {ymax}")
            boxes.append((xmin, ymin, xmax, ymax))
            digits.append(label % 10)
    except (ValueError, ElementTree.ParseError) as error:
        raise EvenhandError(f"{name} is no annotation of digits: {error}; clone the repository again.") from error
    return Annotation(size, tuple(boxes), tuple(digits))


def read_annotations(repository: Path, split: str) -> dict[int, Annotation]:
    """Return the annotations by the number of the picture, in that order."""
    folder = f"annotation/{split}"
    files = list_files(repository, folder, ".xml")
    paths = sorted(files, key=lambda path: int(Path(path).stem))
    contents = read_files(repository, [files[path] for path in paths])
    return {
        int(Path(path).stem): parse_annotation(f"{folder}/{path}", content)
        for path, content in zip(paths, contents, strict=True)
    }


def cut_digits(repository: Path, split: str, annotations: dict[int, Annotation]) -> Iterator[NDArray[np.uint8]]:
    """Yield the digits (32, 32, 3) of all pictures that have annotations, in their order."""
    files = list_files(repository, f"SVHN/{split}", ".png")
    missing = [number for number in annotations if f"{number}.png" not in files]
    if missing:
        raise EvenhandError(f"{repository} lacks SVHN/{split}/{missing[0]}.png, which has an annotation.")
    contents = read_files(repository, [files[f"{number}.png"] for number in annotations])
    for (number, annotation), content in zip(annotations.items(), contents, strict=True):
        picture = decode(content)
        if picture.shape[1::-1] != annotation.size:
            raise EvenhandError(
                f"SVHN/{split}/{number}.png is {picture.shape[1]}x{picture.shape[0]}, but its annotation says "
                f"{annotation.size[0]}x{annotation.size[1]}; these are not the original pictures."
            )
        for box in annotation.boxes:
            yield resize(cut_square(picture, box))


def read_split(images: Path, boxes: Path, split: str) -> Examples:
    """Return the digits of `train` or `test` and their labels."""
    annotations = read_annotations(boxes, split)
    labels = [digit for annotation in annotations.values() for digit in annotation.digits]
    return stack(cut_digits(images, split, annotations), labels, SVHN.shape)


def make(images: Path, boxes: Path, out: Path) -> None:
    """Read both splits and write the data set."""
    train, test = (read_split(images, boxes, split) for split in ("train", "test"))
    write_dataset(out, SVHN, train, test, TEST_COUNTS, SVHN.class_names)


if __name__ == "__main__":
    run(make, __doc__, "images", "boxes")
