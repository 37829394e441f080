"""The precision of answers, by simulation and against scipy."""

import numpy as np
import pytest
from scipy.stats import binom

from evenhand.statistics.selective import (
    DELTA,
    SEQUENCES,
    precision_images_needed,
    precision_threshold,
    precision_thresholds,
)


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
    assert (found.images, found.needed) == (30, 59)
    with pytest.raises(ValueError, match="below 1, got 1"):
        precision_threshold(np.ones(3), np.ones(3, bool), 1.0)


def by_hand(groups: list[tuple[np.ndarray, np.ndarray]], precision: float) -> list[float | None]:
    """Return the thresholds of groups by scipy's binomial distribution, group by group."""
    sizes = [len(confidences) for confidences, _ in groups]
    order = sorted(range(len(groups)), key=lambda place: -sizes[place])
    enough = [
        number for number in range(1, len(groups) + 1)
        if binom.cdf(0, sizes[order[number - 1]], 1 - precision) <= DELTA / number / len(SEQUENCES)
    ]  # fmt: skip
    share = DELTA / max([*enough, 1])
    found: list[float | None] = [None] * len(groups)
    spare = 0.0
    for rank, place in enumerate(order):
        confidences, correct = groups[place]
        level = (share * (rank < max([*enough, 1])) + spare) / len(SEQUENCES)
        ends, spare = [], 0.0
        for sequence in SEQUENCES:
            tests = [binom.cdf((~correct[confidences >= v]).sum(), (confidences >= v).sum(), 1 - precision)
                     for v in sequence]  # fmt: skip
            passed = next((i for i, p in enumerate(tests) if p > level), len(tests))
            ends += [sequence[passed - 1]] if passed else []
            spare += level * (passed == len(tests))
        found[place] = min(ends, default=None)
    return found


def test_thresholds_of_groups_are_those_of_a_plain_search() -> None:
    random = np.random.default_rng(1)
    kept = []
    for _ in range(60):
        groups = []
        for size in random.integers(20, 300, 3):
            confidences = random.beta(6, 1, size)
            groups.append((confidences, random.random(size) < confidences ** random.choice([0.1, 0.5])))
        expected = by_hand(groups, 0.9)
        assert [found.value for found in precision_thresholds(groups, 0.9)] == expected
        kept += expected
    assert {0.0, None} < set(kept)


def wrong_groups(repeats: int, seed: int) -> float:
    """Return how often a precision of 0.9 is shown for a group whose precision is 0.899 at every confidence.

    A third group is precise and hands its part of delta on; half of all images have the highest confidence.
    """
    random = np.random.default_rng(seed)
    wrong = 0
    for _ in range(repeats):
        groups = []
        for precision, size in zip((0.99, 0.899, 0.899), random.multinomial(3000, [0.4, 0.3, 0.3]), strict=True):
            confidences = np.where(random.random(size) < 0.5, 1.0, random.random(size))
            groups.append((confidences, random.random(size) < precision))
        found = precision_thresholds(groups, 0.9)
        assert found[0].value == 0.0
        wrong += any(threshold.value is not None for threshold in found[1:])
    return wrong / repeats


def test_the_precision_holds_in_all_groups_at_once() -> None:
    found = wrong_groups(400, seed=0)
    assert DELTA / 3 < found <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / 400)


@pytest.mark.slow
def test_the_precision_holds_in_all_groups_at_once_in_many_draws() -> None:
    assert wrong_groups(20_000, seed=1) <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / 20_000)


def test_what_a_group_did_not_need_is_handed_to_smaller_ones() -> None:
    sure, right = np.full(80, 0.9999), np.ones(80, bool)
    for first, expected in ((right, 0.0), (~right, None)):
        found = precision_thresholds([(sure[:60], right[:60]), (sure, first)], 0.95)
        assert found[0].value == expected
    hopeless = (sure[:5], right[:5])
    assert precision_thresholds([(sure[:60], right[:60]), hopeless], 0.95)[0].value == 0.0  # has all of delta
    assert precision_thresholds([(sure[:60], right[:60]), hopeless], 0.95)[1].needed == 59
