"""The precision of answers, by simulation and against scipy."""

import numpy as np
import pytest
from scipy.stats import binom

from evenhand.statistics.selective import DELTA, SEQUENCES, precision_images_needed, precision_threshold


@pytest.mark.parametrize("precision", [0.5, 0.8, 0.95, 0.99])
def test_images_needed_is_where_the_binomial_test_rejects(precision: float) -> None:
    level, needed = DELTA / len(SEQUENCES), precision_images_needed(precision)
    assert binom.cdf(0, needed, 1 - precision) <= level < binom.cdf(0, needed - 1, 1 - precision)


def test_the_threshold_is_that_of_a_plain_search() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        confidences = random.beta(3, 1, 300)
        correct = random.random(300) < confidences
        shown = []
        for sequence in SEQUENCES:
            for value in sequence:
                kept = correct[confidences >= value]
                if binom.cdf(int((~kept).sum()), len(kept), 0.2) > DELTA / len(SEQUENCES):
                    break
                shown.append(value)
        assert precision_threshold(confidences, correct, 0.8).value == (min(shown) if shown else None)


def wrong_thresholds(repeats: int, seed: int) -> float:
    """Return how often a threshold of too low a precision is shown; precision is not monotone in confidence."""
    random = np.random.default_rng(seed)
    grid = np.linspace(0, 1, 2001)
    truth = np.where(grid > 0.97, 0.86, np.where(grid > 0.6, 0.97, 0.55))  # overconfident at the top
    precise = np.array([truth[grid >= value].mean() for value in grid])
    wrong = 0
    for _ in range(repeats):
        place = random.integers(0, len(grid), 400)
        found = precision_threshold(grid[place], random.random(400) < truth[place], 0.9).value
        wrong += found is not None and precise[np.searchsorted(grid, found - 1e-9)] < 0.9
    return wrong / repeats


def test_the_precision_holds() -> None:
    assert wrong_thresholds(600, seed=0) <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / 600)


@pytest.mark.slow
def test_the_precision_holds_in_many_draws() -> None:
    assert wrong_thresholds(20_000, seed=1) <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / 20_000)


def test_a_precision_out_of_reach_has_no_threshold() -> None:
    found = precision_threshold(np.linspace(0.5, 1, 30), np.ones(30, bool), 0.95)
    assert found.value is None
    assert (found.images, found.needed) == (30, 67)
    with pytest.raises(ValueError, match="below 1, got 1"):
        precision_threshold(np.ones(3), np.ones(3, bool), 1.0)
