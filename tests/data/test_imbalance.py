"""Profiles against published counts, and how the training rows are thinned."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.data.imbalance import (
    Imbalance,
    class_order,
    effective_number,
    imbalance_ratio,
    resembles,
    subset,
)

# Totals of Cao et al. 2019 as the paper uses them: images a class, classes, LT 10, LT 100, Step 10, Step 100.
GOLDEN = {
    "CIFAR-10": (5000, 10, 20431, 12406, 27500, 25250),
    "CIFAR-100": (500, 100, 19573, 10847, 27500, 25250),
    "Fashion-MNIST": (6000, 10, 24516, 14886, 33000, 30300),
    "Tiny ImageNet": (500, 200, 39072, 21549, 55000, 50500),
}
NAMES = tuple("abcdefghij")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_totals(name: str) -> None:
    most, classes, *totals = GOLDEN[name]
    specs = ["exp:10", "exp:100", "step:10", "step:100"]
    assert [int(Imbalance.parse(spec).profile(most, classes).sum()) for spec in specs] == totals


def test_golden_profiles() -> None:
    assert Imbalance("exp", 100).profile(5000, 10).tolist() == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert Imbalance("exp", 100).profile(6000, 10).tolist() == [6000, 3596, 2156, 1292, 774, 464, 278, 166, 100, 60]
    assert Imbalance("step", 100).profile(5000, 10).tolist() == [5000] * 5 + [50] * 5
    assert Imbalance("step", 10).profile(100, 5).tolist() == [100, 100, 10, 10, 10]  # K // 2 classes stay large


@given(
    available=st.lists(st.integers(1, 400), min_size=2, max_size=12),
    kind=st.sampled_from(["exp", "step"]),
    ratio=st.floats(1, 50),
    seed=st.integers(0, 5),
)
@settings(deadline=None, derandomize=True)
def test_the_largest_class_keeps_as_many_as_the_others_allow(
    available: list[int], kind: str, ratio: float, seed: int
) -> None:
    imbalance = Imbalance(kind, ratio)  # type: ignore[arg-type]
    have = np.array(available)
    names = [str(k) for k in range(len(have))]
    order = class_order("shuffle", names, seed)
    fitting = [n for n in range(have[order[0]] + 1) if (imbalance.profile(n, len(have)) <= have[order]).all()]
    expected = imbalance.profile(max(fitting), len(have))
    if (expected == 0).any():
        with pytest.raises(EvenhandError, match="without training images"):
            imbalance.counts(have, order, names)
    else:
        assert imbalance.counts(have, order, names)[order].tolist() == expected.tolist()


def test_an_empty_class_is_refused_by_name() -> None:
    with pytest.raises(EvenhandError, match=r"exp:100 would leave 'i', 'j' without .* can keep 40"):
        Imbalance("exp", 100).counts(np.full(10, 40), np.arange(10), NAMES)


@pytest.mark.parametrize("text", ["", "exp", "exp:", "exp:x", "exp:0.5", "exp:inf", "exp:nan", "none:3", "linear:10"])
def test_bad_specs(text: str) -> None:
    with pytest.raises(EvenhandError, match=text if text.isalnum() else None):
        Imbalance.parse(text)


@pytest.mark.parametrize("text", ["exp:100", "step:10", "exp:2.5", "none"])
def test_spec_round_trip(text: str) -> None:
    assert str(Imbalance.parse(text)) == text


def test_class_order() -> None:
    assert class_order("identity", NAMES, 0).tolist() == list(range(10))
    assert class_order(",".join(reversed(NAMES)), NAMES, 0).tolist() == list(range(9, -1, -1))
    shuffled = class_order("shuffle", NAMES, 3)
    assert sorted(shuffled) == list(range(10))
    assert shuffled.tolist() == class_order("shuffle", NAMES, 3).tolist() != class_order("shuffle", NAMES, 4).tolist()
    for bad in ("a,b", "a,b,c,d,e,f,g,h,i,z", ",".join("aabcdefghi")):
        with pytest.raises(EvenhandError, match="all 10 class names once"):
            class_order(bad, NAMES, 0)


def test_subset_is_random_nested_and_exact() -> None:
    labels = np.repeat(np.arange(3), 100)
    rows = np.arange(300)
    small, large = (subset(labels, rows, np.array(keep), seed=1) for keep in ([50, 20, 5], [100, 60, 20]))
    assert np.bincount(labels[small]).tolist() == [50, 20, 5]
    assert set(small) <= set(large)
    other = subset(labels, rows, np.array([50, 20, 5]), seed=2)
    assert set(other) != set(small)
    assert not np.array_equal(small[:50], np.arange(50)), "the first rows were kept instead of random ones"


def test_effective_number_is_the_sum_of_a_geometric_series() -> None:
    counts = np.array([1, 7, 250])
    expected = [math.fsum(0.999**i for i in range(n)) for n in counts]
    np.testing.assert_allclose(effective_number(counts), expected, rtol=1e-12)


def test_ratio_and_what_it_resembles() -> None:
    assert imbalance_ratio(np.array([0, 30, 3])) == 10
    assert str(resembles(np.array([50, 5000, 2997, 1796, 1077, 645, 387, 232, 139, 83]))) == "exp:100"
    assert str(resembles(np.array([500, 500, 500, 10, 10, 10]))) == "step:50"
    assert str(resembles(np.array([100, 101, 99]))) == "none"
    assert resembles(np.array([10000, 12, 11, 10, 10, 10, 10, 10])) is None
