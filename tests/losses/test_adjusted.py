"""Logit adjustment, balanced softmax, LDAM and VS against their formulas, and against cross entropy."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jvp, vmap
from torch.testing import assert_close

from evenhand.losses import BalancedSoftmaxLoss, LDAMLoss, LogitAdjustedLoss, VSLoss
from evenhand.losses.functional import (
    adjust_logits,
    adjusted_cross_entropy,
    balanced_softmax_loss,
    focal_loss,
    ldam_loss,
    ldam_margins,
    logit_adjusted_cross_entropy,
    logit_offset,
    vs_factors,
    vs_loss,
)

from . import reference
from .cases import batches, repeatable

K = 5
COUNTS = [500, 200, 60, 12, 3]
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.5, 0.1], dtype=torch.float64)
LOSSES = {
    "adjusted": lambda z, t, **kwargs: logit_adjusted_cross_entropy(z, t, COUNTS, tau=1.5, **kwargs),
    "ldam": lambda z, t, **kwargs: ldam_loss(z, t, COUNTS, scale=3.0, **kwargs),
    "vs": lambda z, t, **kwargs: vs_loss(z, t, COUNTS, gamma=0.2, tau=1.2, **kwargs),
}
losses = pytest.mark.parametrize("loss", LOSSES)
reductions = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def counts_for(k: int) -> Tensor:
    return (1000 * 0.01 ** torch.linspace(0, 1, k)).long() + 1


def check(loss, rows, batch: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    """Compare value and gradient with the formula's in float64."""
    logits, target = batch[0].to(dtype).requires_grad_(), batch[1]
    exact = logits.detach().double().requires_grad_()
    expected = rows(*reference.flat_rows(exact, target)).reshape(target.shape)
    upstream = torch.linspace(-1, 2, target.numel(), dtype=torch.float64).reshape(target.shape) + 0.1
    got = loss(logits, target, reduction="none")
    assert got.dtype == dtype
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-5}
    assert_close(got.double(), expected, **tolerance)
    (gradient,) = torch.autograd.grad(got, logits, upstream.to(dtype))
    (exact_gradient,) = torch.autograd.grad(expected, exact, upstream)
    assert_close(gradient.double(), exact_gradient, **tolerance)


precisions = st.sampled_from([torch.float64, torch.float32])


