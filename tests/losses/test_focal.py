"""The focal loss against its formula, -alpha_g (1 - p_g)^gamma log p_g."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from evenhand import FocalLoss
from evenhand.losses.functional import focal_loss

from .cases import batches, repeatable
from .reference import flat_rows

GAMMAS = [0.0, 0.5, 2.0, 5.0]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def by_formula(logits: Tensor, target: Tensor, gamma: float, alpha: Tensor) -> Tensor:
    """Rows (M, K) and (M) -> (M), in float64."""
    p = logits.double().softmax(1).gather(1, target[:, None])[:, 0]
    return -alpha[target] * (1 - p) ** gamma * p.log()


@repeatable
@given(
    batch=batches(),
    gamma=st.sampled_from(GAMMAS),
    alpha=st.sampled_from(["none", "number", "per class"]),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_value_and_gradient(batch, gamma, alpha, dtype):
    logits, target = batch[0].to(dtype).requires_grad_(), batch[1]
    k = flat_rows(*batch)[0].shape[1]
    each = {
        "none": torch.ones(k),
        "number": torch.full((k,), 0.25),
        "per class": torch.linspace(0.1, 2, k),
    }[alpha].double()
    given_alpha = {"none": None, "number": 0.25, "per class": each.tolist()}[alpha]
    rows = focal_loss(logits, target, gamma=gamma, alpha=given_alpha, reduction="none")
    expected = by_formula(*flat_rows(logits, target), gamma, each).reshape(target.shape)
    tolerance = {"rtol": 1e-7, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    assert_close(rows, expected.to(dtype), **tolerance)
    upstream = torch.linspace(-1, 2, target.numel(), dtype=dtype).reshape(target.shape)
    gradients = [torch.autograd.grad(x, logits, upstream.to(x.dtype))[0] for x in (rows, expected)]
    assert_close(*gradients, **tolerance)
    for reduction in ("mean", "sum"):
        value = focal_loss(logits, target, gamma=gamma, alpha=given_alpha, reduction=reduction)
        assert_close(value, getattr(expected, reduction)().to(dtype), rtol=1e-4, atol=1e-6)


def test_default_gamma_is_two():
    logits, target = torch.randn(4, 5, dtype=torch.float64), torch.tensor([0, 1, 4, 2])
    expected = by_formula(logits, target, 2.0, torch.ones(5).double()).mean()
    assert_close(focal_loss(logits, target), expected)
    assert_close(FocalLoss()(logits, target), expected)


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 5, 3, 2), (0, 5)], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_gamma_zero_is_cross_entropy(shape, reduction):
    logits = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    target = torch.randint(5, () if len(shape) == 1 else (shape[0], *shape[2:]))
    settings = {"ignore_index": 2, "reduction": reduction}
    values = focal_loss(logits, target, gamma=0, **settings), F.cross_entropy(logits, target, **settings)
    assert_close(*values, rtol=1e-12, atol=1e-14, equal_nan=True)
    gradients = [torch.autograd.grad(value.sum(), logits)[0] for value in values]
    assert_close(*gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["indices", "probabilities"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_weight_is_that_of_cross_entropy(kind, reduction):
    logits = torch.randn(6, 5, dtype=torch.float64)
    target = torch.tensor([0, 1, -100, 3, 4, 4]) if kind == "indices" else torch.randn_like(logits).softmax(1)
    weight = torch.tensor([0.5, 2.0, 1.0, 0.0, 3.5])
    settings = {"weight": weight.double(), "reduction": reduction}
    assert_close(
        focal_loss(logits, target, weight, gamma=0, reduction=reduction), F.cross_entropy(logits, target, **settings)
    )


@pytest.mark.parametrize("alpha", [None, [0.1, 1.0, 2.0, 3.0]])
def test_ignored_rows_count_for_nothing(alpha):
    logits = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, -100, 2, -100, 3])
    kept = target != -100
    loss = focal_loss(logits, target, alpha=alpha)
    assert_close(loss, focal_loss(logits[kept], target[kept], alpha=alpha))
    loss.backward()
    assert (logits.grad[~kept] == 0).all()
    assert (logits.grad[kept] != 0).all()


def test_alpha_is_a_plain_factor_and_leaves_the_mean_alone():
    logits, target = torch.randn(3, 4, dtype=torch.float64), torch.tensor([0, 3, 3])
    assert_close(focal_loss(logits, target, alpha=0.25), 0.25 * focal_loss(logits, target))
    assert_close(focal_loss(logits, target, alpha=[0.25] * 4), 0.25 * focal_loss(logits, target))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("ahead", [20.0, 1e4, -1e4])
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_certain_rows_stay_finite(dtype, gamma, ahead, kind):
    """(1 - p_g)^0.5 has an infinite slope where 1 - p_g rounds to 0, but the loss has a finite gradient."""
    logits = torch.zeros(1, 4, dtype=dtype)
    logits[0, 1] = ahead
    logits[0, 2] = -torch.inf if kind == "indices" else 0
    logits.requires_grad_()
    target = torch.tensor([1]) if kind == "indices" else torch.tensor([[0.0, 1, 0, 0]], dtype=dtype)
    loss = focal_loss(logits, target, gamma=gamma)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.dtype == dtype
    assert loss.isfinite()
    assert loss >= 0
    assert gradient.isfinite().all()
    if ahead < 0:
        others = 2 if kind == "indices" else 3
        assert loss.item() == pytest.approx(math.log(others) - ahead, rel=1e-2)


def test_one_hot_probabilities_are_class_indices():
    logits, target = torch.randn(6, 4, 2, dtype=torch.float64), torch.randint(4, (6, 2))
    one_hot = F.one_hot(target, 4).movedim(-1, 1).double()
    for alpha in (None, 0.25, [0.1, 0.2, 0.3, 0.4]):
        for reduction in ("none", "mean", "sum"):
            settings = {"alpha": alpha, "reduction": reduction, "gamma": 1.5}
            assert_close(focal_loss(logits, one_hot, **settings), focal_loss(logits, target, **settings))


def test_probabilities_add_up_the_losses_of_the_classes():
    logits = torch.randn(3, 4, dtype=torch.float64)
    target = torch.randn(3, 4, dtype=torch.float64).softmax(1)
    alpha = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    each = torch.stack([by_formula(logits, torch.full((3,), k), 2.0, alpha) for k in range(4)], 1)
    assert_close(focal_loss(logits, target, alpha=alpha, reduction="none"), (target * each).sum(1))
    assert_close(focal_loss(logits, target, alpha=alpha), (target * each).sum(1).mean())


def test_a_masked_class_without_probability_costs_nothing():
    logits = torch.tensor([[1.0, 2.0, -torch.inf]], requires_grad=True)
    loss = focal_loss(logits, torch.tensor([[0.5, 0.5, 0.0]]))
    loss.backward()
    assert_close(loss, focal_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]])))
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("gamma", GAMMAS)
def test_derivatives_agree_with_differences(gamma):
    logits = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    for target in (torch.tensor([0, 2, 3]), torch.randn(3, 4, dtype=torch.float64).softmax(1)):
        assert gradcheck(lambda z, t=target: focal_loss(z, t, gamma=gamma), logits)
        assert gradgradcheck(lambda z, t=target: focal_loss(z, t, gamma=gamma), logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_full(dtype):
    logits, target = torch.randn(64, 10, dtype=dtype), torch.randint(10, (64,))
    assert_close(focal_loss(logits, target), focal_loss(logits.float(), target).to(dtype), rtol=0, atol=0)
    with torch.autocast("cpu", dtype):
        assert_close(focal_loss(logits, target), focal_loss(logits.float(), target))
