"""The gradients are those of equations 1 to 5, to any order, however backward is called."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from evenhand.losses import functional as ours

from . import reference
from .cases import batches, every_backend, repeatable

TOLERANCE = {
    torch.float64: {"rtol": 1e-7, "atol": 1e-9},
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
}
precisions = st.sampled_from(list(TOLERANCE))


def random_batch(*shape: int, dtype=torch.float64, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(shape, generator=generator, dtype=dtype)
    rows = (shape[0], *shape[2:])
    return logits.requires_grad_(), torch.randint(shape[1], rows, generator=generator)


def gradient_by_equations(rows, batch: tuple[Tensor, Tensor], upstream: Tensor) -> Tensor:
    """Differentiate a reference by autograd; the gradient has the shape of the logits."""
    logits = batch[0].double().detach().requires_grad_()
    expected = rows(*reference.flat_rows(logits, batch[1]))
    (gradient,) = torch.autograd.grad(expected, logits, upstream.double().flatten())
    return gradient


def check(loss, rows, batch: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    """Compare gradients under an upstream gradient that differs from row to row, zero and negative included."""
    logits, target = batch[0].to(dtype).requires_grad_(), batch[1]
    upstream = torch.linspace(-1, 2, max(target.numel(), 4), dtype=dtype)[: target.numel()].reshape(target.shape)
    (gradient,) = torch.autograd.grad(loss(logits, target, reduction="none"), logits, upstream)
    assert gradient.dtype == dtype
    expected = gradient_by_equations(rows, (logits, target), upstream)
    assert_close(gradient, expected.to(dtype), **TOLERANCE[dtype])


@every_backend
@repeatable
@given(batch=batches(), dtype=precisions, balanced=st.booleans())
def test_gradient_of_the_complement_entropy(batch, dtype, balanced):
    def loss(*args, **kwargs):
        return ours.complement_entropy(*args, balanced=balanced, **kwargs)

    def equation(logits, target):
        factor = 1 / (logits.shape[1] - 1) if balanced else 1.0
        return factor * reference.complement_entropy(logits, target)

    check(loss, equation, batch, dtype)


@every_backend
@repeatable
@given(batch=batches(), dtype=precisions, gamma=st.sampled_from([-5.0, -1.0, -0.3, 0.0, 0.5, 1.0, 7.0]))
def test_gradient_of_the_complement_cross_entropy(batch, dtype, gamma):
    def loss(*args, **kwargs):
        return ours.complement_cross_entropy(*args, gamma=gamma, **kwargs)

    def equation(logits, target):
        return reference.complement_cross_entropy(logits, target, gamma)

    check(loss, equation, batch, dtype)


LOSSES = {
    "complement entropy": lambda z, t: ours.complement_entropy(z, t),
    "balanced": lambda z, t: ours.complement_entropy(z, t, balanced=True, reduction="sum"),
    "paper": lambda z, t: ours.complement_cross_entropy(z, t),
    "gamma 2": lambda z, t: ours.complement_cross_entropy(z, t, gamma=2.0, reduction="none"),
    "smoothed": lambda z, t: ours.complement_cross_entropy(z, t, label_smoothing=0.1),
    "ignoring class 1": lambda z, t: ours.complement_cross_entropy(z, t, ignore_index=1, reduction="sum"),
    "focal": lambda z, t: ours.focal_loss(z, t),
}
INPUTS = {
    "index": (random_batch(3, 4)[0], torch.tensor([0, 1, 3])),
    "index, (2, 3, 2)": (random_batch(2, 3, 2)[0], torch.tensor([[0, 2], [1, 2]])),
    # Rows: one correct class, two that tie, all tied, and three different ones, of which one is incorrect.
    "probabilities": (
        random_batch(4, 4)[0],
        torch.tensor([[0.7, 0.1, 0.1, 0.1], [0, 0.5, 0.5, 0], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64),
    ),
}


@pytest.mark.parametrize(
    ("loss", "target"),
    [pair for pair in product(LOSSES, INPUTS) if pair != ("ignoring class 1", "probabilities")],
)
def test_first_and_second_derivatives_agree_with_differences(loss, target):
    logits, wanted = INPUTS[target]
    logits = logits.detach().clone().requires_grad_()
    assert gradcheck(lambda z: LOSSES[loss](z, wanted), logits)
    assert gradgradcheck(lambda z: LOSSES[loss](z, wanted), logits)


def test_derivatives_where_classes_are_masked():
    """Differences cannot step away from -inf, so the other classes are moved and the masked ones stay."""
    free, mask = torch.randn(2, 3, dtype=torch.float64, requires_grad=True), torch.full((2, 2), -torch.inf).double()

    def loss(z: Tensor) -> Tensor:
        return ours.complement_cross_entropy(torch.cat([z, mask], 1), torch.tensor([0, 2]), reduction="none")

    assert gradcheck(loss, free)
    assert gradgradcheck(loss, free)


@pytest.mark.parametrize("loss", LOSSES)
def test_logits_are_never_written_to(loss):
    logits, target = random_batch(5, 4, 3)
    before = logits.detach().clone()
    version = logits._version
    value = LOSSES[loss](logits, target).sum()
    torch.autograd.grad(value, logits, retain_graph=True)
    torch.autograd.grad(value, logits, create_graph=True)
    assert torch.equal(logits, before)
    assert logits._version == version


@pytest.mark.parametrize("loss", LOSSES)
def test_a_kept_graph_gives_the_same_gradient_again(loss):
    logits, target = random_batch(5, 4)
    value = LOSSES[loss](logits, target).sum()
    gradients = [torch.autograd.grad(value, logits, torch.tensor(s).double(), retain_graph=True)[0] for s in (3, 1, 3)]
    gradients += torch.autograd.grad(value, logits, torch.tensor(3.0).double())  # the last, which need keep nothing
    assert_close(gradients[0], gradients[2], rtol=0, atol=0)
    assert_close(gradients[0], 3 * gradients[1], rtol=1e-12, atol=0)
    assert_close(gradients[0], gradients[3], rtol=0, atol=0)


@pytest.mark.parametrize("loss", LOSSES)
def test_many_upstream_gradients_at_a_time(loss):
    logits, target = random_batch(5, 4)
    value = LOSSES[loss](logits, target)
    upstream = torch.randn(3, *value.shape, dtype=torch.float64)
    each = [torch.autograd.grad(value, logits, one, retain_graph=True)[0] for one in upstream]
    (together,) = torch.autograd.grad(value, logits, upstream, is_grads_batched=True)
    assert_close(together, torch.stack(each))


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_the_same_when_it_is_to_be_differentiated_again(loss):
    logits, target = random_batch(6, 5, 2)
    value = LOSSES[loss](logits, target).sum()
    (once,) = torch.autograd.grad(value, logits, retain_graph=True)
    (again,) = torch.autograd.grad(value, logits, create_graph=True)
    assert again.requires_grad
    assert_close(once, again.detach(), rtol=1e-12, atol=1e-15)


def test_gradients_accumulate_over_parts_of_a_batch():
    logits, target = random_batch(6, 5)
    ours.complement_cross_entropy(logits, target, reduction="sum").backward()
    whole, logits.grad = logits.grad, None
    for part in (slice(0, 2), slice(2, 6)):
        ours.complement_cross_entropy(logits[part], target[part], reduction="sum").backward()
    assert_close(logits.grad, whole, rtol=1e-14, atol=0)


def test_the_result_may_be_changed_in_place_before_backward():
    logits, target = random_batch(6, 5)
    rows = ours.complement_cross_entropy(logits, target, reduction="none")
    rows.mul_(2.0).sum().backward()
    expected = gradient_by_equations(
        lambda z, t: reference.complement_cross_entropy(z, t, -1.0), (logits, target), torch.full((6,), 2.0)
    )
    assert_close(logits.grad, expected)


def test_gradient_reaches_the_layer_below():
    torch.manual_seed(0)
    layer, images = torch.nn.Linear(7, 4).double(), torch.randn(5, 7, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, 0])
    ours.complement_cross_entropy(layer(images), target).backward()
    got, layer.weight.grad = layer.weight.grad, None
    reference.complement_cross_entropy(layer(images), target, -1.0).mean().backward()
    assert_close(got, layer.weight.grad)