@repeatable
@given(batch=batches(), dtype=precisions, tau=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_logit_adjustment_is_a_power_of_the_prior_inside_the_softmax(batch, dtype, tau):
    counts = counts_for(reference.flat_rows(*batch)[0].shape[1])
    check(
        lambda z, t, **kwargs: logit_adjusted_cross_entropy(z, t, counts, tau=tau, **kwargs),
        lambda z, t: reference.adjusted_rows(z, t, counts, tau),
        batch,
        dtype,
    )
    if tau == 1:
        value = logit_adjusted_cross_entropy(*batch, counts)
        assert_close(balanced_softmax_loss(*batch, counts), value, rtol=0, atol=0)


@repeatable
@given(batch=batches(), dtype=precisions, scale=st.sampled_from([1.0, 30.0]), margin=st.sampled_from([0.0, 0.5]))
def test_ldam_takes_a_margin_off_the_correct_class(batch, dtype, scale, margin):
    cosines = batch[0].tanh()
    counts = counts_for(reference.flat_rows(*batch)[0].shape[1])
    check(
        lambda z, t, **kwargs: ldam_loss(z, t, counts, max_margin=margin, scale=scale, **kwargs),
        lambda z, t: reference.ldam_rows(z, t, counts, margin, scale),
        (cosines, batch[1]),
        dtype,
    )


@repeatable
@given(batch=batches(), dtype=precisions)
def test_a_scale_per_class_multiplies_the_logits(batch, dtype):
    scale = torch.linspace(0.2, 2, reference.flat_rows(*batch)[0].shape[1], dtype=torch.float64)
    check(
        lambda z, t, **kwargs: adjusted_cross_entropy(z, t, scale=scale, **kwargs),
        lambda z, t: F.cross_entropy(z * scale, t, reduction="none"),
        batch,
        dtype,
    )


def test_defaults_of_ldam_are_those_of_its_authors():
    cosines, target = torch.rand(4, K, dtype=torch.float64), torch.tensor([0, 2, 4, 4])
    expected = reference.ldam_rows(cosines, target, torch.tensor(COUNTS), 0.5, 30.0).mean()
    assert_close(ldam_loss(cosines, target, COUNTS), expected)


@repeatable
@given(batch=batches(), dtype=precisions, gamma=st.floats(0, 0.5), tau=st.floats(0, 2))
def test_vs_scales_and_shifts_each_class(batch, dtype, gamma, tau):
    counts = counts_for(reference.flat_rows(*batch)[0].shape[1])
    check(
        lambda z, t, **kwargs: vs_loss(z, t, counts, gamma=gamma, tau=tau, **kwargs),
        lambda z, t: reference.vs_rows(z, t, counts, gamma, tau),
        batch,
        dtype,
    )


@repeatable
@given(batch=batches(), tau=st.floats(0, 2))
def test_vs_without_factors_is_logit_adjustment(batch, tau):
    counts = counts_for(reference.flat_rows(*batch)[0].shape[1])
    expected = logit_adjusted_cross_entropy(*batch, counts, tau=tau)
    assert_close(vs_loss(*batch, counts, gamma=0, tau=tau), expected, rtol=1e-12, atol=1e-12)


def test_factors_of_vs():
    assert_close(vs_factors([1000, 100, 0], gamma=1), torch.tensor([1, 0.1, 0.1], dtype=torch.float64))


@repeatable
@given(batch=batches(), n=st.integers(1, 10_000), tau=st.floats(0, 3))
def test_equal_counts_leave_cross_entropy(batch, n, tau):
    k = reference.flat_rows(*batch)[0].shape[1]
    plain = F.cross_entropy(*batch)
    assert_close(logit_adjusted_cross_entropy(*batch, [n] * k, tau=tau), plain, rtol=1e-9, atol=1e-9)
    assert_close(balanced_softmax_loss(*batch, [n] * k), plain, rtol=1e-9, atol=1e-9)


# Cross entropy's other keywords: of the adjusted logits, they mean what they mean there.


def adjusted_by_hand(loss: str, logits: Tensor, target: Tensor) -> Tensor:
    """Return the logits whose cross entropy the loss is; (N, K) and class indices."""
    prior = torch.tensor(COUNTS, dtype=torch.float64) / sum(COUNTS)
    if loss == "vs":
        return (torch.tensor(COUNTS).double() / 500) ** 0.2 * logits + 1.2 * prior.log()
    if loss != "ldam":
        return logits + 1.5 * prior.log()
    margins = 0.5 * (3 / torch.tensor(COUNTS, dtype=torch.float64)) ** 0.25
    one_hot = F.one_hot(target.clamp(min=0), K)
    return 3 * (logits - one_hot * margins)


@losses
@reductions
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
def test_keywords_of_cross_entropy(loss, reduction, smoothing, weight):
    logits, target = torch.randn(7, K, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4, 2, 3])
    settings = {"weight": weight, "ignore_index": 2, "reduction": reduction, "label_smoothing": smoothing}
    results = []
    for ours in (False, True):
        leaf = logits.clone().requires_grad_()
        if ours:
            value = LOSSES[loss](leaf, target, **settings)
        else:
            value = F.cross_entropy(adjusted_by_hand(loss, leaf, target), target, **settings)
        results.append((value, torch.autograd.grad(value.sum(), leaf)[0]))
    assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


@losses
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
def test_one_hot_probabilities_are_their_class(loss, smoothing, weight):
    logits, target = torch.randn(6, K, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4, 4])
    settings = {"weight": weight, "label_smoothing": smoothing, "reduction": "none"}
    hard = LOSSES[loss](logits, target, **settings)
    assert_close(LOSSES[loss](logits, F.one_hot(target, K).double(), **settings), hard, rtol=1e-9, atol=1e-10)


@losses
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
def test_a_mix_of_classes_costs_the_mix_of_their_losses(loss, smoothing, weight):
    """What mixup asks of a loss; of images as well, (N, K, d1)."""
    settings = {"weight": weight, "label_smoothing": smoothing, "reduction": "none"}
    logits = torch.randn(4, K, 2, dtype=torch.float64)
    first, second = torch.randint(K, (4, 2)), torch.randint(K, (4, 2))
    mixed = (0.3 * F.one_hot(first, K).double() + 0.7 * F.one_hot(second, K).double()).movedim(-1, 1)
    expected = 0.3 * LOSSES[loss](logits, first, **settings) + 0.7 * LOSSES[loss](logits, second, **settings)
    assert_close(LOSSES[loss](logits, mixed, **settings), expected, rtol=1e-9, atol=1e-10)
    settings["reduction"] = "mean"
    assert_close(LOSSES[loss](logits, mixed, **settings), expected.mean(), rtol=1e-9, atol=1e-10)


