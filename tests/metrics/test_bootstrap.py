"""The bootstrap's interval against drawing images, against exact distributions, and how often it holds the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from evenhand.metrics.bootstrap import mean_recall_interval
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix

from .cases import confusion_of

LEVELS = (0.025, 0.975)


def exact_distribution(hits: list[int], supports: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Every value the resampled mean recall can take, in order, and its probability."""
    values, chances = np.zeros(1), np.ones(1)
    for hit, n in zip(hits, supports, strict=True):
        drawn = np.arange(n + 1)
        values = np.add.outer(values, drawn / n / len(hits)).ravel()
        chances = np.multiply.outer(chances, binom.pmf(drawn, n, hit / n)).ravel()
    values, place = np.unique(values.round(9), return_inverse=True)
    return values, np.bincount(place, chances)


@pytest.mark.parametrize(
    ("hits", "supports"),
    [([40, 12, 5], [50, 20, 9]), ([4, 1], [6, 4]), ([90, 30, 7, 3], [100, 40, 20, 5]), ([5, 3], [5, 8])],
)
def test_equals_the_exact_distribution(hits: list[int], supports: list[int]) -> None:
    values, chances = exact_distribution(hits, supports)
    below = np.cumsum(chances)
    interval = mean_recall_interval(confusion_of(hits, supports), resamples=40_000)
    assert interval is not None
    for end, level in zip(interval, LEVELS, strict=True):
        # Four standard errors of the share of 40,000 draws below a quantile.
        slack = 4 * np.sqrt(level * (1 - level) / 40_000)
        lowest, highest = (
            values[min(np.searchsorted(below, each), len(values) - 1)] for each in (level - slack, level + slack)
        )
        assert lowest - 1e-6 <= end <= highest + 1e-6


def test_equals_drawing_images() -> None:
    """The literal way: images drawn with replacement within each class."""
    rng = np.random.default_rng(0)
    targets = np.repeat([0, 1, 2], [12, 8, 5])
    predicted = np.where(rng.random(25) < 0.65, targets, (targets + 1) % 3)
    right, draws = predicted == targets, 20_000
    recalls = [right[rng.choice(np.flatnonzero(targets == k), (draws, (targets == k).sum()))].mean(1) for k in range(3)]
    means = np.mean(recalls, axis=0)
    assert 0.05 < means.std() < 0.15
    interval = mean_recall_interval(confusion_matrix(targets, predicted, 3))
    # 0.01: four standard errors of a 2.5% quantile of so many draws of this spread.
    assert interval == pytest.approx(tuple(np.quantile(means, LEVELS)), abs=0.01)
    alone = mean_recall_interval(confusion_matrix(targets, predicted, 3), [2])
    assert alone == pytest.approx(tuple(np.quantile(recalls[2], LEVELS)), abs=1e-9), "a class of 5 has only 6 values"


@given(
    pairs=st.lists(
        st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=2, max_size=8
    ),
    seed=st.integers(0, 2**31),
)
@settings(deadline=None, derandomize=True, max_examples=50)
def test_holds_the_measured_value(pairs: list[tuple[int, int]], seed: int) -> None:
    hits, supports = zip(*pairs, strict=True)
    confusion = confusion_of(hits, supports)
    interval = mean_recall_interval(confusion, seed=seed, resamples=2000)
    assert interval is not None
    low, high = interval
    assert 0 <= low <= balanced_accuracy(confusion) <= high <= 1
    assert (low == high) == all(hit in (0, n) for hit, n in pairs)


def test_wider_with_more_confidence_and_narrower_with_more_images() -> None:
    few, many = confusion_of([12, 8], [20, 20]), confusion_of([1200, 800], [2000, 2000])
    widths = [np.ptp(mean_recall_interval(few, confidence=each)) for each in (0.5, 0.9, 0.99)]
    assert widths == sorted(widths)
    assert np.ptp(mean_recall_interval(few)) == pytest.approx(10 * np.ptp(mean_recall_interval(many)), rel=0.1)


def test_groups_and_seeds() -> None:
    confusion = confusion_of([40, 12, 5, 0], [50, 20, 9, 0])
    everything = mean_recall_interval(confusion)
    assert everything == mean_recall_interval(confusion, [0, 1, 2]), "an absent class changes nothing"
    assert everything == mean_recall_interval(confusion, seed=0)
    assert everything != mean_recall_interval(confusion, seed=1)
    assert mean_recall_interval(confusion, [1]) == mean_recall_interval(confusion, [1, 3])
    assert mean_recall_interval(confusion, [1]) == mean_recall_interval(confusion_of([0, 12], [0, 20]))
    assert mean_recall_interval(confusion, [3]) is None
    assert mean_recall_interval(confusion, []) is None


def test_classes_always_right_or_always_wrong_have_no_spread() -> None:
    """A known limit, told in the docstring: three images do not prove a recall of 1."""
    assert mean_recall_interval(confusion_of([3, 0], [3, 5])) == (0.5, 0.5)


@pytest.mark.parametrize("wrong", [{"resamples": 0}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_bad_arguments(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs 1 or more resamples"):
        mean_recall_interval(confusion_of([1, 1], [2, 2]), **wrong)


def coverage(recalls: list[float], supports: list[int], *, trials: int, resamples: int) -> float:
    """The share of test sets whose interval holds the mean of the true recalls."""
    rng = np.random.default_rng(0)
    truth, held = np.mean(recalls), 0
    for trial in range(trials):
        confusion = confusion_of(rng.binomial(supports, recalls), supports)
        low, high = mean_recall_interval(confusion, seed=trial, resamples=resamples) or (np.nan, np.nan)
        held += bool(low <= truth <= high)
    return held / trials


RECALLS = np.linspace(0.95, 0.3, 10).tolist()


def test_coverage() -> None:
    share = coverage(RECALLS, [100] * 10, trials=800, resamples=1000)
    assert 0.925 < share < 0.97  # three standard errors around 95%, and the percentile interval's small deficit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("supports", "expected"),
    [
        ([1000] * 10, 0.95),
        ([100] * 10, 0.95),
        ([20] * 10, 0.94),
        ([200, 150, 100, 80, 50, 30, 20, 10, 5, 5], 0.915),
        # Too narrow where classes have a handful of images, as the docstring says.
        ([5] * 10, 0.91),
        ([2] * 10, 0.78),
    ],
)
def test_coverage_by_size_of_class(supports: list[int], expected: float) -> None:
    share = coverage(RECALLS, supports, trials=5000, resamples=2000)
    assert share == pytest.approx(expected, abs=0.012)  # four standard errors, two in the last case
