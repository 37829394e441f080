"""Intervals: how far a measured share can be from the true one."""

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray


def wilson_interval(
    share: ArrayLike, trials: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Wilson score interval of shares measured on so many trials each.

    Args:
        share: of successes, 0 to 1, any shape.
        trials: how many there were, 1 or more, of a shape that broadcasts with it.
        confidence: how often such an interval holds the true share.

    Returns:
        Lower and upper ends.

    Example:
        >>> from evenhand.metrics.intervals import wilson_interval
        >>> low, high = wilson_interval(0.8, 20)
        >>> round(float(low), 3), round(float(high), 3)
        (0.584, 0.919)
    """
    p, n = np.asarray(share, np.float64), np.asarray(trials, np.float64)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
