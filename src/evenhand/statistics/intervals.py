"""Confidence intervals of proportions and mean recalls."""

from collections.abc import Iterable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from evenhand.statistics.sampling import find_units, sampling_variance


def wilson_interval(
    share: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Wilson score interval of proportions.

    Args:
        share: proportion of successes, 0 to 1, any shape.
        trials: number of trials, 1 or more, of a shape that broadcasts with it.
        confidence: coverage.

    Returns:
        Lower and upper ends.

    Example:
        >>> from evenhand.statistics.intervals import wilson_interval
        >>> low, high = wilson_interval(0.8, 20)
        >>> round(float(low), 3), round(float(high), 3)
        (0.584, 0.919)
    """
    return _score_interval(share, trials, NormalDist().inv_cdf((1 + confidence) / 2))


def mean_recall_interval(
    correct: NDArray[np.bool_] | NDArray[np.float64],
    targets: NDArray[np.int64],
    classes: Iterable[int] | None = None,
    *,
    groups: NDArray[np.str_] | None = None,
    confidence: float = 0.95,
) -> tuple[float, float] | None:
    """Return the interval of a mean recall over test images, or over groups of them.

    It is Wilson's interval at the effective number of trials: the number at which a proportion has the variance of the
    mean (:func:`evenhand.statistics.sampling.sampling_variance`), within classes, by group, and never 0. With groups,
    Student's t replaces the normal distribution. The model is fixed: other training runs are not covered.

    In simulations with 1 to 50 classes of 1 to 100 test images, 95% intervals covered the true value in 92.8% or more;
    with 10 or more groups per class in 94% or more. A group bootstrap is too narrow there, and gives the same ends with
    many groups.

    Args:
        correct: (N,), whether each image was classified correctly, or the fraction of seeds that did.
        targets: (N,).
        classes: the classes to average over; None: all, for balanced accuracy. Those that do not occur are left out.
        groups: (N,), group of each image; None: images are independent.
        confidence: nominal coverage.

    Returns:
        Lower and upper end; None if none of the classes occurs, or all images are one group.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.intervals import mean_recall_interval
        >>> targets = np.repeat([0, 1], [100, 20])
        >>> correct = np.concatenate([np.arange(100) < 90, np.arange(20) < 12])  # recalls 0.9 and 0.6
        >>> low, high = mean_recall_interval(correct, targets)
        >>> round(low, 2), round(high, 2)
        (0.63, 0.84)
        >>> low, high = mean_recall_interval(np.ones(8, bool), np.repeat([0, 1], [5, 3]))
        >>> round(low, 2), round(high, 2)
        (0.51, 1.0)
    """
    if not 0 < confidence < 1:
        raise ValueError(f"needs a confidence in (0, 1), got {confidence}.")
    units = find_units(targets, groups, classes)
    if units is None or (groups is not None and len(units.classes) < 2):
        return None
    mean, around = units.around(correct.astype(np.float64))
    variance = sampling_variance(around, units, floor=groups is None)
    share = (mean * len(units.classes) + 0.5) / (len(units.classes) + 1)
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    if groups is not None:
        quantile = float(stdtrit(units.freedom, (1 + confidence) / 2))
    low, high = _score_interval(mean, share * (1 - share) / variance, quantile)
    return float(low), float(high)


def class_recall_intervals(
    correct: NDArray[np.bool_] | NDArray[np.float64],
    targets: NDArray[np.int64],
    num_classes: int,
    *,
    groups: NDArray[np.str_] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 95% intervals of the recall of each class over test images, or over groups of them.

    Args:
        correct: (N,), whether each image was classified correctly, or the fraction of seeds that did.
        targets: (N,).
        num_classes: K.
        groups: (N,), group of each image; None: images are independent.

    Returns:
        Lower and upper ends, (K,), NaN for a class without test images, and for one tested on a single group.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.intervals import class_recall_intervals
        >>> class_recall_intervals(np.ones(40, bool), np.repeat([0, 1], 20), num_classes=2)[0].round(2)
        array([0.84, 0.84])
    """
    if groups is None:
        tested = np.bincount(targets, minlength=num_classes)
        share = np.bincount(targets, correct, minlength=num_classes) / np.maximum(tested, 1)
        ends = wilson_interval(share, np.maximum(tested, 1))
        return np.where(tested, ends[0], np.nan), np.where(tested, ends[1], np.nan)
    low, high = np.full(num_classes, np.nan), np.full(num_classes, np.nan)
    for k in np.unique(targets):
        found = mean_recall_interval(correct, targets, [k], groups=groups)
        low[k], high[k] = (np.nan, np.nan) if found is None else found
    return low, high


def _score_interval(
    share: ArrayLike, trials: ArrayLike, quantile: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p, n, z = np.asarray(share, np.float64), np.asarray(trials, np.float64), quantile
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    # The proportion itself must not be outside because of rounding.
    return np.clip(centre - half, 0, p), np.clip(centre + half, p, 1)
