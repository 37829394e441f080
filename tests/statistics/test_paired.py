"""Paired statistics against scipy, closed testing, drawing images, and simulation."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import nct, t, ttest_rel

from evenhand.statistics.paired import (
    balanced_resolution,
    detectable_difference,
    holm,
    paired_difference,
)

shares = st.integers(0, 10_000).map(lambda each: each / 10_000)


@given(pairs=st.lists(st.tuples(shares, shares), min_size=2, max_size=12))
@settings(deadline=None, derandomize=True)
def test_equals_scipy_s_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    ours, baseline = zip(*pairs, strict=True)
    assume(np.ptp(np.subtract(ours, baseline)) > 1e-9)
    found, expected = paired_difference(ours, baseline), ttest_rel(ours, baseline)
    interval = expected.confidence_interval(0.95)
    assert found.n == len(pairs)
    assert found.mean == pytest.approx(np.mean(ours) - np.mean(baseline), abs=1e-12)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-9)
    assert found.spread == pytest.approx(np.std(np.subtract(ours, baseline), ddof=1))
    assert (found.p < 0.05) == (found.low > 0 or found.high < 0), "the test and the interval say the same"
    back = paired_difference(baseline, ours)
    assert (back.mean, back.low, back.high, back.p) == (-found.mean, -found.high, -found.low, found.p)


def test_one_pair_has_a_difference_and_nothing_else() -> None:
    found = paired_difference([0.75], [0.5])
    assert (found.mean, found.n) == (0.25, 1)
    assert (found.low, found.high, found.p, found.spread, found.detectable) == (None,) * 5


@pytest.mark.parametrize("shift", [0.25, 0.1, -0.03])
def test_the_same_difference_in_every_pair_is_no_test(shift: float) -> None:
    """0.1 and 0.03 leave a spread of 1e-17, which would make a p-value of 1e-16 out of rounding."""
    baseline = [0.5, 0.7, 0.61, 0.33]
    found = paired_difference([each + shift for each in baseline], baseline)
    assert found.mean == pytest.approx(shift)
    assert (found.low, found.high, found.p, found.spread, found.detectable) == (None, None, None, 0.0, None)


def test_equal_series_do_not_differ() -> None:
    found = paired_difference([0.1 + 0.2, 0.7], [0.3, 0.7])
    assert (found.mean, found.low, found.high, found.p, found.spread) == (0.0, 0.0, 0.0, 1.0, 0.0)


def test_one_image_more_in_classes_of_slightly_different_size_is_no_test() -> None:
    """The differences 1/350, 1/360 and 1/370 are close together, and would be called sure."""
    baseline = [0.5, 0.7, 0.61]
    ours = [value + 1 / (10 * size) for value, size in zip(baseline, (35, 36, 37), strict=True)]
    assert (paired_difference(ours, baseline).p or 1) < 0.001
    found = paired_difference(ours, baseline, resolution=balanced_resolution([35, 36, 37, *[36] * 7]))
    assert (found.low, found.high, found.p, found.spread, found.detectable) == (None, None, None, 0.0, None)
    assert found.mean == pytest.approx(1 / 360, rel=0.01)


@pytest.mark.parametrize("size", [35, 37])
def test_one_image_between_seeds_is_a_spread(size: int) -> None:
    resolution = balanced_resolution([35, 37])
    found = paired_difference([0.5 + 1 / (2 * size), 0.5, 0.5], [0.5] * 3, resolution=resolution)
    assert found.p == pytest.approx(0.4226, abs=1e-4)  # t = 1
    same = paired_difference([0.5] * 3, [0.5] * 3, resolution=resolution)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0), "no difference at all needs no spread"


def test_a_mean_of_nothing_but_rounding_is_zero() -> None:
    ours, baseline = [0.1 + 0.2, 0.7, 0.2], [0.7, 0.3, 0.2]
    assert np.mean(np.subtract(ours, baseline)) != 0
    assert paired_difference(ours, baseline).mean == 0
    assert paired_difference([0.1 + 0.2], [0.3]).mean == 0


def test_the_resolution_is_one_image_of_the_largest_class() -> None:
    assert balanced_resolution([35, 0, 37]) == pytest.approx(1 / 74)
    assert balanced_resolution([0]) == balanced_resolution([]) == 0


@pytest.mark.parametrize(
    ("ours", "baseline", "words"),
    [([1.0], [1.0, 2.0], "same length"), ([], [], "same length"), ([float("nan"), 1], [1, 1], "finite values, got n")],
)
def test_bad_series(ours: list[float], baseline: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        paired_difference(ours, baseline)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 10, 20, 50, 300])
@pytest.mark.parametrize("spread", [0.02, 3.0])
def test_detectable_difference_has_80_percent_power_by_the_noncentral_t(n: int, spread: float) -> None:
    noncentrality = detectable_difference(spread, n) / (spread / math.sqrt(n))
    critical = t.ppf(0.975, n - 1)
    power = nct.sf(critical, n - 1, noncentrality) + nct.cdf(-critical, n - 1, noncentrality)
    assert power == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(("n", "level"), [(2, 0.05), (2, 0.01), (3, 0.05), (3, 0.05 / 6), (5, 0.05), (5, 0.05 / 12)])
def test_detectable_difference_is_found_in_80_percent_of_simulated_tests(n: int, level: float) -> None:
    truth = detectable_difference(1.0, n, level=level)
    differences = np.random.default_rng(n).normal(truth, 1, (100_000, n))
    size = np.abs(differences.mean(1)) / (differences.std(1, ddof=1) / math.sqrt(n))
    assert np.mean(size > t.ppf(1 - level / 2, n - 1)) == pytest.approx(0.8, abs=0.005)  # four standard errors


def test_paired_difference_says_what_it_could_have_found() -> None:
    found = paired_difference([0.5, 0.61, 0.7], [0.48, 0.6, 0.71])
    assert found.detectable == pytest.approx(detectable_difference(found.spread or 0, 3))
    at_one_percent = [detectable_difference(1, n, level=0.01) for n in (5, 4)]
    assert detectable_difference(1, 5) < at_one_percent[0] < at_one_percent[1]


@pytest.mark.parametrize("wrong", [{"n": 1}, {"n": 5, "level": 0.0}, {"n": 5, "power": 0.01}])
def test_bad_arguments_of_detectable_difference(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs 2 or more pairs"):
        detectable_difference(1.0, **wrong)  # type: ignore[arg-type]


@given(p=st.lists(st.none() | st.floats(0, 1), max_size=7))
@settings(deadline=None, derandomize=True)
def test_holm_is_closed_testing_with_bonferroni(p: list[float | None]) -> None:
    """A hypothesis falls when every set of hypotheses that holds it falls by Bonferroni, which is Holm's method."""
    places = [place for place, value in enumerate(p) if value is not None]
    sets = [each for size in range(1, len(places) + 1) for each in combinations(places, size)]
    expected = [
        None if value is None else max(min(1, len(each) * min(p[j] for j in each)) for each in sets if place in each)
        for place, value in enumerate(p)
    ]
    assert holm(p) == pytest.approx(expected) if places else holm(p) == expected


def test_holm_refuses_what_is_no_p_value() -> None:
    with pytest.raises(ValueError, match=r"0 to 1, got 1\.5"):
        holm([0.2, 1.5])
