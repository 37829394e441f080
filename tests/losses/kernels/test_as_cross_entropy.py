"""What breaks cross entropy breaks complement cross entropy in the same way, and nothing else does."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from evenhand import ComplementCrossEntropyLoss
from evenhand.losses import set_backend
from evenhand.losses.functional import complement_cross_entropy
from evenhand.losses.kernels import native

from .isolated import outcomes

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
N, K = 6, 5
LOSSES = {
    "cross entropy": F.cross_entropy,
    "function": complement_cross_entropy,
    "module": lambda z, t, w=None, **given: ComplementCrossEntropyLoss(weight=w, **given)(z, t),
}


@pytest.fixture(params=["eager", pytest.param("native", marks=needs_kernel)], autouse=True)
def backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")


def freed(x: Tensor) -> Tensor:
    x.untyped_storage().resize_(0)
    return x


def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(N, K), torch.arange(N) % K, torch.rand(K) + 0.5


def freed_transposed(z, t, w):
    return freed(z.t().contiguous()).t(), t, w


def freed_column(z, t, w):
    return z, freed(torch.stack([t, t], 1))[:, 0], w


def freed_part(z, t, w):
    return freed(torch.cat([z, z]))[N:], t, w


def freed_parameter(z, t, w):
    return nn.Parameter(freed(z)), t, w


def freed_weight_buffer(z, t, w):
    return z, t, freed(torch.stack([w, w]))[1]


def freed_reshaped(z, t, w):
    return freed(z.reshape(-1)).reshape(N, K), t, w


FREED = [freed_transposed, freed_column, freed_part, freed_parameter, freed_weight_buffer, freed_reshaped]


def test_more_storages_that_are_gone(backend):
    set_backend(backend)
    calls = {each.__name__: lambda change=each: complement_cross_entropy(*change(*batch())) for each in FREED}
    for name, answer in outcomes(calls).items():
        assert answer.startswith("RuntimeError: "), (name, answer)


def add_to(x: Tensor) -> None:
    x.add_(1).remainder_(K) if x.dtype is torch.int64 else x.add_(1)


CHANGES = {
    "zero_": lambda x: x.zero_(),
    "add_": add_to,
    "one item": lambda x: x.__setitem__(0, x[1].clone()),
    "through a view": lambda x: x.view(-1)[:2].copy_(x.view(-1)[2:4].clone()),
    "copy_": lambda x: x.copy_(x.clone()),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0]), 1),
    "sort out": lambda x: torch.sort(x.clone(), 0, out=(x, torch.empty(x.shape, dtype=torch.int64))),
}


@pytest.mark.parametrize("changed", ["target", "weight"])
@pytest.mark.parametrize("how", CHANGES)
def test_more_changes_in_place_before_the_second_derivative(how, changed, backend):
    for name, loss in LOSSES.items():
        if name != "cross entropy" and backend == "eager":
            continue
        z, t, w = batch()
        z.requires_grad_()
        value = loss(z, t, w)
        kept = {"target": t, "weight": w}[changed]
        version = kept._version
        with torch.no_grad():
            CHANGES[how](kept)
        assert kept._version > version
        if name == "module" and changed == "weight":
            continue  # it has a copy of its own
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(value, z, create_graph=True)


ROWS = {
    "-inf only": [-math.inf] * K,
    "-inf but one": [-math.inf] * (K - 1) + [0.0],
    "inf twice": [math.inf] * 2 + [0.0] * (K - 2),
    "nan": [math.nan] + [0.0] * (K - 1),
    "nan and -inf": [math.nan, -math.inf] + [0.0] * (K - 2),
    "-inf first": [-math.inf] + [0.0] * (K - 1),
    "largest": [3e38] * K,
    "lowest": [-3e38] * K,
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("row", ROWS)
def test_rows_that_are_undefined_in_cross_entropy(row, reduction):
    logits = torch.cat([torch.randn(2, K), torch.tensor([ROWS[row]])])
    for target in range(K):
        classes = torch.tensor([0, 1, target])
        for ignore in (-100, target):
            leaves = [logits.clone().requires_grad_() for _ in range(2)]
            plain = F.cross_entropy(leaves[0], classes, reduction=reduction, ignore_index=ignore)
            ours = complement_cross_entropy(leaves[1], classes, reduction=reduction, ignore_index=ignore)
            assert ours.isnan().tolist() == plain.isnan().tolist()
            assert ours.isposinf().tolist() == plain.isposinf().tolist()
            expected, got = (
                torch.autograd.grad(value.sum(), leaf)[0] for value, leaf in zip((plain, ours), leaves, strict=True)
            )
            assert got[:2].isnan().tolist() == expected[:2].isnan().tolist()


@pytest.mark.parametrize("rivals", ["x", "", "all", b"x", 1.5, ["x"], ..., True], ids=str)
def test_rivals_that_are_no_rivals(rivals):
    z, t, _ = batch()
    with pytest.raises(ValueError, match="rivals"):
        complement_cross_entropy(z, t, rivals=rivals)


SIGNS = {
    "a slice of an imaginary part": lambda x: torch.complex(x, x).conj().imag.neg()[:],
    "a view of a view": lambda x: torch._neg_view(-x).view_as(x),
    "a transposed pair": lambda x: torch._neg_view(torch.stack([-x, x], -1)).select(-1, 0),
    "a detached one": lambda x: torch._neg_view(-x).detach(),
    "a narrowed one": lambda x: torch._neg_view(-torch.cat([x, x, x])).narrow(0, len(x), len(x)),
    "a squeezed one": lambda x: torch._neg_view(-x[None]).squeeze(0),
}


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("name", ["weight", "offset", "margin", "share", "input"])
def test_more_negated_views(sign, name):
    z, t, w = batch()
    given = {"input": z, "target": t, "weight": w, "offset": w.log(), "margin": w / 3, "share": w / 2}
    view = SIGNS[sign](given[name])
    assert_close(view.clone(), given[name])
    expected = complement_cross_entropy(**given, reduction="none")
    assert_close(complement_cross_entropy(**(given | {name: view}), reduction="none"), expected)


def test_cross_entropy_is_not_kinder():
    """Where cross entropy refuses a call, so does this, and the other way round."""
    z, t, w = batch()
    calls = {
        "target of floats": (z, t.float()),
        "target of another length": (z, t[:3]),
        "a class too many": (z, t + 1),
        "a negative class": (z, t - 1),
        "two dimensions of target": (z, t[:, None]),
        "weight too short": (z, t, w[:2]),
        "weight too long": (z, t, torch.ones(K + 1)),
        "weight of two dimensions": (z, t, w[None]),
        "as it should be": (z, t, w),
        "int32": (z, t.int()),
        "uint8": (z, t.byte()),
        "integers": (z.long(), t),
        "meta target": (z, t.to("meta")),
    }
    for name, arguments in calls.items():
        assert refuses(complement_cross_entropy, arguments) == refuses(F.cross_entropy, arguments), name


def refuses(loss, arguments) -> bool:
    try:
        loss(*arguments)
    except Exception:
        return True
    return False
