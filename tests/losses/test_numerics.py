"""No digits are lost on confident rows, and nothing is NaN or infinite that has a finite answer."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import functional as ours

from . import reference
from .cases import every_backend, hard_rows, repeatable

LIMIT = 1e-5  # the largest error allowed in a row's gradient, as a share of its largest entry
SMALLEST = 1e-30  # ... wherever that entry exceeds this

HARD = {
    "flat": [3.0, 1.0, 1.0, 1.0, 1.0],
    "a hair from flat": [3.0, 1.0, 1.0000001192092896, 1.0, 1.0],
    "near tie at the top": [30.0, 1.0, 1.0009765625, -4.0, -5.5],
    "one wrong class ahead by 20": [48.0, 20.0, 0.0, 0.5, -1.0],
    "one wrong class ahead by 65": [0.0, 65.0, 0.25, -1.5, 0.0],
    "1 - p_g = 1e-12": [27.625, -1.0, -2.0, 0.0, -0.5],
    "sizes of 1e4": [1e4, 9970.0, 9969.5, -1e4, 9960.25],
    "the correct class far behind": [-1e4, 1e4, 9999.0, 9950.0, 9997.5],
    "two wrong classes": [10.0, 0.0, -3.0],
    "one wrong class": [5.0, 0.0],
}


def share_of_largest(error: Tensor, gradient: Tensor) -> float:
    """Return the largest error of the rows that count, each as a share of the row's largest gradient."""
    largest = gradient.abs().amax(1)
    counts = largest > SMALLEST
    return (error.abs().amax(1)[counts] / largest[counts]).max().item() if counts.any() else 0.0


@pytest.mark.parametrize("case", HARD)
def test_the_float64_reference_is_exact(case):
    row = torch.tensor(HARD[case]).tolist()  # as float32 has them
    exact = torch.tensor(reference.exact_complement_gradient(row, 0), dtype=torch.float64)
    precise = reference.precise_complement_gradient(torch.tensor([row], dtype=torch.float64), torch.tensor([0]))[0]
    assert_close(precise, exact, rtol=0, atol=1e-12 * exact.abs().max().item() + 1e-60)


@settings(repeatable, max_examples=10)
@given(
    row=st.lists(st.floats(-60, 60, width=32), min_size=3, max_size=6), offset=st.sampled_from([0.0, 9000.0, -9000.0])
)
def test_the_float64_reference_is_exact_for_drawn_rows(row, offset):
    row = torch.tensor(row).add(offset).tolist()
    exact = torch.tensor([reference.exact_complement_gradient(row, 1)], dtype=torch.float64)
    precise = reference.precise_complement_gradient(torch.tensor([row], dtype=torch.float64), torch.tensor([1]))
    assert share_of_largest(precise - exact, exact) < 1e-11


def complement_gradient(logits: Tensor, target: Tensor, *, twice_differentiable: bool = False) -> Tensor:
    logits = logits.detach().requires_grad_()
    value = ours.complement_entropy(logits, target, reduction="sum")
    return torch.autograd.grad(value, logits, create_graph=twice_differentiable)[0].detach()


@every_backend
@pytest.mark.parametrize("case", HARD)
def test_float32_gradient_of_hard_rows(case):
    logits, target = torch.tensor([HARD[case]]), torch.tensor([0])
    exact = torch.tensor([reference.exact_complement_gradient(logits[0].tolist(), 0)], dtype=torch.float64)
    assert share_of_largest(complement_gradient(logits, target) - exact, exact) <= LIMIT


hard_calls = given(batch=hard_rows(), twice_differentiable=st.booleans(), inner=st.booleans())


def check_complement_gradient(batch: tuple[Tensor, Tensor], twice_differentiable: bool, inner: bool) -> None:
    logits, target = batch
    exact = reference.precise_complement_gradient(logits, target)
    if inner:  # the same rows in the layout of an image, (1, K, N): classes lie apart in memory
        gradient = complement_gradient(logits.T[None].contiguous(), target[None])[0].T
    else:
        gradient = complement_gradient(logits, target, twice_differentiable=twice_differentiable)
    assert share_of_largest(gradient.double() - exact, exact) <= LIMIT


@every_backend
@settings(repeatable, max_examples=400)
@hard_calls
def test_float32_gradient_of_the_complement_entropy(batch, twice_differentiable, inner):
    check_complement_gradient(batch, twice_differentiable, inner)


@every_backend
@pytest.mark.slow
@settings(repeatable, max_examples=3000)
@hard_calls
def test_float32_gradient_of_the_complement_entropy_of_many_rows(batch, twice_differentiable, inner):
    check_complement_gradient(batch, twice_differentiable, inner)


@every_backend
@settings(repeatable, max_examples=200)
@given(batch=hard_rows(), gamma=st.sampled_from([-1.0, -0.1, 2.0]))
def test_float32_gradient_of_the_whole_loss(batch, gamma):
    logits, target = batch
    share = gamma / (logits.shape[1] - 1)
    h = reference.precise_cross_entropy_gradient(logits, target)
    c = share * reference.precise_complement_gradient(logits, target)
    logits.requires_grad_()
    loss = ours.complement_cross_entropy(logits, target, gamma=gamma, reduction="none")
    assert loss.isfinite().all()
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    # The two parts may nearly cancel: the error is held against their sizes.
    assert share_of_largest(gradient - (h + c), h.abs() + c.abs()) <= LIMIT


@every_backend
@settings(repeatable, max_examples=150)
@given(batch=hard_rows())
def test_float32_values(batch):
    logits, target = batch
    rest = logits.double().scatter(1, target[:, None], -torch.inf)
    q = rest.softmax(1)
    entropy = torch.special.entr(q).sum(1)
    got = ours.complement_entropy(logits, target, reduction="none")
    assert_close(got.double(), entropy, rtol=1e-5, atol=1e-6)


