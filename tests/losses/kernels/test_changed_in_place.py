"""Tensors that are changed in place between the loss and its gradient: autograd refuses, or the gradient is right."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand import ComplementCrossEntropyLoss
from evenhand.losses import linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import complement_cross_entropy, complement_entropy
from evenhand.losses.kernels import native
from evenhand.losses.kernels.operators import complement_cross_entropy as operator

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
N, K = 6, 5


@pytest.fixture(params=["eager", pytest.param("native", marks=needs_kernel)], autouse=True)
def backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    vectors = {name: torch.rand(K) for name in ("weight", "offset", "margin", "share")}
    return {"input": torch.randn(N, K, requires_grad=True), "target": torch.arange(N) % K, **vectors}


def change(x: Tensor) -> None:
    with torch.no_grad():
        x.copy_(x.flip(0))


def by_operator(input: Tensor, target: Tensor, weight: Tensor, offset: Tensor, margin: Tensor, share: Tensor) -> Tensor:
    return operator(input, target, weight, offset, margin, -share, 0.0, True, -100, "mean", True)[0]


def gradient_or_refusal(loss: Tensor, input: Tensor, create_graph: bool) -> Tensor | None:
    """Return the gradient, or None where autograd has noticed the change."""
    try:
        return torch.autograd.grad(loss, input, create_graph=create_graph)[0]
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return None
        raise


LOSSES = {
    "mean": complement_cross_entropy,
    "none": lambda **given: complement_cross_entropy(**given, reduction="none").sum(),
    "operator": by_operator,
}


@pytest.mark.parametrize("create_graph", [True, False])
@pytest.mark.parametrize("name", list(tensors()))
@pytest.mark.parametrize("loss", LOSSES)
def test_never_a_gradient_of_something_else(loss, name, create_graph, backend):
    given = tensors()
    (expected,) = torch.autograd.grad(LOSSES[loss](**given), given["input"])
    value = LOSSES[loss](**given)
    change(given[name])
    gradient = gradient_or_refusal(value, given["input"], create_graph)
    assert gradient is None or backend == "eager" or name == "share", "the kernels refuse whatever they were given"
    assert_close(expected if gradient is None else gradient, expected)


def to_bytes(x: Tensor) -> tuple[bytes, torch.dtype, torch.Size]:
    return x.detach().numpy().tobytes(), x.dtype, x.shape


def from_bytes(packed: tuple[bytes, torch.dtype, torch.Size]) -> Tensor:
    data, dtype, shape = packed
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)


HOOKS = {
    "copies": lambda: torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda x: x),
    "bytes": lambda: torch.autograd.graph.saved_tensors_hooks(to_bytes, from_bytes),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("loss", LOSSES)
def test_saved_copies_are_used_instead_of_what_has_changed(hook, loss):
    """Hooks take the saved tensors elsewhere, where autograd notices no change: only the copies are right."""
    for name in tensors():
        given = tensors()
        (expected,) = torch.autograd.grad(LOSSES[loss](**given), given["input"])
        with HOOKS[hook]():
            value = LOSSES[loss](**given)
        change(given[name])
        assert_close(torch.autograd.grad(value, given["input"], create_graph=True)[0], expected)


@needs_kernel
@pytest.mark.parametrize("name", ["target", "weight"])
@pytest.mark.parametrize("create_graph", [True, False])
def test_as_cross_entropy(name, create_graph):
    for loss in (F.cross_entropy, complement_cross_entropy, complement_entropy):
        set_backend("native")
        given = {key: value for key, value in tensors().items() if key in ("input", "target", "weight")}
        value = loss(**given)
        change(given[name])
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(value, given["input"], create_graph=create_graph)


def test_a_module_whose_weight_changes():
    criterion = ComplementCrossEntropyLoss(weight=torch.rand(K))
    logits = torch.randn(N, K, requires_grad=True)
    loss = criterion(logits, torch.arange(N) % K)
    before = copy.deepcopy(criterion)
    change(criterion.weight)
    gradient = gradient_or_refusal(loss, logits, True)
    if gradient is not None:
        assert_close(gradient, *torch.autograd.grad(before(logits, torch.arange(N) % K), logits))


@pytest.mark.parametrize("kept", [{"retain_graph": True}, {"create_graph": True}], ids=str)
def test_a_gradient_that_is_asked_for_twice(kept):
    """Nothing has changed, so nothing is refused, and the second answer is the first."""
    given = tensors()
    value = complement_cross_entropy(**given)
    first = torch.autograd.grad(value, given["input"], **kept)[0].detach().clone()
    assert_close(torch.autograd.grad(value, given["input"], **kept)[0], first)


def test_a_changed_copy_is_none_of_our_business():
    given = tensors()
    value = complement_cross_entropy(**given)
    for x in given.values():
        change(x.detach().clone())
    torch.autograd.grad(value, given["input"], create_graph=True)


def test_second_derivatives_of_every_vector():
    """What is saved is what the second derivative is computed from."""
    given = tensors()
    wide = {name: x if name == "target" else x.detach().double() for name, x in given.items()}

    def hessian(given: dict[str, Tensor]) -> Tensor:
        rest = {name: x for name, x in given.items() if name != "input"}
        return torch.autograd.functional.hessian(
            lambda z: complement_cross_entropy(z, **rest), given["input"].detach()
        ).double()

    assert_close(hessian(given), hessian(wide), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("by", ["function", "operator"])
def test_the_linear_loss_is_differentiated_once(by):
    from evenhand.losses.kernels.linear_operator import linear_complement_cross_entropy as linear_operator

    features, weight = torch.randn(N, 4, requires_grad=True), torch.randn(K, 4, requires_grad=True)
    target = torch.arange(N) % K
    if by == "function":
        loss = linear_complement_cross_entropy(features, target, weight)
    else:
        wanted = [True, True, False]
        loss = linear_operator(features, weight, None, target, None, None, None, None, -0.25, -100, "mean", wanted)[0]
    with pytest.raises(RuntimeError, match="differentiated once"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_the_linear_loss_has_worked_its_gradient_out_before_anything_changes():
    features, weight = torch.randn(N, 4, requires_grad=True), torch.randn(K, 4, requires_grad=True)
    target, class_weight = torch.arange(N) % K, torch.rand(K)
    expected = torch.autograd.grad(
        complement_cross_entropy(features @ weight.t(), target, class_weight), (features, weight)
    )
    loss = linear_complement_cross_entropy(features, target, weight, None, class_weight)
    for x in (features, target, weight, class_weight):
        change(x)
    assert_close(torch.autograd.grad(loss, (features, weight)), expected)
