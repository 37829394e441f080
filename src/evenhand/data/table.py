"""A source as a table: one row per sample, with its label, its name, and where its pixels are.

Splits, imbalance and audits are functions from this table to row numbers; pixels are only read for a batch, a cache or
an audit.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class DatasetInfo:
    """Properties of a data set that change the preprocessing of its images."""

    flip: bool = True
    """Whether a flipped image still shows its class."""
    scaling: Literal["statistics", "symmetric"] = "statistics"
    """Normalise by the mean and variance of the training images, or map 0..255 to [-1, 1]."""
    image_size: int | None = None
    """Length of the shorter side after resizing; None: chosen from the images."""
    crop_size: int | None = None
    """Height and width of the network's input, if smaller than the image."""


@dataclass(frozen=True, eq=False)
class ArrayPixels:
    """Images in memory, all of one size."""

    images: NDArray[np.uint8]
    """(N, H, W, C), C = 1 or 3."""

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[np.int64]) -> "ArrayPixels":
        """Return the images of the given rows."""
        return ArrayPixels(self.images[rows])


class PackedImages(Protocol):
    """Encoded images inside larger files, such as the rows of a Parquet file."""

    def read(self, row: int) -> bytes:
        """Return the bytes of an image; none where the row has no image."""

    def state(self, row: int) -> str:
        """Return a text that changes when the image may have changed."""

    def take(self, rows: NDArray[np.int64]) -> "PackedImages":
        """Return the images of the given rows."""


@dataclass(frozen=True, eq=False)
class FilePixels:
    """Encoded images, of any size: files, or parts of larger files."""

    root: Path
    paths: Sequence[str]
    """Relative to the root, with `/`."""
    boxes: NDArray[np.int64] | None = None
    """(N, 4): left, top, right, bottom of the crop, in pixels; None: whole images."""
    stretch: bool = False
    """Whether images are stretched to squares, so that a crop does not cut their ends."""
    packed: PackedImages | None = None
    """The images, if they are parts of larger files, and the paths only names; None: they are files."""

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, row: int) -> str:
        """Return the path of an image, or its name inside a larger file."""
        return os.path.join(self.root, self.paths[row])

    def content(self, row: int) -> bytes | None:
        """Return the bytes of an image inside a larger file; None: it is a file of its own."""
        return None if self.packed is None else self.packed.read(row)

    def length(self, row: int) -> int:
        """Return the number of bytes of an image."""
        content = self.content(row)
        return os.stat(self.path(row)).st_size if content is None else len(content)

    def state(self, row: int) -> str:
        """Return a text that changes when the image may have changed; `missing` for a file that is not there."""
        if self.packed is not None:
            return self.packed.state(row)
        try:
            found = os.stat(self.path(row))
        except (OSError, ValueError):
            return "missing"
        return f"{found.st_size} {found.st_mtime_ns}"

    def take(self, rows: NDArray[np.int64]) -> "FilePixels":
        """Return the files of the given rows."""
        boxes = None if self.boxes is None else self.boxes[rows]
        packed = None if self.packed is None else self.packed.take(rows)
        return FilePixels(self.root, [self.paths[row] for row in rows], boxes, self.stretch, packed)


@dataclass(frozen=True, eq=False)
class SampleTable:
    """A source of labelled images."""

    name: str
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]
    """(N,), from 0 to K - 1."""
    ids: NDArray[np.str_]
    """(N,), unique: the name of each sample in files."""
    pixels: ArrayPixels | FilePixels
    splits: NDArray[np.str_] | None = None
    """(N,) of `train`, `val` or `test` if the source has splits; None: they are made."""
    groups: NDArray[np.str_] | None = None
    """(N,): samples of one group are always in the same split."""
    info: DatasetInfo = field(default_factory=DatasetInfo)
    notes: tuple[str, ...] = ()
    """Sentences for the user: what was repaired, dropped or assumed."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """K, classes without samples included."""
        return len(self.class_names)

    def rows(self, split: Split) -> NDArray[np.int64]:
        """Return the row numbers of a split of the source, in order."""
        if self.splits is None:
            raise ValueError(f"{self.name} has no splits")
        return np.flatnonzero(self.splits == split)

    def counts(self, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the number of samples of each class, (K,), among the given rows."""
        labels = self.labels if rows is None else self.labels[rows]
        return np.bincount(labels, minlength=self.num_classes)

    def take(
        self,
        rows: NDArray[np.int64],
        *,
        labels: NDArray[np.int64] | None = None,
        class_names: tuple[str, ...] | None = None,
        note: str | None = None,
    ) -> "SampleTable":
        """Return a table of the given rows, with new labels and class names if classes are dropped."""
        return replace(
            self,
            labels=self.labels[rows] if labels is None else labels,
            class_names=self.class_names if class_names is None else class_names,
            ids=self.ids[rows],
            pixels=self.pixels.take(rows),
            splits=None if self.splits is None else self.splits[rows],
            groups=None if self.groups is None else self.groups[rows],
            notes=self.notes if note is None else (*self.notes, note),
        )