HALVES = [torch.float16, torch.bfloat16]
LOSSES = {
    "complement entropy": lambda *args, **kwargs: ours.complement_entropy(*args, **kwargs),
    "cce": lambda *args, **kwargs: ours.complement_cross_entropy(*args, **kwargs),
    "smoothed": lambda *args, **kwargs: ours.complement_cross_entropy(*args, label_smoothing=0.1, **kwargs),
    "focal": lambda *args, **kwargs: ours.focal_loss(*args, **kwargs),
}


def value_and_gradient(loss, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    logits = logits.detach().clone().requires_grad_()
    value = loss(logits, target)
    value.backward()
    return value.detach(), logits.grad


KERNEL_LOSSES = ("complement entropy", "cce")


@every_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("loss", KERNEL_LOSSES)
def test_confident_rows_by_a_kernel(loss, dtype):
    check_confident_rows(loss, dtype)


@pytest.mark.parametrize("dtype", [*HALVES, torch.float32])
@pytest.mark.parametrize("loss", ["smoothed", "focal"])
def test_confident_rows(loss, dtype):
    check_confident_rows(loss, dtype)


def check_confident_rows(loss: str, dtype: torch.dtype) -> None:
    for k in (2, 3, 10, 100):
        for ahead in (20.0, 100.0, 1e4, -1e4):
            check_rows_ahead(loss, ahead, k, dtype)


def check_rows_ahead(loss: str, ahead: float, k: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = torch.randn(4, k).to(dtype)
    target = torch.tensor([0, 1, k - 1, 0])
    logits[torch.arange(4), target] = ahead
    value, gradient = value_and_gradient(LOSSES[loss], logits, target)
    assert value.isfinite()
    assert gradient.isfinite().all()
    # The same numbers in float64, where the losses were compared with the equations.
    true_value, true_gradient = value_and_gradient(LOSSES[loss], logits.double(), target)
    digits = {torch.float16: 2e-3, torch.bfloat16: 1e-2, torch.float32: 1e-5}[dtype]
    case = f"{k} classes, ahead by {ahead}"
    assert_close(value.double(), true_value, rtol=digits, atol=1e-6, msg=lambda text: f"{case}: {text}")
    atol = digits * true_gradient.abs().max().item() + 1e-7  # float16 knows nothing smaller
    assert_close(gradient.double(), true_gradient, rtol=digits, atol=atol, msg=lambda text: f"{case}: {text}")


@every_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("loss", KERNEL_LOSSES)
@pytest.mark.parametrize("again", [False, True])
def test_masked_classes_are_absent_from_the_softmax(loss, dtype, again):
    logits = torch.tensor([[2.0, -torch.inf, 0.5, -1.0, -torch.inf], [-torch.inf, 20.0, 0.0, -3.0, 0.25]], dtype=dtype)
    target = torch.tensor([0, 1])
    logits.requires_grad_()
    value = LOSSES[loss](logits, target, reduction="none")
    (gradient,) = torch.autograd.grad(value.sum(), logits, create_graph=again)
    expected = []
    for row, g in zip(logits.tolist(), target.tolist(), strict=True):
        c, h = reference.exact_complement_entropy(row, g), reference.exact_cross_entropy(row, g)
        expected.append(h - c / 4 if loss == "cce" else c)  # masked classes count in K = 5
    digits = {torch.bfloat16: 8e-3, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    assert_close(value.double(), torch.tensor(expected, dtype=torch.float64), rtol=digits, atol=0)
    assert gradient.isfinite().all()
    assert (gradient[logits == -torch.inf] == 0).all()
    assert (gradient[0, 2:4] != 0).all()


@every_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [2, 50])
@pytest.mark.parametrize("again", [False, True])
def test_no_complement_where_every_wrong_class_is_masked(k, dtype, again):
    logits = torch.full((2, k), -torch.inf, dtype=dtype)
    logits[0, 0], logits[1, 1] = 3.0, -8.0
    logits.requires_grad_()
    target = torch.tensor([0, 1])
    for loss in (ours.complement_entropy, ours.complement_cross_entropy):
        value = loss(logits, target, reduction="none")
        (gradient,) = torch.autograd.grad(value.sum(), logits, create_graph=again)
        assert (value == 0).all()
        assert (gradient == 0).all()


@every_backend
def test_a_masked_correct_class_has_infinite_loss_as_in_cross_entropy():
    logits = torch.tensor([[-torch.inf, 1.0, 2.0]], requires_grad=True)
    loss = ours.complement_cross_entropy(logits, torch.tensor([0]))
    loss.backward()
    assert loss.item() == math.inf
    assert logits.grad.isfinite().all()
    assert ours.complement_entropy(logits, torch.tensor([0])).isfinite()


@every_backend
@pytest.mark.parametrize("loss", KERNEL_LOSSES)
def test_nan_logits_stay_in_their_row_in_a_kernel(loss):
    check_nan(loss)


@pytest.mark.parametrize("loss", ["smoothed", "focal"])
def test_nan_logits_are_not_hidden_and_stay_in_their_row(loss):
    check_nan(loss)


def check_nan(loss: str) -> None:
    for place, target in product((0, 2), (torch.tensor([0, 1]), torch.eye(4)[:2])):
        logits = torch.randn(2, 4)
        logits[0, place] = torch.nan
        rows = LOSSES[loss](logits, target, reduction="none")
        assert rows.isnan().tolist() == [True, False]