@losses
@pytest.mark.parametrize("shape", [(K,), (4, K), (2, K, 3, 2), (0, K)], ids=str)
def test_shapes_of_cross_entropy(loss, shape):
    rows = () if len(shape) == 1 else (shape[0], *shape[2:])
    logits, target = torch.randn(shape), torch.randint(K, rows)
    for reduction in ("none", "mean"):
        expected = F.cross_entropy(logits, target, reduction=reduction)
        for wanted in (target, torch.randn(shape).softmax(0 if len(shape) == 1 else 1)):
            got = LOSSES[loss](logits, wanted, reduction=reduction)
            assert got.shape == expected.shape
            assert got.dtype == expected.dtype


# Derivatives, precision, transforms.


@losses
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_derivatives_and_transforms(loss, kind):
    logits, target = torch.randn(3, K, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, 4])
    if kind == "probabilities":
        target = torch.rand(3, K, dtype=torch.float64).softmax(1)

    def value(z: Tensor) -> Tensor:
        return LOSSES[loss](z, target)

    assert gradcheck(value, logits)
    assert gradgradcheck(value, logits)
    (gradient,) = torch.autograd.grad(value(logits), logits)
    logits = logits.detach()
    assert_close(grad(value)(logits), gradient)
    tangent = torch.randn_like(logits)
    assert_close(jvp(value, (logits,), (tangent,))[1], (gradient * tangent).sum())
    each = vmap(grad(LOSSES[loss]))(logits, target)
    assert_close(each.div(3), gradient)


@losses
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_extreme_logits_in_every_precision(loss, dtype, size, kind):
    logits = (size * torch.randn(6, K)).clamp(-2e4, 2e4).to(dtype)
    target = torch.tensor([0, 1, 2, 3, 4, 4])
    if kind == "probabilities":
        target = (0.6 * F.one_hot(target, K) + 0.4 * F.one_hot(target.flip(0), K)).to(dtype)
    results = []
    for z in (logits.double(), logits):
        leaf = z.clone().requires_grad_()
        value = LOSSES[loss](leaf, target.to(z.dtype) if kind == "probabilities" else target)
        results.append((value.detach().double(), torch.autograd.grad(value, leaf)[0].double()))
    assert results[1][0].isfinite()
    digits = {torch.float16: 5e-3, torch.float32: 1e-5}[dtype]
    assert_close(results[1], results[0], rtol=digits, atol=digits)


@losses
def test_masked_classes(loss):
    logits = torch.randn(2, K, dtype=torch.float64)
    logits[0, 1] = logits[1, 0] = -torch.inf
    logits.requires_grad_()
    target = torch.tensor([0, 4])
    for wanted in (target, F.one_hot(target, K).double()):
        if wanted is not target and loss != "ldam":
            continue  # cross entropy itself makes 0 times infinity of this
        rows = LOSSES[loss](logits, wanted, reduction="none")
        expected = F.cross_entropy(adjusted_by_hand(loss, logits.detach(), target), target, reduction="none")
        assert_close(rows, expected)
        (gradient,) = torch.autograd.grad(rows.sum(), logits)
        assert gradient.isfinite().all()
        assert gradient[0, 1] == gradient[1, 0] == 0


@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_compiled(kind):
    def all_losses(z: Tensor, t: Tensor) -> Tensor:
        return torch.stack([loss(z, t) for loss in LOSSES.values()]).sum()

    logits, target = torch.randn(6, K), torch.tensor([0, 4, 2, 1, 3, 3])
    if kind == "probabilities":
        target = F.one_hot(target, K).float() * 0.9 + 0.02
    compiled = torch.compile(all_losses, fullgraph=True, backend="aot_eager")
    results = []
    for function in (all_losses, compiled):
        leaf = logits.clone().requires_grad_()
        value = function(leaf, target)
        results.append((value.detach(), torch.autograd.grad(value, leaf)[0]))
    assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("mixed", [1.0, 0.7])
