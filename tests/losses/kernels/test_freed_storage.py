"""Tensors whose storage was freed or cut after they were made: an error, as cross entropy gives, and no crash."""

import re

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

from .isolated import outcome

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
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def tensors() -> dict[str, Tensor]:
    torch.manual_seed(0)
    vectors = {name: torch.rand(K) for name in ("weight", "offset", "margin", "share")}
    return {"input": torch.randn(N, K), "target": torch.arange(N) % K, **vectors}


def refused(call, name: str) -> None:
    answer = outcome(call)
    assert re.match(rf"RuntimeError: {name} of shape \(.*\) needs a storage of \d+ bytes, got \d+: ", answer), answer


@ways
@pytest.mark.parametrize("name", list(tensors()))
def test_arguments_of_cce(name, way, backend):
    given = tensors()

    def call() -> Tensor:
        set_backend(backend)
        given[name] = way(given[name])
        return complement_cross_entropy(**given)

    refused(call, name)


def linear(broken: str, way) -> Tensor:
    given = tensors()
    given["class_weight"] = given.pop("weight")
    given |= {"features": given.pop("input"), "weight": torch.randn(K, K), "bias": torch.rand(K)}
    given[broken] = way(given[broken])
    return linear_complement_cross_entropy(**given)


@ways
@pytest.mark.parametrize("name", ["features", "weight", "bias", "target", "class_weight", "offset", "margin", "share"])
def test_arguments_of_the_linear_loss(name, way, backend):
    def call() -> Tensor:
        set_backend(backend)
        return linear(name, way)

    refused(call, "weight" if name == "class_weight" else name)


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


@pytest.mark.parametrize("name", CALLS)
def test_other_losses_and_dtypes(name, backend):
    def call() -> Tensor:
        set_backend(backend)
        return CALLS[name]()

    refused(call, name.split()[0])


@pytest.mark.parametrize("name", ["input", "target", "weight", "offset"])
def test_what_is_freed_before_the_gradient_is_differentiated(name, backend):
    given = tensors()
    given["input"].requires_grad_()

    def call() -> tuple[Tensor, ...]:
        set_backend(backend)
        loss = complement_cross_entropy(**given)
        given[name].data.untyped_storage().resize_(0)
        return torch.autograd.grad(loss, given["input"], create_graph=True)

    answer = outcome(call)
    if backend == "eager" and name == "weight":  # which it has taken the values of
        assert answer.startswith("value")
    else:
        assert answer.startswith("RuntimeError: "), answer


@pytest.mark.parametrize("kept", [False, True], ids=["once", "graph kept"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_an_upstream_gradient(reduction, kept, create_graph, backend):
    def call() -> tuple[Tensor, ...]:
        set_backend(backend)
        logits = torch.randn(N, K, requires_grad=True)
        loss = complement_cross_entropy(logits, TARGET, reduction=reduction)
        upstream = freed(torch.ones_like(loss))
        return torch.autograd.grad(loss, logits, upstream, retain_graph=kept or create_graph, create_graph=create_graph)

    answer = outcome(call)
    assert answer.startswith("RuntimeError: "), answer


def test_storages_that_are_whole_are_taken(backend):
    """Views at the end of a longer storage, and tensors without elements, have all they need."""
    set_backend(backend)
    given = tensors()
    expected = complement_cross_entropy(**given)
    views = {name: torch.cat([x, x])[len(x) :] for name, x in given.items()}
    assert complement_cross_entropy(**views) == expected
    assert complement_cross_entropy(freed(torch.zeros(0, K)), freed(torch.zeros(0).long())).isnan()
