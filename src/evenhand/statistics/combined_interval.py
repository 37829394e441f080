"""One interval for a difference, with the noise of seeds and of test images."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from scipy.optimize import brentq
from scipy.special import stdtrit

from evenhand.statistics.image_sampling import ImageError
from evenhand.statistics.moderated_t import SeedDifference

PROBABLY = 0.8416
"""Normal quantile of 80% power."""
MOST_SEEDS = 100
"""The most additional seeds considered."""
LEAST_P, MOST_P = 1e-12, 1 - 1e-12


@dataclass(frozen=True)
class Evidence:
    r"""A difference with two sources of noise: training (seeds) and the sampling of test images.

    The interval at a level is :math:`\bar d \pm h` with

    .. math:: h^2 = \max\bigl(k^2 t_s^2 e_s^2 + t_i^2 u_i^2, \; t_i^2 e_i^2\bigr)

    from the standard errors over seeds :math:`e_s`, over images :math:`e_i`, and of the part of the image error that is
    common to all seeds :math:`u_i`, with t quantiles of their degrees of freedom, and k, above 1 on the side where
    differences over seeds have a tail. It covers wherever each of the two intervals does, and also where both sources
    are of similar size: there, requiring both intervals to exclude 0 has a type I error of 9% at a nominal 5% in
    simulations. Where seeds rotate through the images, :math:`u_i` includes the training images that seeds share, and
    the second term is left out, as :math:`e_s` includes the sampling of images.
    """

    seeds: SeedDifference
    images: ImageError | None = None

    @property
    def skewed(self) -> float:
        r"""The part of the correction for skewness that is needed, 0 to 1.

        A sum over many images is nearly symmetric, so where seeds rotate only what images do not explain can be skewed:
        with v of the variance over seeds from the sampling of a seed's own images, :math:`(1 - v)^{3/2}` of the
        skewness remains. Without rotation a spread over seeds holds no such part, and this is 1.
        """
        if self.images is None or not self.images.rotated or not self.seeds.error:
            return 1.0
        explained = self.images.of_one_seed**2 / (self.seeds.n * self.seeds.error**2)
        return float((1 - min(1.0, explained)) ** 1.5)

    def half_width(self, level: float, side: int) -> float | None:
        """Return h at a level in (0, 1) of the lower end (side -1) or the upper one (1); None if seeds do not vary."""
        over_seeds = self.seeds.interval(level, self.skewed)
        if over_seeds is None:
            return None
        half = self.seeds.mean - over_seeds[0] if side < 0 else over_seeds[1] - self.seeds.mean
        if self.images is None:
            return half
        quantile = float(stdtrit(self.images.freedom, 1 - level / 2))
        both = math.hypot(half, quantile * self.images.shared)
        return both if self.images.rotated else max(both, quantile * self.images.error)

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the interval of confidence 1 - level."""
        below, above = self.half_width(level, -1), self.half_width(level, 1)
        return None if below is None or above is None else (self.seeds.mean - below, self.seeds.mean + above)

    @cached_property
    def p(self) -> float | None:
        """The level at which the interval just reaches 0; None if no test is possible."""
        if self.images is None or self.seeds.p is None:
            return self.seeds.p
        size, side = abs(self.seeds.mean), -1 if self.seeds.mean > 0 else 1

        def beyond(level: float) -> float:
            return (self.half_width(level, side) or 0.0) - size

        if beyond(MOST_P) >= 0:
            return 1.0
        return LEAST_P if beyond(LEAST_P) <= 0 else float(brentq(beyond, LEAST_P, MOST_P, xtol=1e-14))

    def more_seeds(self, level: float, margin: float) -> int | None:
        """Return how many more seeds would decide with 80% power, if difference and spread are as measured.

        Args:
            level: of the test.
            margin: smaller differences do not matter.

        Returns:
            None if 100 more would not: the noise of the test images is too large, or the difference is close to both 0
            and the margin.
        """
        seen = self.seeds
        if seen.error is None or seen.freedom is None or not level > 0:
            return None
        error, freedom, size = seen.error, seen.freedom, abs(seen.mean)
        longer = seen.stretch(-1 if seen.mean > 0 else 1, self.skewed)
        of_images = 0.0
        if self.images is not None:
            of_images = float(stdtrit(self.images.freedom, 1 - level / 2)) * self.images.shared

        def decides(more: int) -> bool:
            smaller = error * math.sqrt(seen.n / (seen.n + more))
            half = math.hypot(float(stdtrit(freedom + more, 1 - level / 2)) * smaller * longer, of_images)
            needed = half + PROBABLY * smaller
            return size > needed or size + needed < margin

        if not decides(MOST_SEEDS):
            return None
        # `needed` falls with the number of seeds, so whatever is above the first one decides too.
        return bisect_left(range(1, MOST_SEEDS), True, key=decides) + 1
