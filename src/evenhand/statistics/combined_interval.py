"""What seeds and test images together say about one difference."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import stdtrit

from evenhand.statistics.image_sampling import ImageError
from evenhand.statistics.moderated_t import SeedDifference

PROBABLY = 0.8416
"""Standard errors beyond what is needed, so that a true difference is found in 80%."""
MOST_SEEDS = 100
"""More are not thought about."""
NEVER, ALWAYS = 1e-12, 1 - 1e-12


@dataclass(frozen=True)
class Evidence:
    r"""A difference with both kinds of noise: that of training, and that of the test images that happened to be drawn.

    The interval at a level is :math:`\bar d \pm h` with

    .. math:: h^2 = \max\bigl(k^2 t_s^2 e_s^2 + t_i^2 u_i^2, \; t_i^2 e_i^2\bigr)

    from the standard errors over seeds :math:`e_s`, over images :math:`e_i`, and of what all seeds share on these
    images :math:`u_i`, the quantiles t of their degrees of freedom, and k, which is above 1 on the side where seeds
    have a tail. Where seeds rotate, :math:`u_i` includes the training images they share, and the second term is left
    out: :math:`e_s` includes the sampling of images. It holds wherever each of the two intervals
    does, and also where both noises are of a size: there, asking both to exclude 0 claims too much (9% for 5% in
    simulations).
    """

    seeds: SeedDifference
    images: ImageError | None = None

    def half_width(self, level: float, side: int) -> float | None:
        """Return h at a level in (0, 1) of the lower end (side -1) or the upper one (1); None without a spread."""
        over_seeds = self.seeds.interval(level)
        if over_seeds is None:
            return None
        half = self.seeds.mean - over_seeds[0] if side < 0 else over_seeds[1] - self.seeds.mean
        if self.images is None:
            return half
        quantile = float(stdtrit(self.images.freedom, 1 - level / 2))
        both = math.hypot(half, quantile * self.images.shared)
        return both if self.images.rotated else max(both, quantile * self.images.error)

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the interval that misses the true difference with this probability at most."""
        below, above = self.half_width(level, -1), self.half_width(level, 1)
        return None if below is None or above is None else (self.seeds.mean - below, self.seeds.mean + above)

    @property
    def p(self) -> float | None:
        """The level at which the interval just reaches 0; None where nothing can be tested."""
        if self.images is None or self.seeds.p is None:
            return self.seeds.p
        size, side = abs(self.seeds.mean), -1 if self.seeds.mean > 0 else 1

        def beyond(level: float) -> float:
            return (self.half_width(level, side) or 0.0) - size

        if beyond(ALWAYS) >= 0:
            return 1.0
        return NEVER if beyond(NEVER) <= 0 else float(brentq(beyond, NEVER, ALWAYS, xtol=1e-14))

    def more_seeds(self, level: float, margin: float) -> int | None:
        """Return how many more seeds would probably decide, if the true difference and spread are those seen.

        Args:
            level: at which it will be tested.
            margin: differences that are smaller do not matter.

        Returns:
            None where up to 100 would not: the noise of the test images is too large, or the difference lies too close
            to 0 and to the margin at once.
        """
        seen = self.seeds
        if seen.error is None or seen.freedom is None or not level > 0:
            return None
        n = np.arange(seen.n + 1, seen.n + MOST_SEEDS + 1)
        error = seen.error * np.sqrt(seen.n / n)
        longer = seen.stretch(-1 if seen.mean > 0 else 1)
        half = stdtrit(seen.freedom + n - seen.n, 1 - level / 2) * error * longer
        if self.images is not None:
            quantile = float(stdtrit(self.images.freedom, 1 - level / 2))
            half = np.hypot(half, quantile * self.images.shared)
        needed = half + PROBABLY * error
        decided = np.flatnonzero((abs(seen.mean) > needed) | (abs(seen.mean) + needed < margin))
        return int(decided[0]) + 1 if len(decided) else None
