"""Sampling error of a difference between two objectives over test images."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.statistics.sampling import Units, find_units, sampling_variance


@dataclass(frozen=True)
class ImageError:
    """Sampling error over test images of a difference of two mean recalls."""

    mean: float
    """The measured difference, -1 to 1."""
    error: float
    """Its standard error over test images or groups of them, for the given models."""
    shared: float
    """The part of that error that is common to all seeds and not training noise."""
    freedom: float
    """Units (images or groups) minus one per class."""


def paired_image_error(
    ours: NDArray[np.bool_] | NDArray[np.float64],
    baseline: NDArray[np.bool_] | NDArray[np.float64],
    targets: NDArray[np.int64],
    *,
    groups: NDArray[np.str_] | None = None,
    classes: Iterable[int] | None = None,
) -> ImageError | None:
    """Estimate the sampling error over test images of the mean gain over seeds.

    The gain of an image is the fraction of seeds that classify it correctly, minus that of the baseline. The difference
    is the mean over classes of the mean gain; its variance over images, or groups of them, is that of
    :func:`evenhand.statistics.sampling.sampling_variance`. Part of it is training noise that the mean over a few seeds
    leaves in each image, estimated from the variance between seeds within units. The rest is shared by all seeds.

    Seeds may have different test images. Their differences then vary by images too, so an error over seeds already
    contains a part of the shared error: all of it if no image is tested twice, and :math:`(n - r) / ((n - 1) r)` of it
    if an image is tested r times on average. That part is not counted again.

    Args:
        ours: (n, N), whether each image was classified correctly, per seed, or a fraction; NaN: not tested with this
            seed.
        baseline: (n, N), the same for the baseline, with the same seeds and images.
        targets: (N,).
        groups: (N,), group of each image; None: images are independent.
        classes: the classes to average over; None: all. Those that do not occur are left out.

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
        return _of_rotated(gains, units)
    found = [units.around(own) for own in gains]
    means, around = [mean for mean, _ in found], np.stack([each for _, each in found])
    variance = sampling_variance(around.mean(axis=0), units)
    noise = 0.0
    if len(around) > 1:
        noise = float((around.var(axis=0, ddof=1) * units.weights**2).sum() / len(around))
    shared = max(0.0, variance - noise)
    return ImageError(float(np.mean(means)), variance**0.5, shared**0.5, float(units.freedom))


def _of_rotated(gains: NDArray[np.float64], units: Units) -> ImageError:
    """Return the same for gains (n, N) that are NaN where an image was not tested; a unit is tested as a whole."""
    tested = ~np.isnan(gains)
    filled = np.where(tested, gains, 0.0)
    mean, around = units.around(filled.sum(axis=0) / tested.sum(axis=0))
    variance = sampling_variance(around, units)
    by_seed = np.stack([np.bincount(units.of, own[units.kept]) / units.sizes for own in filled])
    seen = np.stack([np.bincount(units.of, own[units.kept]) > 0 for own in tested])
    tests = seen.sum(axis=0)
    squares = np.where(seen, by_seed - by_seed.sum(axis=0) / tests, 0.0) ** 2
    # The variance between seeds of an image tested once is taken from the others.
    twice = tests > 1
    usual = float(squares[:, twice].sum() / (tests[twice] - 1).sum()) if twice.any() else 0.0
    spread = np.where(twice, squares.sum(axis=0) / np.maximum(tests - 1, 1), usual)
    noise = float((spread * units.weights**2 / tests).sum())
    n, r = len(gains), float(tests.mean())
    left = max(0.0, 1 - (n - r) / ((n - 1) * r))
    return ImageError(mean, variance**0.5, (max(0.0, variance - noise) * left) ** 0.5, float(units.freedom))
