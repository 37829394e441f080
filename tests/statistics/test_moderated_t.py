"""The moderated difference against the paired t-test, a linear model, and its own limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import skew, t, ttest_rel

from evenhand.statistics.moderated_t import moderated_differences


def table(rng: np.random.Generator, rivals: int, n: int) -> dict[str, NDArray[np.float64]]:
    return {"ce": rng.normal(size=n), **{f"o{k}": rng.normal(k, 1 + k, n) for k in range(rivals)}}


@pytest.mark.parametrize("n", [2, 3, 10])
def test_with_one_rival_and_without_skewness_it_is_the_paired_t_test(n: int) -> None:
    values = table(np.random.default_rng(n), 1, n)
    mirrored = 2 * values["o0"].mean() - values["o0"]
    values = {"ce": np.tile(values["ce"].mean(), 2 * n), "o0": np.concatenate([values["o0"], mirrored])}
    [found] = moderated_differences(values, "ce").values()
    expected = ttest_rel(values["o0"], values["ce"])
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval(0.05) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert found.spread == pytest.approx((values["o0"] - values["ce"]).std(ddof=1))


@pytest.mark.parametrize(("rivals", "n", "weight"), [(2, 3, 4 / 3), (3, 3, 8 / 3), (3, 5, 4), (8, 3, 4), (8, 12, 4)])
def test_by_the_formula(rivals: int, n: int, weight: float) -> None:
    """The residual variance as least squares with a column for each objective and each seed gives it."""
    values = table(np.random.default_rng(rivals * n), rivals, n)
    y = np.array(list(values.values()))
    rows = [(o, s) for o in range(rivals + 1) for s in range(n)]
    design = np.array([[*(o == k for k in range(rivals + 1)), *(s == k for k in range(n))] for o, s in rows], float)
    fitted = design @ np.linalg.lstsq(design, y.ravel(), rcond=None)[0]
    pooled = 2 * ((y.ravel() - fitted) ** 2).sum() / (rivals * (n - 1))
    own = {name: np.var(series - values["ce"], ddof=1) for name, series in values.items() if name != "ce"}
    usual = max(pooled, np.mean(list(own.values())))
    for name, found in moderated_differences(values, "ce").items():
        variance = (weight * usual + (n - 1) * own[name]) / (weight + n - 1)
        mean = np.mean(values[name] - values["ce"])
        assert found.freedom == pytest.approx(weight + n - 1)
        assert found.error == pytest.approx(np.sqrt(variance / n))
        mean_skew = np.mean([skew(series - values["ce"]) for other, series in values.items() if other != "ce"])
        towards = -np.sign(mean) * np.array([skew(values[name] - values["ce"]), mean_skew])
        longer = 1 + min(0.5, 1.2 * n**-0.5) * max(0, *towards)
        assert found.p == pytest.approx(2 * t.sf(abs(mean) / (longer * found.error), found.freedom))


def test_an_interval_is_longer_on_the_side_of_the_tail() -> None:
    [found] = moderated_differences({"ce": [0.5] * 5, "cce": [0.6, 0.61, 0.59, 0.6, 0.4]}, "ce").values()
    low, high = found.interval(0.05)
    assert found.mean - low > 1.3 * (high - found.mean)
    assert found.interval(found.p)[0] == pytest.approx(0, abs=1e-10)


def test_equal_differences_are_not_tested_and_do_not_make_others_surer() -> None:
    values = {"ce": [0.5, 0.6, 0.7], "a": [0.52, 0.61, 0.74], "b": [0.5, 0.62, 0.71]}
    same = {**values, "erm": values["ce"], "shifted": [0.6, 0.7, 0.8]}
    found, plain = moderated_differences(same, "ce"), moderated_differences(values, "ce")
    assert (found["erm"].mean, found["erm"].spread, found["erm"].p) == (0, 0, None)
    assert found["shifted"].p is None
    assert found["shifted"].interval(0.05) is None
    assert found["a"] == plain["a"]


def test_differences_that_vary_by_less_than_an_image_are_equal() -> None:
    values = {"ce": [0.5, 0.5, 0.5], "cce": [0.5 + 1 / 350, 0.5 + 1 / 360, 0.5 + 1 / 370]}
    assert moderated_differences(values, "ce")["cce"].p < 0.001
    assert moderated_differences(values, "ce", resolution=1 / 370)["cce"].p is None


def test_one_seed_and_bad_series() -> None:
    assert moderated_differences({"ce": [0.5], "cce": [0.6]}, "ce")["cce"].p is None
    with pytest.raises(ValueError, match="same length"):
        moderated_differences({"ce": [0.5, 0.6], "cce": [0.6]}, "ce")
    with pytest.raises(ValueError, match="finite values, got nan"):
        moderated_differences({"ce": [0.5, 0.6], "cce": [0.6, np.nan]}, "ce")


@given(shift=st.floats(-1, 1), scale=st.floats(0.01, 100), seed=st.integers(0, 99))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_what_all_objectives_of_a_seed_share_changes_nothing(shift: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = table(rng, 3, 4)
    common = shift * rng.normal(size=4)
    moved = {name: scale * (own + common) for name, own in values.items()}
    for name, found in moderated_differences(values, "ce").items():
        other = moderated_differences(moved, "ce")[name]
        assert other.p == pytest.approx(found.p, rel=1e-6)
        assert other.mean == pytest.approx(scale * found.mean, rel=1e-6)
