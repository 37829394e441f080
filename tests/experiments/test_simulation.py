"""Verdicts on simulated seeds, where the truth is known: how often they err, and how often they find."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
import pytest

from evenhand.experiments.comparison.verdict import METRICS, Difference, conclusion, judge_differences
from evenhand.metrics.paired import balanced_resolution, detectable_difference

OBJECTIVES = ("focal", "cot", "cce")
SEED_NOISE, OWN_NOISE = 0.02, 0.01
SPREAD = sqrt(2) * OWN_NOISE
"""Of the difference between two objectives of one seed: what the seed itself does is common to both."""


def compare(rng: np.random.Generator, seeds: int, gains: Sequence[float] = (0, 0, 0)) -> list[Difference]:
    """One comparison of three objectives with a baseline in two correlated metrics."""
    values: dict[str, dict[str, np.ndarray]] = {metric: {} for metric in METRICS}
    common = {metric: rng.normal(0.7, SEED_NOISE, seeds) for metric in METRICS}
    for name, gain in zip(("ce", *OBJECTIVES), (0, *gains), strict=True):
        shared = rng.normal(0, OWN_NOISE, seeds)
        for metric in METRICS:
            own = sqrt(0.5) * shared + sqrt(0.5) * rng.normal(0, OWN_NOISE, seeds)
            values[metric][name] = common[metric] + gain + own
    return judge_differences(values, "ce")


def tolerance(share: float, trials: int) -> float:
    """Three standard errors of a share that was counted in so many trials."""
    return 3 * sqrt(share * (1 - share) / trials)


def assert_rarely_wrong(seeds: int, trials: int) -> None:
    rng = np.random.default_rng(seeds)
    wrong = held = 0
    for _ in range(trials):
        found = compare(rng, seeds)
        claims = [each for each in found if " over " in each.sentence() or " worse, " in each.sentence()]
        wrong += bool(claims)
        assert claims or conclusion(found, "ce").startswith("No winner: "), (
            "the last line claims no more than the others"
        )
        held += sum(each.low <= 0 <= each.high for each in found)
    assert wrong / trials < 0.05 + tolerance(0.05, trials)
    assert wrong / trials > 0.01, "Holm's correction is cautious, but not this cautious"
    assert held / (6 * trials) == pytest.approx(0.95, abs=tolerance(0.05, trials))


@pytest.mark.parametrize("seeds", [3, 5])
def test_without_a_true_difference_one_is_claimed_in_at_most_5_percent(seeds: int) -> None:
    assert_rarely_wrong(seeds, trials=2000)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 4, 5, 10])
def test_without_a_true_difference_one_is_claimed_in_at_most_5_percent_of_many_comparisons(seeds: int) -> None:
    assert_rarely_wrong(seeds, trials=10_000)


@pytest.mark.parametrize("seeds", [3, 5])
def test_the_interval_holds_a_true_difference_and_its_sign_is_hardly_ever_mistaken(seeds: int) -> None:
    rng, trials = np.random.default_rng(10 + seeds), 1500
    held = mistaken = 0
    for _ in range(trials):
        found = [each for each in compare(rng, seeds, gains=(0, -0.01, 0.02)) if each.objective == "cce"]
        held += sum(each.low <= 0.02 <= each.high for each in found)
        mistaken += any(each.outcome == "worse" for each in found)
    assert held / (2 * trials) == pytest.approx(0.95, abs=tolerance(0.05, trials))
    assert mistaken / trials < 0.002


def test_one_truly_better_objective_does_not_make_others_be_claimed() -> None:
    """What Bonferroni and Holm promise and a test of each alone does not."""
    rng, trials, seeds = np.random.default_rng(0), 2000, 5
    claims = [
        any(each.outcome != "cannot tell" for each in compare(rng, seeds, gains=(0, 0, 0.2)) if each.objective != "cce")
        for _ in range(trials)
    ]
    assert np.mean(claims) < 0.05 + tolerance(0.05, trials)


@pytest.mark.parametrize("seeds", [3, 5])
def test_what_is_said_to_show_is_found_in_at_least_80_percent(seeds: int) -> None:
    rng, trials = np.random.default_rng(20 + seeds), 1000
    gain = detectable_difference(SPREAD, seeds, level=0.05 / 6)
    found = [
        next(each.outcome for each in compare(rng, seeds, gains=(0, 0, gain)) if each.objective == "cce") == "better"
        for _ in range(trials)
    ]
    assert np.mean(found) > 0.8 - tolerance(0.8, trials)
    alone = detectable_difference(SPREAD, seeds)
    too_small = [compare(rng, seeds, gains=(0, 0, alone))[2].outcome == "better" for _ in range(trials)]
    assert np.mean(too_small) < 0.7, "so the level of a single test would promise too much"


@pytest.mark.slow
@pytest.mark.parametrize("images", [20, 100])
def test_recalls_counted_on_images_err_no_more_often(images: int) -> None:
    """Shares of images are no normal numbers: ten classes, of which three are few-shot."""
    rng, trials, seeds, classes = np.random.default_rng(images), 5000, 5, 10
    chances, wrong = np.linspace(0.97, 0.3, classes), 0
    for _ in range(trials):
        recalls = rng.binomial(images, chances, (4, seeds, classes)) / images
        named = dict(zip(("ce", *OBJECTIVES), recalls, strict=True))
        values = {
            "balanced_accuracy": {name: own.mean(1) for name, own in named.items()},
            "few": {name: own[:, -3:].mean(1) for name, own in named.items()},
        }
        wrong += any(each.outcome != "cannot tell" for each in judge_differences(values, "ce"))
    assert wrong / trials < 0.05 + tolerance(0.05, trials)


SUPPORTS = np.array([36, 36, 35, 37, 36, 37, 36, 36, 35, 35])
"""Test images of ten classes that a split makes nearly equal; the last three are few-shot."""


def assert_flips_are_rarely_claimed(seeds: int, trials: int, flips: int = 12) -> None:
    """Between two objectives of a seed so many images flip, either way alike, so that none of them is better."""
    rng, wrong = np.random.default_rng(seeds), 0
    few = slice(7, None)
    steps = {"balanced_accuracy": balanced_resolution(SUPPORTS), "few": balanced_resolution(SUPPORTS[few])}
    for _ in range(trials):
        flipped = rng.binomial(SUPPORTS, flips / SUPPORTS.sum(), (3, seeds, len(SUPPORTS)))
        gains = (2 * rng.binomial(flipped, 0.5) - flipped) / SUPPORTS
        named = {"ce": np.full((seeds, len(SUPPORTS)), 0.5), **dict(zip(OBJECTIVES, 0.5 + gains, strict=True))}
        values = {
            "balanced_accuracy": {name: own.mean(1) for name, own in named.items()},
            "few": {name: own[:, few].mean(1) for name, own in named.items()},
        }
        found = judge_differences(values, "ce", resolutions=steps)
        wrong += any(each.outcome != "cannot tell" for each in found)
    assert wrong / trials < 0.05 + tolerance(0.05, trials)


@pytest.mark.parametrize("seeds", [2, 3])
def test_a_few_images_that_flip_by_chance_are_rarely_claimed(seeds: int) -> None:
    assert_flips_are_rarely_claimed(seeds, trials=1000)


@pytest.mark.slow
@pytest.mark.parametrize("flips", [4, 12, 40])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_images_that_flip_by_chance_are_rarely_claimed_in_many_comparisons(seeds: int, flips: int) -> None:
    assert_flips_are_rarely_claimed(seeds, trials=5000, flips=flips)
