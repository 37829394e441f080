"""The interval with the noise of seeds and of test images: how many more seeds would decide."""

from math import hypot, sqrt

import numpy as np
from scipy.stats import norm, t

from evenhand.statistics.combined_interval import MOST_SEEDS, Evidence
from evenhand.statistics.image_sampling import ImageError
from evenhand.statistics.moderated_t import SeedDifference


def counted(found: Evidence, level: float, margin: float) -> int | None:
    """Try one number of seeds after the other."""
    seeds, images = found.seeds, found.images
    for more in range(1, MOST_SEEDS + 1):
        error = seeds.error * sqrt(seeds.n / (seeds.n + more))
        half = t.ppf(1 - level / 2, seeds.freedom + more) * error * seeds.stretch(-1 if seeds.mean > 0 else 1)
        if images is not None:
            half = hypot(half, t.ppf(1 - level / 2, images.freedom) * images.shared)
        needed = half + norm.ppf(0.8) * error
        if abs(seeds.mean) > needed or abs(seeds.mean) + needed < margin:
            return more
    return None


def test_more_seeds_are_the_fewest_that_would_decide() -> None:
    rng, numbers = np.random.default_rng(0), []
    for _ in range(100):
        n, mean, error = int(rng.integers(2, 13)), rng.normal(0, 0.01), rng.uniform(0.001, 0.01)
        tails = max(0.0, rng.normal()), max(0.0, rng.normal())
        seeds = SeedDifference(mean, n, error * sqrt(n), error, n - 1 + rng.uniform(0, 4), tails)
        images = ImageError(mean, error, rng.uniform(0, 0.003), 50.0) if rng.random() < 0.5 else None
        found, level = Evidence(seeds, images), float(rng.choice([0.01, 0.05]))
        numbers.append(counted(found, level, 0.01))
        assert found.more_seeds(level, 0.01) == numbers[-1]
    known = [each for each in numbers if each is not None]
    assert (min(known), len(known) < len(numbers)) == (1, True)
    assert max(known) > MOST_SEEDS / 2
