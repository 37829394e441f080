"""Prediction sets against a plain reference, and their coverage by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.statistics.conformal import Calibration, images_needed, leave_one_out_sets

COVERAGES = st.sampled_from([0.5, 0.8, 0.9, 0.95])


def reference(own: list[float], score: float, coverage: float) -> bool:
    """Whether a class is in a set, by the conformal quantile of the calibration scores of that class alone."""
    n = len(own)
    rank = math.ceil(round((n + 1) * coverage, 9))  # of the nonconformity scores, -score
    if rank > n:
        return True
    return -score <= sorted(-each for each in own)[rank - 1]


@given(seed=st.integers(0, 10_000), folds=st.integers(1, 3), coverage=COVERAGES, values=st.sampled_from([4, 1000]))
@settings(deadline=None, max_examples=60)
def test_sets_match_a_plain_reference(seed: int, folds: int, coverage: float, values: int) -> None:
    """Few values make ties. With several folds, the ranks of an image in each are added."""
    random = np.random.default_rng(seed)
    own, targets, new = [], [], []
    for _ in range(folds):
        size = int(random.integers(1, 40))
        own.append(random.integers(0, values, size) / values)
        targets.append(random.integers(0, 3, size))
        new.append(random.integers(0, values, (6, 3)) / values)
    found = Calibration(tuple(own), tuple(targets), 3).sets(new, coverage)
    for i in range(6):
        for k in range(3):
            if folds == 1:
                expected = reference(own[0][targets[0] == k].tolist(), new[0][i, k], coverage)
            else:
                below = sum((own[r][targets[r] == k] <= new[r][i, k]).sum() for r in range(folds))
                n = sum((targets[r] == k).sum() for r in range(folds))
                expected = (below + 1) / (n + 1) > 1 - coverage + 1e-9
            assert found[i, k] == expected


@given(seed=st.integers(0, 10_000), coverage=COVERAGES)
@settings(deadline=None, max_examples=30)
def test_thresholds_give_the_same_sets(seed: int, coverage: float) -> None:
    random = np.random.default_rng(seed)
    calibration = Calibration((random.random(60),), (random.integers(0, 4, 60),), 4)
    new = random.random((20, 4))
    np.testing.assert_array_equal(calibration.sets([new], coverage), new >= calibration.thresholds(coverage))
    assert set(calibration.too_few(coverage)) == set(np.flatnonzero(np.isinf(calibration.thresholds(coverage))))


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_images_needed_is_the_first_n_of_the_formula(coverage: float) -> None:
    enough = [n for n in range(1, 200) if math.ceil(round((n + 1) * coverage, 9)) <= n]
    assert images_needed(coverage) == enough[0]


def test_left_out_images_are_calibrated_on_the_others() -> None:
    random = np.random.default_rng(0)
    scores, targets = random.random((50, 3)), random.integers(0, 3, 50)
    found = leave_one_out_sets(scores, targets, 0.8)
    for i in range(50):
        others = np.arange(50) != i
        own = scores[others, targets[others]]
        one = Calibration((own,), (targets[others],), 3).sets([scores[i : i + 1]], 0.8)
        np.testing.assert_array_equal(found[i], one[0])


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_coverage_is_between_0_and_1(coverage: float) -> None:
    with pytest.raises(ValueError, match=r"above 0 and below 1, got"):
        images_needed(coverage)


# Coverage by simulation: a classifier that neglects its rare classes

COUNTS = (200, 40, 12, 9, 5)
SHIFTS = np.array([2.0, 1.0, 0.0, -0.5, -1.0])


def draw(random: np.random.Generator, targets: NDArray[np.int64], skill: float = 1.5) -> NDArray[np.float64]:
    """Return probabilities of images of these classes, with a bias towards frequent classes."""
    logits = random.normal(size=(len(targets), len(COUNTS))) + SHIFTS
    logits[np.arange(len(targets)), targets] += skill
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(odds / odds.sum(1, keepdims=True))


def covered(repeats: int, folds: int, coverage: float, seed: int) -> NDArray[np.float64]:
    """Return the mean coverage of each class over calibration draws; models of folds differ in skill."""
    random = np.random.default_rng(seed)
    test = np.repeat(np.arange(len(COUNTS)), 40)
    total = np.zeros(len(COUNTS))
    for _ in range(repeats):
        own, targets, new = [], [], []
        skills = [1.5] if folds == 1 else random.uniform(0.5, 3, folds)
        for fold, skill in enumerate(skills):
            mine = np.repeat(np.arange(len(COUNTS)), [len(range(fold, n, folds)) for n in COUNTS])
            p = draw(random, mine, skill)
            own.append(p[np.arange(len(mine)), mine])
            targets.append(mine)
            new.append(draw(random, test, skill))
        inside = Calibration(tuple(own), tuple(targets), len(COUNTS)).sets(new, coverage)[np.arange(len(test)), test]
        total += inside.reshape(len(COUNTS), 40).mean(1)
    return np.asarray(total / repeats)


def check_coverage(repeats: int, folds: int, coverage: float, seed: int) -> None:
    found = covered(repeats, folds, coverage, seed)
    calibration = Calibration(
        tuple(np.zeros(sum(COUNTS)) for _ in range(folds)),
        tuple(np.repeat(np.arange(5), COUNTS) if fold == 0 else np.zeros(0, np.int64) for fold in range(folds)),
        len(COUNTS),
    )
    error = 3 * np.sqrt(
        0.25 / 8 / repeats
    )  # a draw of 9 calibration images moves the coverage of its class by about 0.1
    assert (found >= calibration.guaranteed(coverage) - error).all(), found
    assert found[-1] == (1.0 if images_needed(coverage) > COUNTS[-1] else found[-1])
    if folds == 1:
        exact = [math.floor(round((1 - coverage) * (n + 1), 9)) / (n + 1) for n in COUNTS]
        np.testing.assert_allclose(found, 1 - np.array(exact), atol=error)


@pytest.mark.parametrize(("folds", "coverage"), [(1, 0.9), (1, 0.8), (5, 0.9)])
def test_each_class_is_covered(folds: int, coverage: float) -> None:
    check_coverage(150, folds, coverage, seed=folds)


@pytest.mark.slow
@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("folds", [1, 3, 10])
def test_each_class_is_covered_in_many_draws(folds: int, coverage: float) -> None:
    check_coverage(4000, folds, coverage, seed=10 + folds)
