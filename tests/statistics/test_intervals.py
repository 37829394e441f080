"""Intervals against scipy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from evenhand.statistics.intervals import wilson_interval


@given(trials=st.integers(1, 5000), data=st.data(), confidence=st.sampled_from([0.8, 0.95, 0.99]))
@settings(deadline=None, derandomize=True)
def test_wilson_equals_scipy(trials: int, data: st.DataObject, confidence: float) -> None:
    successes = data.draw(st.integers(0, trials))
    expected = binomtest(successes, trials).proportion_ci(confidence, method="wilson")
    low, high = wilson_interval(successes / trials, trials, confidence)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_takes_arrays() -> None:
    low, high = wilson_interval([0.0, 1.0], [5, 5])
    assert low.shape == high.shape == (2,)
    np.testing.assert_allclose(low[1], 1 - high[0])
