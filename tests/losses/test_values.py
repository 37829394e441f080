"""The values of the losses are those of equations 1 to 5."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import functional as ours

from . import reference
from .cases import batches, every_backend, repeatable

TOLERANCE = {
    torch.float64: {"rtol": 1e-9, "atol": 1e-9},  # what 1 - y_hat_g costs the reference, not us
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
}
precisions = st.sampled_from(list(TOLERANCE))
gammas = st.sampled_from([-5.0, -1.0, -0.3, 0.0, 0.5, 1.0, 7.0])


def check_reductions(loss, batch: tuple[Tensor, Tensor], dtype: torch.dtype, expected_rows) -> None:
    """Compare every reduction of a loss with the reference's rows, which all shapes of input are brought to."""
    logits, target = batch[0].to(dtype), batch[1]
    rows = expected_rows(*reference.flat_rows(logits, target)).to(dtype)
    tolerance = TOLERANCE[dtype]
    assert_close(loss(logits, target, reduction="none"), rows.reshape(target.shape), **tolerance)
    assert_close(loss(logits, target, reduction="sum"), rows.sum(), rtol=tolerance["rtol"], atol=1e-5 * len(rows))
    assert_close(loss(logits, target), rows.mean(), **tolerance)


@every_backend
@repeatable
@given(batch=batches(), dtype=precisions)
def test_complement_entropy_is_equation_2(batch, dtype):
    check_reductions(ours.complement_entropy, batch, dtype, reference.complement_entropy)


@every_backend
@repeatable
@given(batch=batches(), dtype=precisions)
def test_balanced_complement_entropy_is_equation_3(batch, dtype):
    def balanced(*args, **kwargs):
        return ours.complement_entropy(*args, balanced=True, **kwargs)

    def eq3(logits, target):
        return reference.complement_entropy(logits, target) / (logits.shape[1] - 1)

    check_reductions(balanced, batch, dtype, eq3)


@every_backend
@repeatable
@given(batch=batches(), dtype=precisions, gamma=gammas)
def test_complement_cross_entropy_is_equation_5(batch, dtype, gamma):
    def loss(*args, **kwargs):
        return ours.complement_cross_entropy(*args, gamma=gamma, **kwargs)

    def eq5(logits, target):
        return reference.complement_cross_entropy(logits, target, gamma)

    check_reductions(loss, batch, dtype, eq5)


@every_backend
def test_default_gamma_is_minus_one():
    logits, target = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)), torch.arange(5)
    expected = reference.complement_cross_entropy(logits, target, gamma=-1.0).mean().float()
    assert_close(ours.complement_cross_entropy(logits, target), expected)


@pytest.mark.parametrize("k", [3, 10, 1000])
def test_equal_logits_have_known_entropies(k):
    logits, target = torch.zeros(2, k, dtype=torch.float64), torch.tensor([0, k - 1])
    cross_entropy, complement_entropy = math.log(k), math.log(k - 1)
    assert ours.complement_entropy(logits, target).item() == pytest.approx(complement_entropy, rel=1e-12)
    assert ours.complement_entropy(logits, target, balanced=True).item() == pytest.approx(complement_entropy / (k - 1))
    expected = cross_entropy - complement_entropy / (k - 1)
    assert ours.complement_cross_entropy(logits, target).item() == pytest.approx(expected, rel=1e-12)


def test_a_row_computed_by_hand():
    # Probabilities 1/2, 1/4, 1/8, 1/8 with class 0 correct: the wrong classes share 1/2 as 1/2, 1/4, 1/4.
    logits = torch.tensor([[8.0, 4.0, 2.0, 2.0]], dtype=torch.float64).log()
    target = torch.tensor([0])
    assert ours.complement_entropy(logits, target).item() == pytest.approx(1.5 * math.log(2))
    assert ours.complement_cross_entropy(logits, target).item() == pytest.approx(math.log(2) - 0.5 * math.log(2))
    assert ours.complement_cross_entropy(logits, target, gamma=2).item() == pytest.approx(2 * math.log(2))


@repeatable
@given(batch=batches())
def test_complement_entropy_ignores_the_correct_logit(batch):
    logits, target = reference.flat_rows(*batch)
    logits = logits.contiguous()  # sums over another layout in memory may be rounded differently
    moved = logits.scatter_add(1, target[:, None], torch.linspace(-30, 30, len(target), dtype=torch.float64)[:, None])
    assert_close(
        ours.complement_entropy(moved, target, reduction="none"),
        ours.complement_entropy(logits, target, reduction="none"),
        rtol=0,
        atol=0,
    )


@repeatable
@given(batch=batches())
def test_complement_entropy_is_between_zero_and_its_maximum(batch):
    rows = ours.complement_entropy(*batch, reduction="none")
    k = batch[0].shape[0 if batch[0].dim() == 1 else 1]
    assert (rows >= 0).all()
    assert (rows <= math.log(k - 1) + 1e-12).all()


@repeatable
@given(batch=batches(), shift=st.floats(-100, 100), gamma=gammas)
def test_shifting_all_logits_of_a_row_changes_nothing(batch, shift, gamma):
    logits, target = batch
    before = ours.complement_cross_entropy(logits, target, gamma=gamma)
    assert_close(ours.complement_cross_entropy(logits + shift, target, gamma=gamma), before, rtol=1e-9, atol=1e-11)


@every_backend
@pytest.mark.parametrize("gamma", [-1.0, 1.0])
@pytest.mark.parametrize("ahead", [20.0, 1e4, -21.0, -1e4])
def test_confident_rows_match_arbitrary_precision(ahead, gamma):
    row = [ahead, 0.5, -1.25, 0.375, -7.0]
    c, h = reference.exact_complement_entropy(row, 0), reference.exact_cross_entropy(row, 0)
    for dtype in (torch.float64, torch.float32):
        logits = torch.tensor([row], dtype=dtype)
        rtol = 1e-13 if dtype == torch.float64 else 1e-6
        target = torch.tensor([0])
        assert ours.complement_entropy(logits, target).item() == pytest.approx(c, rel=rtol)
        loss = ours.complement_cross_entropy(logits, target, gamma=gamma)
        assert loss.item() == pytest.approx(h + gamma / 4 * c, rel=rtol)
