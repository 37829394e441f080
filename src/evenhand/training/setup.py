"""From a config to what is trained on: the table, its pixels, its splits, and how the network sees them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Batches, Preprocessing, make_preprocessing, what_mirrors_do
from evenhand.data.images import Images, open_images
from evenhand.data.imbalance import Imbalance
from evenhand.data.sources import load_source
from evenhand.data.splits import Splits, drop_small_classes, make_splits
from evenhand.data.table import SampleTable, Split
from evenhand.runs.config import Config

PRETRAINED_SIZE = 224
"""What ImageNet networks were trained on."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """All that a run needs of its data."""

    table: SampleTable
    """Without unreadable images and dropped classes."""
    images: Images
    """Of the whole source."""
    rows: NDArray[np.int64]
    """Where each row of the table stands among the images, (N,)."""
    splits: Splits
    """Rows of the table."""
    preprocessing: Preprocessing
    notes: tuple[str, ...] = ()
    """What a reader of the results should know."""

    def batches(self, split: Split, batch_size: int, **options: Any) -> Batches:
        """Serve the images of one split; the options are those of `Batches`."""
        labels = np.zeros(len(self.images), np.int64)
        labels[self.rows] = self.table.labels
        rows = self.rows[getattr(self.splits, split)]
        return Batches(self.images, labels, rows, self.preprocessing, batch_size, **options)


def prepare(config: Config, *, progress: bool = True) -> Prepared:
    """Load, open and split the source of a config.

    With `select: last` nothing is validated, so no validation set is cut: all training images are trained on.
    """
    data = config.data
    table = load_source(data.source, data_root=data.root, allow_outside=data.allow_outside)
    image_size = data.image_size or (PRETRAINED_SIZE if config.model.pretrained else None)
    images = open_images(table, image_size=image_size, skip_bad=data.skip_bad, progress=progress)
    rows = images.readable()
    if images.bad:
        table = table.take(rows, note=f"Left out as unreadable: {len(images.bad)} of {len(table)} images.")
    if data.drop_small:
        smaller = drop_small_classes(table)
        rows, table = rows[np.isin(table.ids, smaller.ids)], smaller
    splits = split(config, table)
    if config.select != "last" and len(splits.val) == 0:
        why = "data.val_fraction is 0" if data.val_fraction == 0 else "no class has 5 training images"
        raise EvenhandError(f"{table.name} leaves no validation images to select by: {why}; use --select last.")
    flip, padding = config.augmentation.flip, config.augmentation.padding
    preprocessing = make_preprocessing(table, images, rows[splits.train], flip=flip, padding=padding)
    mirrored = what_mirrors_do(table, flip)
    notes = (*table.notes, *splits.notes, *([mirrored] if mirrored else []))
    return Prepared(table, images, rows, splits, preprocessing, notes)


def split(config: Config, table: SampleTable) -> Splits:
    """Cut a table, from which unreadable images and dropped classes are already gone, as a config asks.

    Example:
        >>> from evenhand.data.sources import load_source
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.setup import split
        >>> splits = split(make_config(data__imbalance="exp:20", select="last"), load_source("digits"))
        >>> len(splits.train), len(splits.val), len(splits.test)
        (478, 0, 359)
    """
    data, last = config.data, config.select == "last"
    splits = make_splits(
        table,
        imbalance=Imbalance.parse(data.imbalance),
        order=data.class_order,
        fraction=data.fraction,
        seed=config.seed,
        split_seed=data.split_seed,
        test_fraction=data.test_fraction,
        val_fraction=0.0 if last else data.val_fraction,
    )
    return replace(splits, val=splits.val[:0]) if last else splits
