"""Stratified splits: every class is in training and test, and no group is in two splits."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.core.text import some
from evenhand.data.imbalance import Imbalance, class_order, subset
from evenhand.data.table import SampleTable

Rows = NDArray[np.int64]

# Classes with fewer training images have none in validation: they need each one for training.
MIN_VALIDATED = 5
MIN_CALIBRATED = 9
"""Images with which prediction sets of 90% coverage can leave a class out."""
MOST_CALIBRATED = 3
"""At most one in so many training images of a class is set aside for calibration to reach that."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Which rows of a table are trained on, validated on and tested on."""

    train: Rows
    val: Rows
    test: Rows
    counts: NDArray[np.int64]
    """(K,): training images per class after any imbalance, before the validation split."""
    notes: tuple[str, ...] = ()
    calibration: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    """Rows set aside to calibrate prediction sets: neither trained on nor used for any selection."""


def make_splits(
    table: SampleTable,
    *,
    imbalance: Imbalance | None = None,
    order: str = "identity",
    fraction: float = 1.0,
    seed: int = 0,
    split_seed: int = 0,
    rotation: int = 0,
    test_fraction: float = 0.2,
    val_fraction: float = 0.1,
    calibration_fraction: float = 0.0,
) -> Splits:
    """Split a table into training, validation and test rows.

    The test set is split off first (or is the source's own), by `split_seed` and `rotation` alone, so that every seed
    is evaluated on the same images. Then the imbalance is applied to the training rows, and validation is split off.

    Args:
        table: the samples.
        imbalance: the profile of the training set; the test set does not change.
        order: classes from most to fewest images, see :func:`evenhand.data.imbalance.class_order`.
        fraction: fraction of what the largest class could keep, above 0; the imbalance ratio is unchanged.
        seed: random seed of the subset and of the validation split.
        split_seed: random seed of the test split.
        rotation: index of the test set: each takes the next images of every class, cyclically. With groups, each is a
            new random draw. A test set of the source does not rotate.
        test_fraction: fraction of each class for testing, at least one image of each.
        val_fraction: fraction of each class for validation, at least one image of each class of 5 or more and none of
            smaller ones; 0: no validation set.
        calibration_fraction: fraction of the training images of each class set aside for calibration, at least 9, and
            none of a class of which 9 would be more than a third; 0: no calibration set.

    Raises:
        EvenhandError: classes cannot have both a training and a test image; the message names them.

    Example:
        >>> from evenhand.data.imbalance import Imbalance
        >>> from evenhand.data.sources import load_source
        >>> from evenhand.data.splits import make_splits
        >>> splits = make_splits(load_source("digits"), imbalance=Imbalance("exp", 20))
        >>> splits.counts
        array([142, 101,  72,  52,  37,  26,  19,  13,   9,   7])
        >>> len(splits.test)
        359
    """
    fractions = {"test": test_fraction, "validation": val_fraction, "calibration": calibration_fraction}
    for name, share in fractions.items():
        if not 0 <= share < 1 or (name == "test" and share == 0):
            raise EvenhandError(f"The {name} fraction must be above 0 and below 1, got {share}.")
    if not 0 < fraction <= 1:
        raise EvenhandError(f"The fraction of images to keep must be above 0 and at most 1, got {fraction}.")
    small = [table.class_names[k] for k in _too_small(table)]
    if small:
        raise EvenhandError(
            f"{table.name} has too few images of {some(small)} for both training and test; add images, or drop such "
            "classes with --drop-small."
        )
    own_val = None
    if table.splits is None:
        sizes = table.counts()
        targets = np.clip(np.rint(test_fraction * sizes), 1, sizes - 1).astype(np.int64)
        train, test = _cut(table, np.arange(len(table)), targets, "test", split_seed, rotation)
        _refuse_untested(table, test)
    else:
        train, test = table.rows("train"), table.rows("test")
        own_val = table.rows("val") if (table.splits == "val").any() else None
    imbalance = imbalance or Imbalance()
    if imbalance.kind != "none" or fraction < 1:
        ordered = class_order(order, table.class_names, seed)
        keep = imbalance.counts(table.counts(train), ordered, table.class_names, fraction=fraction)
        train = subset(table.labels, train, keep, seed)
    counts = table.counts(train)
    train, calibration = _cut_calibration(table, train, calibration_fraction, seed)
    if own_val is not None:
        return Splits(train, own_val, test, counts, calibration=calibration)
    if val_fraction == 0:
        return Splits(train, train[:0], test, counts, calibration=calibration)
    left = table.counts(train)
    targets = np.maximum(np.rint(val_fraction * left), 1).astype(np.int64)
    targets[left < MIN_VALIDATED] = 0
    train, val = _cut(table, train, targets, "validation", seed)
    unseen = [name for name, count in zip(table.class_names, table.counts(val), strict=True) if count == 0]
    notes = (f"No validation images of {some(unseen)}: not included in the validation mean.",) if unseen else ()
    return Splits(train, val, test, counts, notes, calibration)


