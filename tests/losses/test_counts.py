"""Offsets, margins and weights computed from the class counts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight
from torch.testing import assert_close

from evenhand.losses.functional import class_weights, ldam_margins, logit_offset

from .cases import repeatable

many_counts = st.lists(st.integers(1, 100_000), min_size=2, max_size=12)
KINDS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "integers": torch.tensor,
    "floats": lambda n: torch.tensor(n, dtype=torch.float32),
    "int32": lambda n: torch.tensor(n, dtype=torch.int32),
}


@repeatable
@given(counts=many_counts, tau=st.floats(0, 3))
def test_offset_is_tau_times_the_log_share(counts, tau):
    expected = [tau * (math.log(n) - math.log(sum(counts))) for n in counts]
    assert logit_offset(counts, tau).tolist() == pytest.approx(expected, abs=1e-12)


@repeatable
@given(counts=many_counts, largest=st.floats(0, 2))
def test_margins_fall_with_the_fourth_root(counts, largest):
    margins = ldam_margins(counts, largest).tolist()
    assert max(margins) == pytest.approx(largest)
    for n, margin in zip(counts, margins, strict=True):
        assert margin * n**0.25 == pytest.approx(largest * min(counts) ** 0.25)


@repeatable
@given(counts=many_counts)
def test_inverse_weights_are_those_of_scikit_learn(counts):
    labels = np.repeat(np.arange(len(counts)), [min(n, 500) for n in counts])
    expected = compute_class_weight("balanced", classes=np.arange(len(counts)), y=labels)
    assert class_weights([min(n, 500) for n in counts]).tolist() == pytest.approx(expected.tolist(), rel=1e-5)


@repeatable
@given(counts=many_counts, beta=st.sampled_from([0.0, 0.5, 0.9, 0.999, 0.9999]))
def test_effective_weights_are_one_over_the_effective_number(counts, beta):
    """The effective number of n images is the sum of beta^i, i = 0 .. n - 1."""
    weights = class_weights(counts, by="effective", beta=beta).double()
    n = torch.tensor(counts, dtype=torch.float64)
    if max(counts) <= 5000:
        effective = torch.tensor([math.fsum(beta**i for i in range(k)) for k in counts], dtype=torch.float64)
        assert_close(weights * effective / (weights[0] * effective[0]), torch.ones_like(n), rtol=1e-5, atol=0)
    assert (weights * n).sum() / n.sum() == pytest.approx(1, rel=1e-5)


def test_effective_weights_lie_between_equal_and_inverse():
    counts = [5000, 500, 50]
    assert_close(class_weights(counts, by="effective", beta=0), torch.ones(3))
    assert_close(class_weights(counts, by="effective", beta=1 - 1e-9), class_weights(counts), rtol=1e-4, atol=0)


def test_weights_fit_a_loss():
    logits, weight = torch.zeros(2, 3), class_weights([5, 3, 2])
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 2]), weight)


FUNCTIONS = {
    "offset": logit_offset,
    "margins": ldam_margins,
    "inverse": class_weights,
    "effective": lambda n: class_weights(n, by="effective"),
}
functions = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@pytest.mark.parametrize("function", [logit_offset, class_weights])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_any_kind(function, kind):
    counts = [70, 20, 10]
    assert_close(function(KINDS[kind](counts)), function(counts))


@functions
def test_a_class_without_images_is_like_the_rarest_that_has_some(function):
    with_zero, with_smallest = function([50, 0, 10, 0]), function([50, 10, 10, 10])
    assert with_zero.isfinite().all()
    assert with_zero[1] == with_zero[2] == with_zero[3]
    if function is ldam_margins:
        assert_close(with_zero, with_smallest)


def test_images_that_do_not_exist_do_not_count_in_the_mean_weight():
    weights = class_weights([50, 0, 10])
    assert (weights[0] * 50 + weights[2] * 10).item() == pytest.approx(60)


@pytest.mark.parametrize(
    "counts",
    [[0, 0], [-1, 2], [math.nan, 1], [math.inf, 1], [], [[1, 2]], 5, "many", ["a", "b"], None, torch.tensor([1j, 2j])],
    ids=str,
)
def test_invalid_counts(counts):
    with pytest.raises(ValueError, match=r"\Acounts must be [^\n]+\.\Z"):
        logit_offset(counts)


@functions
def test_counts_are_checked(function):
    with pytest.raises(ValueError, match="counts must be finite"):
        function([-1, 2])


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        (lambda: logit_offset([1, 2], tau=-1), "-1"),
        (lambda: logit_offset([1, 2], tau=math.nan), "nan"),
        (lambda: logit_offset([1, 2], tau="auto"), "'auto'"),
        (lambda: ldam_margins([1, 2], max_margin=-0.5), "-0.5"),
        (lambda: class_weights([1, 2], by="square"), "'square'"),
        (lambda: class_weights([1, 2], by="effective", beta=1.0), "1.0"),
        (lambda: class_weights([1, 2], by="effective", beta=-0.1), "-0.1"),
    ],
)
def test_settings_out_of_range(call, shown):
    with pytest.raises(ValueError, match=rf"\A[^\n]+{shown}[^\n]*\.\Z"):
        call()