def test_ldam_of_probabilities_keeps_its_digits_in_float32(classes, mixed):
    """Where the correct class leads by its margin and more, 1 - p is nothing in float32 and the loss is not."""
    counts = [500, *[5] * (classes - 1)]
    gaps = torch.linspace(-0.4, 1.8, 45, dtype=torch.float64)
    cosines = torch.rand(45, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.1 - 0.9
    cosines[:, 1] = cosines[:, 0] + gaps
    target = torch.zeros(45, classes, dtype=torch.float64)
    target[:, 1], target[:, 0] = mixed, 1 - mixed

    margins = 0.5 * (5 / torch.tensor(counts, dtype=torch.float64)) ** 0.25
    rows = cosines.clone().requires_grad_()
    expected = torch.zeros(45, dtype=torch.float64)
    for k in (0, 1):  # what a row costs as each of its classes, written out: log(1 + sum of the others / own)
        others = torch.cat([rows[:, :k], rows[:, k + 1 :]], 1)
        odds = torch.logsumexp(30 * others, 1) - 30 * (rows[:, k] - margins[k])
        expected = expected + target[:, k] * torch.log1p(odds.exp())
    (slope,) = torch.autograd.grad(expected.sum(), rows)

    leaf = cosines.float().requires_grad_()
    found = ldam_loss(leaf, target.float(), counts, reduction="none")
    assert_close(found.double(), expected.detach(), rtol=1e-3, atol=1e-12)
    assert_close(torch.autograd.grad(found.sum(), leaf)[0].double(), slope, rtol=1e-3, atol=1e-9)


# What they are made of.


def test_offset_and_margin_may_be_learned():
    logits, target = torch.randn(4, K, dtype=torch.float64), torch.tensor([0, 1, 2, 3])
    offset = torch.randn(K, dtype=torch.float64, requires_grad=True)
    margin = torch.rand(K, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda o, m: adjusted_cross_entropy(logits, target, offset=o, margin=m), (offset, margin))


def test_adjusted_logits_are_for_any_loss():
    logits, target = torch.randn(4, K, dtype=torch.float64), torch.tensor([0, 1, -100, 3])
    offset, margin = logit_offset(COUNTS), ldam_margins(COUNTS)
    adjusted = adjust_logits(logits, target, offset=offset, margin=margin)
    assert_close(
        F.cross_entropy(adjusted, target), adjusted_cross_entropy(logits, target, offset=offset, margin=margin)
    )
    assert_close(focal_loss(adjusted, target, gamma=0), F.cross_entropy(adjusted, target))
    assert_close(adjusted[2], logits[2] + offset)
    soft = logits.softmax(1)
    assert_close(adjust_logits(logits, soft, offset=offset), logits + offset)
    with pytest.raises(ValueError, match="class indices"):
        adjust_logits(logits, soft, margin=margin)


def test_a_class_that_never_occurred_costs_no_nan():
    counts = [100, 0, 10]
    logits = torch.randn(3, 3, requires_grad=True)
    for loss in (logit_adjusted_cross_entropy, balanced_softmax_loss, ldam_loss, vs_loss):
        value = loss(logits, torch.tensor([0, 1, 2]), counts)
        (gradient,) = torch.autograd.grad(value, logits)
        assert value.isfinite()
        assert gradient.isfinite().all()


MODULES = {
    "adjusted": (LogitAdjustedLoss, logit_adjusted_cross_entropy, {"tau": 0.7}),
    "balanced": (BalancedSoftmaxLoss, balanced_softmax_loss, {}),
    "ldam": (LDAMLoss, ldam_loss, {"max_margin": 0.3, "scale": 10.0}),
    "vs": (VSLoss, vs_loss, {"gamma": 0.2, "tau": 1.2}),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_their_functions_with_a_memory(name):
    module, function, settings = MODULES[name]
    settings = {**settings, "weight": WEIGHT.float(), "ignore_index": 1, "reduction": "sum", "label_smoothing": 0.1}
    criterion = module(COUNTS, **settings)
    logits, target = torch.randn(6, K), torch.tensor([0, 1, 2, 3, 4, 4])
    assert isinstance(criterion, torch.nn.CrossEntropyLoss)
    assert_close(criterion(logits, target), function(logits, target, COUNTS, **settings))
    assert criterion.to(torch.float64)(logits.double(), target).dtype == torch.float64
    other = module([1] * K, **settings)
    other.load_state_dict(criterion.state_dict())
    assert_close(other(logits, target), criterion(logits, target), rtol=1e-6, atol=1e-6)


def test_modules_show_their_settings():
    assert repr(LogitAdjustedLoss([2, 1], tau=0.5)) == "LogitAdjustedLoss(tau=0.5)"
    assert repr(BalancedSoftmaxLoss([2, 1])) == "BalancedSoftmaxLoss()"
    assert repr(LDAMLoss([2, 1])) == "LDAMLoss(max_margin=0.5, scale=30.0)"
    assert repr(VSLoss([2, 1])) == "VSLoss(gamma=0.3, tau=1.0)"
