"""Moderated t-tests: differences from a baseline over seeds, with variances shrunk towards a pooled one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from evenhand.statistics.paired import ROUNDING, stack_series

MOST_WEIGHT = 4.0
"""The most degrees of freedom of the pooled variance, however many objectives there are."""
WEIGHT = 2 / 3
"""The fraction of the other objectives' degrees of freedom that it counts for: spreads are similar, not equal."""
STRETCH, MOST_STRETCH = 1.2, 0.5
"""How much longer an interval is on the side of the tail per unit of skewness: the first over the root of n, at most
the second."""


@dataclass(frozen=True)
class SeedDifference:
    """The mean difference of two paired series over seeds, in their own unit, with its standard error."""

    mean: float
    n: int
    spread: float | None
    """Standard deviation of the differences (n - 1), 0 if they are equal; None with one pair."""
    error: float | None = None
    """Standard error of the mean; None without spread: no test is possible."""
    freedom: float | None = None
    """Degrees of freedom of that error."""
    tails: tuple[float, float] = (0.0, 0.0)
    """Skewness of the differences towards the lower and the upper end: their own, or the rivals' mean if larger."""

    def stretch(self, side: int, skewed: float = 1.0) -> float:
        r"""Return by which factor the interval is longer on one side, as differences have their tail there.

        .. math:: 1 + \min(0.5, 1.2 / \sqrt n) \, \max(0, \pm g, \pm \bar g)

        with the skewness g of the differences and its mean over all rivals, who share a skewed baseline. A mean of few
        skewed differences lies too often on the side without the tail, with too small a spread. The factor is a bounded
        form of Johnson's (1978) correction, chosen by simulation: with exponential noise in one of two arms a test at
        5% errs in about 6% at most, without it in up to 8%.

        Args:
            side: -1 for the lower end, 1 for the upper one.
            skewed: the part of the excess over 1 that is applied, 0 to 1.
        """
        return 1 + min(MOST_STRETCH, STRETCH / math.sqrt(self.n)) * self.tails[side > 0] * skewed

    @cached_property
    def p(self) -> float | None:
        """Of the two-sided t-test; None if no test is possible."""
        if self.error is None or self.freedom is None:
            return None
        error = self.error * self.stretch(-1 if self.mean > 0 else 1)
        return min(1.0, float(2 * stdtr(self.freedom, -abs(self.mean) / error)))

    def interval(self, level: float, skewed: float = 1.0) -> tuple[float, float] | None:
        """Return the two-sided interval of confidence 1 - level; `skewed` as for :meth:`stretch`."""
        if self.error is None or self.freedom is None or not level > 0:
            return None
        half = float(stdtrit(self.freedom, 1 - level / 2)) * self.error
        return self.mean - half * self.stretch(-1, skewed), self.mean + half * self.stretch(1, skewed)


def moderated_differences(
    values: Mapping[str, Sequence[float]], baseline: str, *, resolution: float = 0.0
) -> dict[str, SeedDifference]:
    r"""Compare each series with the baseline, pair by pair, with a variance shrunk towards that of all.

    A few seeds give a poor estimate of the spread, so a plain t-test detects only large differences. Objectives of one
    comparison have similar spreads, so the variance of each is

    .. math:: s^2 = \frac{w \, s_0^2 + (n - 1) \, s_d^2}{w + n - 1}, \quad w = \min(4, \tfrac23 (k - 1)(n - 1))

    with :math:`w + n - 1` degrees of freedom, where :math:`s_d^2` is the variance of its own differences, k the
    number of objectives without the baseline, and :math:`s_0^2` the pooled variance: twice the residual variance of all
    series with seeds as blocks, or the mean of all :math:`s_d^2` if that is larger, as it is if the baseline varies
    most. With k = 1 this is the paired t-test. The weight was chosen by simulation, before any data: estimating it from
    the data inflates the error rate. The familywise error at 5% is at most 5% if spreads are equal or differ by a
    factor of :math:`e^{0.5}` (one standard deviation of their logarithms), with heavy-tailed noise and with ties; fixed
    spreads that differ by a factor of 3 give up to 7%. Intervals are longer on the side where differences have a tail
    (:meth:`SeedDifference.stretch`).

    Series whose differences are all equal have no spread: they are not tested, and do not enter the pooled variance.

    Args:
        values: for each objective one value per seed; the same seeds in the same order everywhere.
        baseline: the objective that the others are compared with.
        resolution: the effect of one test image; differences that vary by less are equal.

    Returns:
        The difference of each of the others.

    Example:
        >>> from evenhand.statistics.moderated_t import moderated_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> found = moderated_differences(values, "ce")
        >>> {name: (round(each.mean, 3), round(each.p, 3)) for name, each in found.items()}
        {'cce': (0.02, 0.001), 'cot': (0.007, 0.199)}
    """
    names = [baseline, *(name for name in values if name != baseline)]
    table = stack_series([values[name] for name in names])
    n = table.shape[1]
    rounding = ROUNDING * float(np.abs(table).max())
    differences = table[1:] - table[0]
    means = differences.mean(axis=1)
    around = differences - means[:, None]
    means[np.abs(means) <= rounding] = 0.0
    least = max(rounding, 0.999 * resolution)  # the tolerance keeps the spread of one image
    spreads = np.ptp(differences, axis=1) > least
    if n < 2 or not spreads.any():
        return {
            name: SeedDifference(float(mean), n, None if n < 2 else 0.0)
            for name, mean in zip(names[1:], means, strict=True)
        }
    variances = (around**2).sum(axis=1) / (n - 1)
    pooled, weight = _pooled_variance(table[[True, *spreads]], variances[spreads])
    errors = np.sqrt((weight * pooled + (n - 1) * variances) / (weight + n - 1) / n)
    skewness = (around**3).mean(axis=1) / np.where(variances > 0, variances * (n - 1) / n, 1.0) ** 1.5
    mean_skewness = float(skewness[spreads].mean())
    found = {}
    for place, name in enumerate(names[1:]):
        mean, own = float(means[place]), float(skewness[place])
        if not spreads[place]:
            found[name] = SeedDifference(mean, n, 0.0)
            continue
        tails = max(0.0, -own, -mean_skewness), max(0.0, own, mean_skewness)
        spread, error = math.sqrt(variances[place]), float(errors[place])
        found[name] = SeedDifference(mean, n, spread, error, weight + n - 1, tails)
    return found


def _pooled_variance(series: NDArray[np.float64], variances: NDArray[np.float64]) -> tuple[float, float]:
    """Return the pooled variance of differences from series[0], and its weight in degrees of freedom."""
    rivals, n = len(series) - 1, series.shape[1]
    if rivals < 2:
        return 0.0, 0.0
    residual = series - series.mean(axis=1, keepdims=True)
    residual -= residual.mean(axis=0)
    pooled = 2 * float((residual**2).sum()) / (rivals * (n - 1))
    return max(pooled, float(variances.mean())), min(MOST_WEIGHT, WEIGHT * (rivals - 1) * (n - 1))
