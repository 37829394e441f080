"""A source as one table: a row a sample, with its label, its name, and where its pixels are.

Splits, imbalance and audits are functions from this table to row numbers; pixels are only touched when a batch,
a cache or an audit asks for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "val", "test"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set and changes how its images are fed to a network."""

    flip: bool = True
    """A mirrored image still shows its class."""
    scaling: Literal["statistics", "symmetric"] = "statistics"
    """Normalise by the mean and variance of the training images, or map 0..255 to [-1, 1]."""
    image_size: int | None = None
    """Height and width to bring images to; None: decided from the images."""
    crop_size: int | None = None
    """Height and width that the network sees, if smaller than the image."""


@dataclass(frozen=True, eq=False)
class ArrayPixels:
    """Images that are in memory, all of one size."""

    images: NDArray[np.uint8]
    """(N, H, W, C), C = 1 or 3."""

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[np.int64]) -> "ArrayPixels":
        """Return the images of the given rows."""
        return ArrayPixels(self.images[rows])


@dataclass(frozen=True, eq=False)
class FilePixels:
    """Images that are files, of any size."""

    root: Path
    paths: Sequence[str]
    """Relative to the root, with `/`."""
    boxes: NDArray[np.int64] | None = None
    """(N, 4): left, top, right, bottom of the part to cut out, in pixels; None: whole images."""
    stretch: bool = False
    """Images are brought to squares whatever their shape, so that none loses its ends to a crop."""

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, rows: NDArray[np.int64]) -> "FilePixels":
        """Return the files of the given rows."""
        boxes = None if self.boxes is None else self.boxes[rows]
        return FilePixels(self.root, [self.paths[row] for row in rows], boxes, self.stretch)


@dataclass(frozen=True, eq=False)
class SampleTable:
    """A source of labelled images."""

    name: str
    class_names: tuple[str, ...]
    labels: NDArray[np.int64]
    """(N,), from 0 to K - 1."""
    ids: NDArray[np.str_]
    """(N,), unique: the name by which a sample is written down."""
    pixels: ArrayPixels | FilePixels
    splits: NDArray[np.str_] | None = None
    """(N,) of `train`, `val` or `test` where the source fixes its splits; None: they are cut."""
    groups: NDArray[np.str_] | None = None
    """(N,): samples of one group never stand on two sides of a split."""
    info: DatasetInfo = field(default_factory=DatasetInfo)
    notes: tuple[str, ...] = ()
    """Sentences the user should see: what was repaired, dropped or assumed."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """K, classes without samples included."""
        return len(self.class_names)

    def rows(self, split: Split) -> NDArray[np.int64]:
        """Return the row numbers of a split that the source fixes, in order."""
        if self.splits is None:
            raise ValueError(f"{self.name} fixes no splits")
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
        """Return a table of the given rows only, with new labels and class names where classes are left out."""
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
