"""The data of a run: table, images, splits and preprocessing, from a config."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Batches, Preprocessing, flip_warning, make_preprocessing
from evenhand.data.decode import Interpolation
from evenhand.data.images import FeatureImages, Images, open_images
from evenhand.data.imbalance import Imbalance
from evenhand.data.reading import RowReader
from evenhand.data.sources import load_source
from evenhand.data.splits import Splits, drop_small_classes, make_splits
from evenhand.data.table import FilePixels, SampleTable, Split
from evenhand.models.backbone import Backbone
from evenhand.models.transform import InputTransform
from evenhand.runs.config import Config
from evenhand.training._initial_weights import Pretrained, find_pretrained
from evenhand.training.features import extract_features
from evenhand.training.frozen_body import keep_backbone

RunSplit: TypeAlias = Split | Literal["calibration"]
"""A part of the images of a run."""
SHOWN_SIZE = 96
"""Pixels of the shorter side of images that are only shown."""


@dataclass(frozen=True, eq=False)
class PreparedData:
    """The data of a run."""

    table: SampleTable
    """The samples, without unreadable images and dropped classes."""
    images: Images
    """The images of the whole source."""
    rows: NDArray[np.int64]
    """The index of each row of the table in the images, (N,)."""
    splits: Splits
    """Rows of the table."""
    preprocessing: Preprocessing
    notes: tuple[str, ...] = ()
    """Notes for the reader of the results."""
    pretrained: Pretrained | None = None
    """Initial weights; None: fresh ones."""
    backbone: Backbone | None = None
    """The frozen network whose features are trained on; None: training on images."""
    interpolation: Interpolation = "bilinear"
    """The filter of the resize."""

    def resolved(self) -> dict[str, Any]:
        """Return the settings that the config leaves open, as the data decided them."""
        return {
            "image_size": self.images.image_size,
            "crop_size": self.preprocessing.crop_size,
            "channels": self.images.channels,
            "flip": self.preprocessing.flip,
            "padding": self.preprocessing.padding,
        }

    def batches(self, split: RunSplit, batch_size: int, **options: Any) -> Batches:
        """Return the batches of a split; the options are those of `Batches`."""
        labels = np.zeros(len(self.images), np.int64)
        labels[self.rows] = self.table.labels
        rows = self.rows[getattr(self.splits, split)]
        return Batches(self.images, labels, rows, self.preprocessing, batch_size, **options)


def prepare(config: Config, *, progress: bool = True) -> PreparedData:
    """Load and split the source of a config.

    With `select: last` there is no validation set: all training images are trained on.
    """
    data = config.data
    # First: missing weights are reported before any image is read.
    pretrained = find_pretrained(config)
    transform = None if pretrained is None else _at_size(pretrained.transform, data.image_size)
    interpolation = "bilinear" if transform is None else transform.interpolation
    table = _load_table(config, transform)
    backbone = None
    if pretrained is not None and transform is not None and pretrained.frozen:
        backbone = pretrained.backbone(transform)
        images: Images = open_features(table, backbone, config, progress=progress)
    else:
        images = open_images(
            table,
            image_size=data.image_size if transform is None else transform.resize_size,
            interpolation=interpolation,
            skip_bad=data.skip_bad,
            progress=progress,
        )
    rows = images.readable()
    if images.bad:
        table = table.take(rows, note=f"Left out as unreadable: {len(images.bad)} of {len(table)} images.")
    if data.drop_small:
        smaller = drop_small_classes(table)
        rows, table = rows[np.isin(table.ids, smaller.ids)], smaller
    splits = split(config, table)
    if config.select != "last" and len(splits.val) == 0:
        why = "data.val_fraction is 0" if data.val_fraction == 0 else "no class has 5 training images"
        raise EvenhandError(f"{table.name} has no validation images to select by: {why}; use --select last.")
    if transform is None:
        flip, padding = config.augmentation.flip, config.augmentation.padding
        preprocessing = make_preprocessing(table, images, rows[splits.train], flip=flip, padding=padding)
    else:
        preprocessing = _preprocessing(transform, config, table, images)
    mirrored = flip_warning(table, config.augmentation.flip)
    if isinstance(images, FeatureImages) and images.features.shape[1] == 1:
        mirrored = ""
    return PreparedData(
        table,
        images,
        rows,
        splits,
        preprocessing,
        (*table.notes, *splits.notes, *([mirrored] if mirrored else [])),
        pretrained,
        backbone,
        interpolation,
    )


def warm_features(config: Config, *, keep: Path | None = None, extract: bool = True) -> None:
    """Fill the feature cache for a config that trains on features, so that many runs can use it.

    Args:
        config: of any of the runs.
        keep: the folder of a comparison, to store the frozen network once for all its runs.
        extract: compute the features; otherwise only the network is stored.
    """
    pretrained = find_pretrained(config)
    if pretrained is None or not pretrained.frozen:
        return
    transform = _at_size(pretrained.transform, config.data.image_size)
    backbone = pretrained.backbone(transform)
    if extract:
        open_features(_load_table(config, transform), backbone, config)
    if keep is not None:
        keep_backbone(backbone, keep)


def _load_table(config: Config, transform: InputTransform | None) -> SampleTable:
    data = config.data
    table = load_source(data.source, data_root=data.root, allow_outside=data.allow_outside)
    if transform is not None and transform.resize_rule == "stretch" and isinstance(table.pixels, FilePixels):
        table = replace(table, pixels=replace(table.pixels, stretch=True))
    return table


def open_features(table: SampleTable, backbone: Backbone, config: Config, *, progress: bool = True) -> FeatureImages:
    """Compute the features of a source, or read them from the cache; with a mirrored view if flips are on."""
    transform, pixels = backbone.transform, table.pixels
    found = extract_features(
        pixels,
        backbone,
        mirrored=bool(config.augmentation.flip),
        skip_bad=config.data.skip_bad,
        progress=progress,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )
    channels, size = len(transform.mean), transform.resize_size
    stretch = transform.resize_rule == "stretch"
    reader = RowReader(pixels, min(size, SHOWN_SIZE), channels, transform.interpolation, stretch)
    sizes = np.full((len(pixels), 2), size, np.int64)
    return FeatureImages(size, channels, sizes, found.bad, torch.from_numpy(found.values), reader)


def _at_size(transform: InputTransform, image_size: int | None) -> InputTransform:
    return transform if image_size is None else transform.at(image_size)


def _preprocessing(transform: InputTransform, config: Config, table: SampleTable, images: Images) -> Preprocessing:
    """Return the preprocessing that pretrained weights expect."""
    mean, std = transform.mean, transform.std
    if images.channels != len(mean):  # grey images: the first kernel is summed over the channels
        mean, std = (float(np.mean(mean)),) * images.channels, (float(np.mean(std)),) * images.channels
    flip, padding = config.augmentation.flip, config.augmentation.padding
    if isinstance(images, FeatureImages):
        flip, padding = images.features.shape[1] > 1, 0
    return Preprocessing(
        crop_size=transform.crop_size,
        mean=mean,
        std=std,
        padding=min(4, -(-transform.crop_size // 8)) if padding is None else padding,
        flip=table.info.flip if flip is None else flip,
    )


def split(config: Config, table: SampleTable) -> Splits:
    """Split a table, without unreadable images and dropped classes, as a config asks.

    Example:
        >>> from evenhand.data.sources import load_source
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.prepare import split
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
        rotation=config.seed if data.rotate else 0,
        test_fraction=data.test_fraction,
        val_fraction=0.0 if last else data.val_fraction,
        calibration_fraction=data.calibration_fraction,
    )
    return replace(splits, val=splits.val[:0]) if last else splits
