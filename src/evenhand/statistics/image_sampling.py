"""Sampling error of a difference between two objectives over test images."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.statistics.rotation import (
    TEST_FRACTION,
    UNKNOWN_NOISE,
    kept_share,
    repeated_share,
    training_overlap,
    training_variance,
)
from evenhand.statistics.sampling import BORROWED, Units, class_variances, find_units, sampling_variance


@dataclass(frozen=True)
class ImageError:
    """Sampling error over test images of a difference of two mean recalls."""

    mean: float
    """The measured difference, -1 to 1."""
    error: float
    """Its standard error over test images or groups of them, for the given models."""
    shared: float
    """What an error over seeds misses: the part of that error that is common to all seeds and not training noise, and,
    where seeds rotate, what common training images add."""
    freedom: float
    """Units (images or groups) minus one per class."""
    rotated: bool = False
    """Whether seeds have different test images, so that an error over seeds includes the sampling of images."""
    of_one_seed: float = 0.0
    """Where seeds rotate: the standard error of the difference of one seed over its own test images."""


def paired_image_error(
    ours: NDArray[np.bool_] | NDArray[np.float64],
    baseline: NDArray[np.bool_] | NDArray[np.float64],
    targets: NDArray[np.int64],
    *,
    groups: NDArray[np.str_] | None = None,
    classes: Iterable[int] | None = None,
    train_counts: NDArray[np.int64] | None = None,
    test_fraction: float = TEST_FRACTION,
) -> ImageError | None:
    """Estimate the sampling error over test images of the mean gain over seeds.

    The gain of an image is the fraction of seeds that classify it correctly, minus that of the baseline. The difference
    is the mean over classes of the mean gain; its variance over images, or groups of them, is that of
    :func:`evenhand.statistics.sampling.sampling_variance`. Part of it is training noise that the mean over a few seeds
    leaves in each image, estimated from the variance between seeds within units. The rest is shared by all seeds.

    Seeds may have different test images, as in cross-validation. Their differences then vary by images too, so an error
    over seeds misses only what repeated tests of an image and common training images add
    (:mod:`evenhand.statistics.rotation`): that is `shared`, and the difference is one over new images and new training
    sets of this size.

    Args:
        ours: (n, N), whether each image was classified correctly, per seed, or a fraction; NaN: not tested with this
            seed.
        baseline: (n, N), the same for the baseline, with the same seeds and images.
        targets: (N,).
        groups: (N,), group of each image; None: images are independent.
        classes: the classes to average over; None: all. Those that do not occur are left out.
        train_counts: (K,), training images of each class, indexed by target; used where seeds rotate. None: all that a
            fold leaves.
        test_fraction: of each fold, where seeds rotate.

    Returns:
        None if none of the classes occurs, or all images are one unit.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.image_sampling import paired_image_error
        >>> targets = np.repeat([0, 1], 20)
        >>> right = np.ones((3, 40), bool)
        >>> wrong_in_six = right & (np.arange(40) >= 6)
        >>> found = paired_image_error(right, wrong_in_six, targets)
        >>> round(found.mean, 3), round(found.error, 3), round(found.shared, 3)
        (0.15, 0.053, 0.053)
        >>> by_scene = paired_image_error(right, wrong_in_six, targets, groups=(np.arange(40) // 5).astype(str))
        >>> round(by_scene.error, 2)
        0.13
    """
    gains = ours.astype(np.float64) - baseline
    seen = ~np.isnan(gains).all(axis=0)
    gains, targets, groups = gains[:, seen], targets[seen], None if groups is None else groups[seen]
    units = find_units(targets, groups, classes)
    if units is None or len(units.classes) < 2:
        return None
    if np.isnan(gains).any():
        right = (ours[:, seen].astype(np.float64) + baseline[:, seen]) / 2
        return _of_rotated(gains, right, units, _counts_of(train_counts, targets, units), test_fraction)
    found = [units.around(own) for own in gains]
    means, around = [mean for mean, _ in found], np.stack([each for _, each in found])
    variance = sampling_variance(around.mean(axis=0), units)
    noise = 0.0
    if len(around) > 1:
        noise = float((around.var(axis=0, ddof=1) * units.weights**2).sum() / len(around))
    shared = max(0.0, variance - noise)
    return ImageError(float(np.mean(means)), variance**0.5, shared**0.5, float(units.freedom))


def _counts_of(
    train_counts: NDArray[np.int64] | None, targets: NDArray[np.int64], units: Units
) -> NDArray[np.int64] | None:
    """Return the training images of each class of the mean."""
    return None if train_counts is None else np.asarray(train_counts)[np.unique(targets[units.kept])]


def _of_rotated(
    gains: NDArray[np.float64],
    right: NDArray[np.float64],
    units: Units,
    train_counts: NDArray[np.int64] | None,
    test_fraction: float,
) -> ImageError:
    """Measure the same where images were tested with some seeds only.

    Args:
        gains: (n, N), NaN where an image was not tested.
        right: (n, N), the mean of both objectives.
        units: which they are; each is tested as a whole.
        train_counts: (K,), of the classes of the mean.
        test_fraction: of each fold.
    """
    tested = ~np.isnan(gains)
    filled, n = np.where(tested, gains, 0.0), len(gains)
    mean, around = units.around(filled.sum(axis=0) / tested.sum(axis=0))
    variance = sampling_variance(around, units)
    by_seed, seen = _by_unit(filled, tested, units)
    tests = seen.sum(axis=0)
    stable = 1 - min(1.0, _training_noise(by_seed, seen, units, variance) / variance)
    sizes = np.bincount(units.classes, units.sizes)
    per_seed = np.bincount(units.classes, units.sizes * tests) / n
    if train_counts is None:
        train_counts = np.maximum(1, np.rint(per_seed * (1 - test_fraction) / test_fraction)).astype(np.int64)
    known = np.maximum(1, train_counts)
    # Seeds that train on random parts of a fold differ by these too, which is no noise that a training set leaves out.
    kept = kept_share(known, per_seed, test_fraction=test_fraction)
    common = training_variance(
        class_variances(around, units)[0] * (1 - (1 - stable) * kept),
        units.counts,
        known * units.counts / sizes,
        training_overlap(known, per_seed, n, test_fraction=test_fraction),
        _error_rates(right, tested, units),
    )
    shared = stable * variance * repeated_share(tests, n) + common
    own = _variance_of_one_seed(by_seed, seen, units)
    return ImageError(
        mean, variance**0.5, shared**0.5, float(units.freedom), rotated=True, of_one_seed=min(own, variance * n) ** 0.5
    )


def _error_rates(right: NDArray[np.float64], tested: NDArray[np.bool_], units: Units) -> NDArray[np.float64]:
    """Return (K,), the error rate of each class, to which a few images with the mean over classes are added."""
    wrong = 1 - (np.nansum(right, axis=0) / tested.sum(axis=0))[units.kept]
    labels = units.classes[units.of]
    images = np.bincount(labels)
    errors = np.bincount(labels, wrong)
    rates: NDArray[np.float64] = (errors + BORROWED * (errors / images).mean()) / (images + BORROWED)
    return rates


def _by_unit(
    filled: NDArray[np.float64], tested: NDArray[np.bool_], units: Units
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return (n, U), the mean gain of each unit by seed, 0 where it was not tested, and whether it was."""
    by_seed = np.stack([np.bincount(units.of, own[units.kept]) / units.sizes for own in filled])
    return by_seed, np.stack([np.bincount(units.of, own[units.kept]) > 0 for own in tested])


def _variance_of_one_seed(by_seed: NDArray[np.float64], seen: NDArray[np.bool_], units: Units) -> float:
    """Return the mean over seeds of the variance that the sampling of its own test images gives to a difference.

    Args:
        by_seed: (n, U), see :func:`_by_unit`.
        seen: (n, U).
        units: the units.
    """
    classes = len(units.counts)
    sizes = np.where(seen, units.sizes, 0.0)
    images = sizes @ np.eye(classes)[units.classes]
    gained = np.bincount(units.classes, (sizes * by_seed).sum(axis=0), minlength=classes)
    means = gained / np.maximum(images.sum(axis=0), 1.0)
    weights = sizes / np.maximum(images, 1.0)[:, units.classes] / (images > 0).sum(axis=1, keepdims=True)
    tests = np.bincount(units.classes, seen.sum(axis=0), minlength=classes)
    lost = np.divide(tests, tests - 1, out=np.zeros(classes), where=tests > 1)  # a mean takes a degree of freedom
    squares = (weights * (by_seed - means[units.classes])) ** 2 * lost[units.classes]
    return float(squares.sum() / len(by_seed))


def _training_noise(by_seed: NDArray[np.float64], seen: NDArray[np.bool_], units: Units, variance: float) -> float:
    """Return the part of the variance over images that comes from seeds: what those that test an image differ by.

    Args:
        by_seed: (n, U), see :func:`_by_unit`.
        seen: (n, U).
        units: the units.
        variance: over images.
    """
    tests = seen.sum(axis=0)
    twice = tests > 1
    if not twice.any():
        return UNKNOWN_NOISE * variance
    squares = np.where(seen, by_seed - by_seed.sum(axis=0) / tests, 0.0) ** 2
    # The variance between seeds of an image tested once is taken from the others.
    usual = float(squares[:, twice].sum() / (tests[twice] - 1).sum())
    spread = np.where(twice, squares.sum(axis=0) / np.maximum(tests - 1, 1), usual)
    return float((spread * units.weights**2 / tests).sum())
