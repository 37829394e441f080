"""Tensors whose storage was freed or cut after they were made: an error, as cross entropy gives, and no crash."""

import itertools
import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from evenhand.losses import linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import (
    adjust_logits,
    adjusted_cross_entropy,
    complement_cross_entropy,
    complement_entropy,
    focal_loss,
    logit_adjusted_cross_entropy,
)
from evenhand.losses.kernels import native

from .isolated import outcomes

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
pytestmark = pytest.mark.parametrize("backend", ["eager", pytest.param("native", marks=needs_kernel)])
N, K = 6, 5


def freed(x: Tensor) -> Tensor:
    x.untyped_storage().resize_(0)
    return x


def cut(x: Tensor) -> Tensor:
    """Leave all but the last element."""
    x.untyped_storage().resize_(x.untyped_storage().nbytes() - x.element_size())
    return x


def freed_view(x: Tensor) -> Tensor:
    """Free the storage of a view, whose address is not 0 then."""
    return freed(torch.cat([x, x, x])[len(x) : 2 * len(x)])


def cut_view(x: Tensor) -> Tensor:
    """Leave as many bytes as the view has, but they lie before it."""
    view = torch.cat([x, x])[len(x) :]
    view.untyped_storage().resize_(view.nbytes)
    return view


def freed_stride(x: Tensor) -> Tensor:
    """Free a tensor with gaps, which would be copied first."""
    return freed(torch.stack([x, x], -1)[..., 0])


def freed_expanded(x: Tensor) -> Tensor:
    return freed(x[:1].clone().expand(x.shape))


WAYS = [freed, cut, freed_view, cut_view, freed_stride, freed_expanded]


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    vectors = {name: torch.rand(K) for name in ("weight", "offset", "margin", "share")}
    return {"input": torch.randn(N, K), "target": torch.arange(N) % K, **vectors}


def answers(calls: dict[str, Callable[[], object]], backend: str) -> dict[str, str]:
    """All calls in one process, since to start one takes longer."""
    set_backend(backend)
    return outcomes(calls)


def check_refused(calls: dict[str, Callable[[], object]], backend: str) -> None:
    """The first word of a call is the argument that the error must name."""
    for call, answer in answers(calls, backend).items():
        name = call.split()[0]
        expected = rf"RuntimeError: {name} of shape \(.*\) needs a storage of \d+ bytes, got \d+: "
        assert re.match(expected, answer), (call, answer)


def cce(broken: str, way: Callable[[Tensor], Tensor]) -> Tensor:
    given = tensors()
    given[broken] = way(given[broken])
    return complement_cross_entropy(**given)


def test_arguments_of_cce(backend):
    pairs = itertools.product(tensors(), WAYS)
    check_refused({f"{name} {way.__name__}": partial(cce, name, way) for name, way in pairs}, backend)


def linear(broken: str, way: Callable[[Tensor], Tensor]) -> Tensor:
    given = tensors()
    given["class_weight"] = given.pop("weight")
    given |= {"features": given.pop("input"), "weight": torch.randn(K, K), "bias": torch.rand(K)}
    given[broken] = way(given[broken])
    return linear_complement_cross_entropy(**given)


LINEAR = {name: name for name in ("features", "weight", "bias", "target", "offset", "margin", "share")}
LINEAR["class_weight"] = "weight"  # as the error names it


def test_arguments_of_the_linear_loss(backend):
    pairs = itertools.product(LINEAR, WAYS)
    calls = {f"{LINEAR[name]} {name} {way.__name__}": partial(linear, name, way) for name, way in pairs}
    assert len(calls) == len(LINEAR) * len(WAYS)
    check_refused(calls, backend)


TARGET = torch.arange(N) % K
CALLS = {
    "input of complement entropy": lambda: complement_entropy(freed(torch.zeros(N, K)), TARGET),
    "input of bfloat16": lambda: complement_cross_entropy(freed(torch.zeros(N, K).bfloat16()), TARGET),
    "input of float64": lambda: complement_cross_entropy(freed(torch.zeros(N, K).double()), TARGET),
    "input of images": lambda: complement_cross_entropy(cut(torch.zeros(N, K, 2)), torch.zeros(N, 2).long()),
    "input with an ignore_index that no target can be": lambda: complement_cross_entropy(
        freed(torch.zeros(N, K)), TARGET, ignore_index=2**63
    ),
    "input of many rows": lambda: complement_cross_entropy(cut(torch.zeros(70_000, K)), torch.zeros(70_000).long()),
    "target of many rows": lambda: complement_cross_entropy(torch.zeros(70_000, K), freed(torch.zeros(70_000).long())),
    "target of probabilities": lambda: complement_cross_entropy(torch.zeros(N, K), freed(torch.ones(N, K) / K)),
    "counts": lambda: complement_cross_entropy(torch.zeros(N, K), TARGET, counts=freed(torch.ones(K))),
    "counts of logit adjustment": lambda: logit_adjusted_cross_entropy(torch.zeros(N, K), TARGET, freed(torch.ones(K))),
    "offset of adjusted cross entropy": lambda: adjusted_cross_entropy(
        torch.zeros(N, K), TARGET, offset=freed(torch.ones(K))
    ),
    "margin": lambda: adjust_logits(torch.zeros(N, K), TARGET, margin=freed(torch.ones(K))),
    "alpha": lambda: focal_loss(torch.zeros(N, K), TARGET, alpha=freed(torch.ones(K))),
    "target of the focal loss": lambda: focal_loss(torch.zeros(N, K), freed(TARGET.clone())),
}


def test_other_losses_and_dtypes(backend):
    check_refused(CALLS, backend)


def freed_before_differentiation(name: str) -> tuple[Tensor, ...]:
    given = tensors()
    given["input"].requires_grad_()
    loss = complement_cross_entropy(**given)
    given[name].data.untyped_storage().resize_(0)
    return torch.autograd.grad(loss, given["input"], create_graph=True)


def test_what_is_freed_before_the_gradient_is_differentiated(backend):
    calls = {name: partial(freed_before_differentiation, name) for name in ("input", "target", "weight", "offset")}
    for name, answer in answers(calls, backend).items():
        taken = backend == "eager" and name == "weight"  # which it has taken the values of
        assert answer.startswith("value" if taken else "RuntimeError: "), (name, answer)


def freed_upstream(reduction: str, kept: bool, create_graph: bool) -> tuple[Tensor, ...]:
    logits = torch.randn(N, K, requires_grad=True)
    loss = complement_cross_entropy(logits, TARGET, reduction=reduction)
    upstream = freed(torch.ones_like(loss))
    return torch.autograd.grad(loss, logits, upstream, retain_graph=kept or create_graph, create_graph=create_graph)


def test_an_upstream_gradient(backend):
    kinds = itertools.product(["mean", "none"], [False, True], [False, True])
    calls = {str(kind): partial(freed_upstream, *kind) for kind in kinds}
    for kind, answer in answers(calls, backend).items():
        assert answer.startswith("RuntimeError: "), (kind, answer)


def test_storages_that_are_whole_are_taken(backend):
    """Views at the end of a longer storage, and tensors without elements, have all they need."""
    set_backend(backend)
    given = tensors()
    expected = complement_cross_entropy(**given)
    views = {name: torch.cat([x, x])[len(x) :] for name, x in given.items()}
    assert complement_cross_entropy(**views) == expected
    assert complement_cross_entropy(freed(torch.zeros(0, K)), freed(torch.zeros(0).long())).isnan()