def _cut_calibration(table: SampleTable, train: Rows, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Set calibration images aside; return the remaining training rows and those of calibration."""
    if fraction == 0:
        return train, train[:0]
    counts = table.counts(train)
    targets = np.maximum(np.rint(fraction * counts), MIN_CALIBRATED).astype(np.int64)
    targets[counts < MOST_CALIBRATED * MIN_CALIBRATED] = 0
    if not targets.any():
        raise EvenhandError(
            f"No class of {table.name} has {MOST_CALIBRATED * MIN_CALIBRATED} training images, the fewest of which "
            f"{MIN_CALIBRATED} are set aside for calibration; leave out data.calibration_fraction."
        )
    return _cut(table, train, targets, "calibration", seed)


def drop_small_classes(table: SampleTable) -> SampleTable:
    """Drop the classes that cannot have both a training and a test image, with a note.

    Example:
        >>> from evenhand.data.sources import load_source
        >>> from evenhand.data.splits import drop_small_classes
        >>> drop_small_classes(load_source("digits")).num_classes
        10
    """
    small = _too_small(table)
    if not small:
        return table
    kept = [k for k in range(table.num_classes) if k not in small]
    if len(kept) < 2:
        raise EvenhandError(
            f"Only {len(kept)} class of {table.name} is large enough for both training and test; add images."
        )
    rows = np.flatnonzero(np.isin(table.labels, kept))
    return table.take(
        rows,
        labels=np.searchsorted(kept, table.labels[rows]),
        class_names=tuple(table.class_names[k] for k in kept),
        note=f"Dropped as too small: {some([table.class_names[k] for k in small])}.",
    )


def _cut(
    table: SampleTable, rows: Rows, targets: NDArray[np.int64], name: str, seed: int, rotation: int = 0
) -> tuple[Rows, Rows]:
    """Split `targets` random rows of each class off `rows`; return the remaining and the taken rows."""
    labels = table.labels[rows]
    if table.groups is None:
        ordered = [stream(seed, name, k).permutation(rows[labels == k]) for k in range(table.num_classes)]
        taken = np.concatenate(
            [np.roll(own, -rotation * target)[:target] for own, target in zip(ordered, targets.tolist(), strict=True)]
        )
    else:
        groups = table.groups[rows]
        taken = rows[np.isin(groups, _groups_to_take(labels, groups, targets, name, seed, rotation))]
    return np.setdiff1d(rows, taken), np.sort(taken)


def _groups_to_take(
    labels: NDArray[np.int64],
    groups: NDArray[np.str_],
    targets: NDArray[np.int64],
    name: str,
    seed: int,
    rotation: int,
) -> list[str]:
    """Choose whole groups close to the targets, rarest class first, and never the last group of a class."""
    known, members = np.unique(groups, return_inverse=True)
    sizes = np.zeros((len(known), len(targets)), np.int64)
    np.add.at(sizes, (members, labels), 1)
    left, have = sizes.sum(0), np.zeros(len(targets), np.int64)
    taken: list[int] = []
    turn = (rotation,) if rotation else ()

    def take(group: int) -> None:
        nonlocal left, have
        if group not in taken and not ((left == sizes[group]) & (sizes[group] > 0)).any():
            taken.append(group)
            left, have = left - sizes[group], have + sizes[group]

    for k in np.argsort(left, kind="stable"):
        own = [int(group) for group in stream(seed, name, int(k), *turn).permutation(np.flatnonzero(sizes[:, k]))]
        for group in own:
            if sizes[group, k] < 2 * (targets[k] - have[k]):  # closer to the target with it than without
                take(group)
        for group in sorted(own, key=lambda group: int(sizes[group, k])):
            if have[k] == 0 < targets[k]:  # all are too large: the smallest overshoots least
                take(group)
    return [str(name) for name in known[taken]]


def _too_small(table: SampleTable) -> list[int]:
    """Return the classes that cannot be in both training and test."""
    if table.splits is None:
        units = table.ids if table.groups is None else table.groups
        return [k for k in range(table.num_classes) if len(np.unique(units[table.labels == k])) < 2]
    train, test = table.counts(table.rows("train")), table.counts(table.rows("test"))
    return [int(k) for k in np.flatnonzero((train == 0) | (test == 0))]


def _refuse_untested(table: SampleTable, test: Rows) -> None:
    """Raise an error if groups with several classes make a split impossible."""
    missing = [name for name, count in zip(table.class_names, table.counts(test), strict=True) if count == 0]
    if missing:
        raise EvenhandError(
            f"The groups of {table.name} allow no test image of {some(missing)} without taking the last training "
            "image of another class; add images or split the groups."
        )
