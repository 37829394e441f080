"""Differences from a baseline over seeds, each judged by its own spread and by what is usual among its rivals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from evenhand.statistics.paired import ROUNDING

MOST_WEIGHT = 4.0
"""The usual spread counts for at most so many degrees of freedom, however many rivals there are."""
STRETCH, MOST_STRETCH = 1.2, 0.5
"""An interval is longer on the side of the tail by so much for each unit of skewness: the first over the root of n."""
SHARE = 2 / 3
"""And for this share of those that the rivals have: their spreads are like an objective's own, but not the same."""


@dataclass(frozen=True)
class SeedDifference:
    """How much larger one of two paired series is on average, in their own unit, and how far that can be trusted."""

    mean: float
    n: int
    spread: float | None
    """Standard deviation of the differences (n - 1 below the line), 0 where they are equal; None with one pair."""
    error: float | None = None
    """Standard error of the mean; None where nothing spreads, and so nothing can be tested."""
    freedom: float | None = None
    """Degrees of freedom of that error."""
    tails: tuple[float, float] = (0.0, 0.0)
    """Skewness of the differences towards the lower and the upper end: their own, or the rivals' mean if larger."""

    def stretch(self, side: int) -> float:
        r"""Return by which factor the interval is longer on one side, as differences have their tail there.

        .. math:: 1 + \min(0.5, 1.2 / \sqrt n) \, \max(0, \pm g, \pm \bar g)

        with the skewness g of the differences and its mean over all rivals, who share a skewed baseline. A mean of few
        skewed differences lies too often on the side without the tail, with too small a spread. The factor is a bounded
        form of Johnson's (1978) correction, chosen by simulation: with exponential noise in one of two arms a test at
        5% errs in about 6% at most, without it in up to 8%.

        Args:
            side: -1 for the lower end, 1 for the upper one.
        """
        return 1 + min(MOST_STRETCH, STRETCH / math.sqrt(self.n)) * self.tails[side > 0]

    @property
    def p(self) -> float | None:
        """Of the two-sided t-test; None where nothing can be tested."""
        if self.error is None or self.freedom is None:
            return None
        error = self.error * self.stretch(-1 if self.mean > 0 else 1)
        return min(1.0, float(2 * stdtr(self.freedom, -abs(self.mean) / error)))

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the two-sided interval that misses the true difference with this probability."""
        if self.error is None or self.freedom is None or not level > 0:
            return None
        half = float(stdtrit(self.freedom, 1 - level / 2)) * self.error
        return self.mean - half * self.stretch(-1), self.mean + half * self.stretch(1)


def moderated_differences(
    values: Mapping[str, Sequence[float]], baseline: str, *, resolution: float = 0.0
) -> dict[str, SeedDifference]:
    r"""Compare each series with the baseline, pair by pair, with a variance that borrows from the others.

    A handful of seeds measures a spread badly, and that alone asks for enormous differences. Objectives of one
    comparison spread alike, though not equally, so the variance of each is

    .. math:: s^2 = \frac{w \, s_0^2 + (n - 1) \, s_d^2}{w + n - 1}, \quad w = \min(4, \tfrac23 (k - 1)(n - 1))

    with :math:`w + n - 1` degrees of freedom, where :math:`s_d^2` is that of its own k differences and :math:`s_0^2`
    the usual one: twice the residual variance of all series with seeds as blocks, or the mean of all :math:`s_d^2`
    where that is larger, as it is where the baseline spreads most. With one rival this is the paired t-test's. The
    weight was chosen by simulation, before any data: estimating it from them claims too much. Claims of one family at
    5% in all are wrong in at most 5% where spreads are equal, or differ by a factor of :math:`e^{0.5}` (one standard
    deviation of their logarithms), with noise of heavy tails and with ties; fixed spreads that differ by a factor of 3
    cost up to 7%. Intervals are longer on the side where differences have a tail (:meth:`SeedDifference.stretch`).

    Pairs that all differ by the same amount have no spread to measure that amount with, and are not tested; neither do
    they count for what is usual.

    Args:
        values: for each objective a value a seed; the same seeds in the same order everywhere.
        baseline: which one the others are compared with.
        resolution: what one test image changes; differences that vary by less are equal.

    Returns:
        A difference for each of the others.

    Example:
        >>> from evenhand.statistics.moderated_t import moderated_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> found = moderated_differences(values, "ce")
        >>> {name: (round(each.mean, 3), round(each.p, 3)) for name, each in found.items()}
        {'cce': (0.02, 0.001), 'cot': (0.007, 0.199)}
    """
    names = [baseline, *(name for name in values if name != baseline)]
    table = _as_table([values[name] for name in names])
    n = table.shape[1]
    rounding = ROUNDING * float(np.abs(table).max())
    differences = table[1:] - table[0]
    means = differences.mean(axis=1)
    means[np.abs(means) <= rounding] = 0.0
    least = max(rounding, 0.999 * resolution)  # a whole image is a spread, however it is rounded
    spreads = np.ptp(differences, axis=1) > least
    if n < 2 or not spreads.any():
        return {
            name: SeedDifference(float(mean), n, None if n < 2 else 0.0)
            for name, mean in zip(names[1:], means, strict=True)
        }
    variances = differences.var(axis=1, ddof=1)
    usual, weight = _usual_variance(table[[True, *spreads]], variances[spreads])
    errors = np.sqrt((weight * usual + (n - 1) * variances) / (weight + n - 1) / n)
    cubes = ((differences - differences.mean(axis=1, keepdims=True)) ** 3).mean(axis=1)
    skewness = cubes / np.where(variances > 0, variances * (n - 1) / n, 1.0) ** 1.5
    usual_skewness = float(skewness[spreads].mean())
    found = {}
    for place, name in enumerate(names[1:]):
        mean, own = float(means[place]), float(skewness[place])
        if not spreads[place]:
            found[name] = SeedDifference(mean, n, 0.0)
            continue
        tails = max(0.0, -own, -usual_skewness), max(0.0, own, usual_skewness)
        spread, error = math.sqrt(variances[place]), float(errors[place])
        found[name] = SeedDifference(mean, n, spread, error, weight + n - 1, tails)
    return found


def _usual_variance(series: NDArray[np.float64], variances: NDArray[np.float64]) -> tuple[float, float]:
    """Return the variance of differences that is usual, and its weight in degrees of freedom.

    Args:
        series: (1 + k, n), the baseline first.
        variances: (k,), of the differences of each.
    """
    rivals, n = len(series) - 1, series.shape[1]
    if rivals < 2:
        return 0.0, 0.0
    residual = series - series.mean(axis=1, keepdims=True)
    residual -= residual.mean(axis=0)
    pooled = 2 * float((residual**2).sum()) / (rivals * (n - 1))
    return max(pooled, float(variances.mean())), min(MOST_WEIGHT, SHARE * (rivals - 1) * (n - 1))


def _as_table(series: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    first, *others = (np.asarray(own, np.float64) for own in series)
    for own in (first, *others):
        if own.ndim != 1 or own.shape != first.shape or not len(own):
            raise ValueError(f"needs two series of the same length, got {own.shape} and {first.shape}.")
    table = np.stack([first, *others])
    if not np.isfinite(table).all():
        raise ValueError(f"needs finite values, got {table[~np.isfinite(table)][0]}.")
    return table
