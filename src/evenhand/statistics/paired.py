"""Paired differences between two objectives over the same seeds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import chdtri, ndtr, stdtr, stdtrit

LEVEL, POWER = 0.05, 0.8

ROUNDING = 1e-12
"""Relative tolerance below which differences are equal: it is the rounding of means."""


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two paired series, in their own unit."""

    mean: float
    low: float | None
    """Lower end of the 95% paired-t interval; None with one pair, or without spread."""
    high: float | None
    p: float | None
    """Of the two-sided paired t-test; None without an interval."""
    spread: float | None
    """Standard deviation of the differences (n - 1), 0 if they are equal; None with one pair."""
    n: int
    detectable: float | None
    """The smallest true difference detected at 5% with 80% power; None without spread."""


def paired_difference(ours: Sequence[float], baseline: Sequence[float], *, resolution: float = 0.0) -> PairedDifference:
    r"""Compare two series pair by pair.

    .. math:: \bar d \pm t_{0.975,\,n-1} \, s_d / \sqrt n

    If all pairs differ by the same amount, there is no spread and so no test: `low`, `high` and `p` are None. If they
    do not differ at all, the interval is [0, 0] and p is 1.

    One more image in a class of 35 changes nearly as much as one more in a class of 37. A test would take the small
    spread for certainty, so differences that vary by less than one image count as equal.

    Args:
        ours: one value per pair, for instance per seed.
        baseline: the values to compare with, in the same order.
        resolution: the effect of one test image, see :func:`balanced_resolution`; differences that vary by less are
            equal.

    Example:
        >>> from evenhand.statistics.paired import paired_difference
        >>> found = paired_difference([0.82, 0.84, 0.81, 0.85, 0.83], [0.81, 0.82, 0.81, 0.83, 0.82])
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3), round(found.p, 3)
        (0.012, 0.002, 0.022, 0.033)
        >>> round(found.detectable, 3)
        0.014
        >>> paired_difference([0.82], [0.81]).p is None
        True
    """
    values = stack_series([ours, baseline])
    differences, n = values[0] - values[1], len(ours)
    mean, rounding = float(differences.mean()), ROUNDING * float(np.abs(values).max())
    mean = 0.0 if abs(mean) <= rounding else mean
    if n < 2:
        return PairedDifference(mean, None, None, None, None, n, None)
    if np.abs(differences).max() <= rounding:
        return PairedDifference(0.0, 0.0, 0.0, 1.0, 0.0, n, None)
    if np.ptp(differences) <= max(rounding, 0.999 * resolution):  # the tolerance keeps the spread of one image
        return PairedDifference(mean, None, None, None, 0.0, n, None)
    spread = float(differences.std(ddof=1))
    error = spread / math.sqrt(n)
    half = float(stdtrit(n - 1, 1 - LEVEL / 2)) * error
    p = float(2 * stdtr(n - 1, -abs(mean) / error))
    return PairedDifference(mean, mean - half, mean + half, p, spread, n, detectable_difference(spread, n))


def stack_series(series: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return series of equal length as rows, (k, n); all values must be finite."""
    arrays = [np.asarray(each, np.float64) for each in series]
    for each in arrays:
        if each.ndim != 1 or each.shape != arrays[0].shape or not len(each):
            raise ValueError(f"needs series of the same length, got {arrays[0].shape} and {each.shape}.")
    table = np.stack(arrays)
    if not np.isfinite(table).all():
        raise ValueError(f"needs finite values, got {table[~np.isfinite(table)][0]}.")
    return table


def balanced_resolution(test_counts: Iterable[int]) -> float:
    """Return the smallest effect of one test image on a mean recall: that of one image of the largest class.

    Args:
        test_counts: test images per class; classes without any are left out.

    Example:
        >>> from evenhand.statistics.paired import balanced_resolution
        >>> balanced_resolution([25, 50, 0]) == 1 / (2 * 50)
        True
    """
    tested = [count for count in test_counts if count > 0]
    return 1 / (len(tested) * max(tested)) if tested else 0.0


def detectable_difference(spread: float, n: int, *, level: float = LEVEL, power: float = POWER) -> float:
    """Return the smallest true mean difference that the two-sided paired t-test detects with this power.

    Args:
        spread: the standard deviation of the differences, taken to be the true one.
        n: pairs, 2 or more.
        level: of the test.
        power: of the test.

    Example:
        >>> from evenhand.statistics.paired import detectable_difference
        >>> [round(detectable_difference(1.0, n), 2) for n in (2, 3, 5, 10, 100)]
        [11.55, 3.26, 1.68, 1.0, 0.28]
    """
    if n < 2 or not 0 < level < power < 1:
        raise ValueError(f"needs 2 or more pairs and 0 < level < power < 1, got {n}, {level} and {power}.")
    return _noncentrality(n - 1, level, power) * spread / math.sqrt(n)


@lru_cache
def _noncentrality(freedom: int, level: float, power: float) -> float:
    """Return the true difference, in standard errors, that gives this power."""
    critical = float(stdtrit(freedom, 1 - level / 2))

    # The noncentral t as a mixture of normals over the quantiles u of the measured spread: scipy's own `nct` gives NaN
    # at some of the few degrees of freedom that a handful of seeds leave.
    def found(noncentrality: float) -> float:
        def given(u: float) -> float:
            cut = critical * math.sqrt(chdtri(freedom, u) / freedom)
            return float(ndtr(noncentrality - cut) + ndtr(-noncentrality - cut))

        return float(quad(given, 0, 1, limit=200)[0])

    return float(brentq(lambda each: found(each) - power, 0, 2 * critical + 10, xtol=1e-9))


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Adjust the p-values of one family by Holm's method, which controls the familywise error rate.

    Args:
        p: the values; None, where no test was possible, stays None and is not counted.

    Example:
        >>> from evenhand.statistics.paired import holm
        >>> holm([0.01, 0.04, None, 0.03])
        [0.03, 0.06, None, 0.06]
    """
    wrong = [value for value in p if value is not None and not 0 <= value <= 1]
    if wrong:
        raise ValueError(f"p-values are 0 to 1, got {wrong[0]}.")
    tested = sorted((value, place) for place, value in enumerate(p) if value is not None)
    adjusted: list[float | None] = [None] * len(p)
    largest = 0.0
    for rank, (value, place) in enumerate(tested):
        largest = max(largest, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = largest
    return adjusted
