"""Linear layer and loss in one, against the two apart in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import ComplementCrossEntropyHead, linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import complement_cross_entropy
from evenhand.losses.kernels import _class_major, linear
from evenhand.losses.kernels.backend import why_not

from ..cases import repeatable, seeds


@pytest.fixture(params=["in chunks", "in blocks of classes", "at once"], autouse=True, scope="module")
def way(request):
    """Make small batches go the ways of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "at once":
            patch.setattr(linear, "CHUNK", 20)
            patch.setattr(_class_major, "BLOCK", 20)
        if request.param == "in chunks":
            patch.setattr(_class_major, "suits", lambda *_: False)
        yield request.param


@pytest.fixture(params=[name for name in ("eager", "native") if not why_not(name)], autouse=True, scope="module")
def backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")


def check(features: Tensor, target: Tensor, weight: Tensor, bias: Tensor | None, **asked) -> None:
    """Compare loss and gradients, under an upstream gradient of 3."""
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [None if x is None else x.to(dtype).requires_grad_() for x in (features, weight, bias)]
        wide = {name: x.to(dtype) if isinstance(x, Tensor) else x for name, x in asked.items()}
        if dtype == torch.float32:
            value = linear_complement_cross_entropy(leaves[0], target, *leaves[1:], **wide)
        else:
            wide["weight"] = wide.pop("class_weight", None)
            value = complement_cross_entropy(F.linear(*leaves), target, **wide)
        present = [leaf for leaf in leaves if leaf is not None]
        results.append((value.detach(), *torch.autograd.grad(value, present, torch.tensor(3.0, dtype=dtype))))
    for mine, exact in zip(*results, strict=True):
        atol = 1e-5 * float(exact.nan_to_num().abs().max()) + 1e-12 if exact.numel() else 0.0
        assert_close(mine.double(), exact, rtol=1e-5, atol=atol, equal_nan=True)


@st.composite
def calls(draw: st.DrawFn) -> tuple:
    random = torch.Generator().manual_seed(draw(seeds))
    n, d, k = draw(st.integers(1, 12)), draw(st.integers(1, 16)), draw(st.integers(2, 40))
    features, weight = torch.randn(n, d, generator=random), torch.randn(k, d, generator=random)
    bias = torch.randn(k, generator=random) if draw(st.booleans()) else None
    target = torch.randint(k, (n,), generator=random)
    vectors = {
        "class_weight": torch.rand(k, generator=random) + 0.1,
        "offset": torch.randn(k, generator=random) * 2,
        "margin": torch.rand(k, generator=random),
        "share": torch.rand(k, generator=random),
    }
    asked: dict = {name: values for name, values in vectors.items() if draw(st.booleans())}
    asked["reduction"] = draw(st.sampled_from(["mean", "sum"]))
    if draw(st.booleans()):
        target[0] = asked["ignore_index"] = draw(st.sampled_from([-100, 0]))
    return features, target, weight, bias, asked


@settings(repeatable, max_examples=60)
@given(call=calls())
def test_against_layer_and_loss_apart(call):
    *tensors, asked = call
    check(*tensors, **asked)


def test_confident_rows_and_many_classes():
    torch.manual_seed(0)
    features, weight = torch.randn(30, 40), torch.randn(3000, 40)
    target = (features @ weight.t()).argmax(1)
    check(features, target, 4 * weight, None)
    check(features, target, 4 * weight, torch.randn(3000), gamma=2.0)


def test_an_offset_too_wide_for_one_exponential():
    features, weight = torch.randn(5, 8), torch.randn(7, 8)
    offset = torch.linspace(-100, 0, 7)
    check(features, torch.arange(5), weight, None, offset=offset)


@pytest.mark.parametrize("frozen", [(0,), (1,), (0, 1), (1, 2), (2,), (0, 1, 2)])
def test_what_is_frozen_has_no_gradient_and_changes_no_other(frozen):
    torch.manual_seed(0)
    leaves = [torch.randn(6, 8), torch.randn(9, 8), torch.randn(9)]
    for i, leaf in enumerate(leaves):
        leaf.requires_grad_(i not in frozen)
    target = torch.arange(6)
    loss = linear_complement_cross_entropy(leaves[0], target, *leaves[1:])
    expected = complement_cross_entropy(F.linear(*leaves), target)
    assert_close(loss, expected)
    if len(frozen) == 3:
        assert not loss.requires_grad
        return
    loss.backward()
    free = [leaf for i, leaf in enumerate(leaves) if i not in frozen]
    assert_close([leaf.grad for leaf in free], list(torch.autograd.grad(expected, free)))
    assert all(leaves[i].grad is None for i in frozen)


def test_a_head_learns_as_a_layer_and_a_loss_do():
    torch.manual_seed(0)
    head, images, target = ComplementCrossEntropyHead(6, 9, counts=range(1, 10)), torch.randn(6, 6), torch.arange(6)
    layer = torch.nn.Linear(6, 9)
    layer.load_state_dict(head.state_dict())
    assert_close(head(images), layer(images))
    head(images, target).backward()
    complement_cross_entropy(layer(images), target, counts=range(1, 10)).backward()
    assert_close(head.weight.grad, layer.weight.grad)
    assert_close(head.bias.grad, layer.bias.grad)


def test_autocast_and_half_precision():
    torch.manual_seed(0)
    head, images, target = ComplementCrossEntropyHead(6, 9), torch.randn(6, 6), torch.arange(6)
    with torch.autocast("cpu", torch.bfloat16):
        features = images.bfloat16().requires_grad_()
        loss = head(features, target)
    assert loss.dtype == torch.float32
    loss.backward()
    assert features.grad.dtype == torch.bfloat16
    assert_close(loss, complement_cross_entropy(F.linear(features.float(), head.weight, head.bias), target))
    half = head.to(torch.bfloat16)
    assert_close(half(images.bfloat16(), target).double(), loss.double(), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("wanted", [[True] * 3, [False, True, False]], ids=["all", "weight"])
def test_opcheck(wanted):
    from evenhand.losses.kernels.linear_operator import linear_complement_cross_entropy as operator

    tensors = [
        x.requires_grad_(want)
        for x, want in zip((torch.randn(4, 8), torch.randn(9, 8), torch.randn(9)), wanted, strict=True)
    ]
    arguments = (*tensors, torch.arange(4), None, None, None, None, -0.1, -100, "mean", wanted)
    torch.library.opcheck(operator, arguments)


def test_compiled():
    torch.manual_seed(0)
    head, images, target = ComplementCrossEntropyHead(6, 9), torch.randn(6, 6), torch.arange(6)
    results = []
    for forward in (head, torch.compile(head, fullgraph=True, backend="aot_eager")):
        head.zero_grad()
        loss = forward(images, target)
        loss.backward()
        results.append((loss.detach(), head.weight.grad.clone(), head.bias.grad.clone()))
    assert_close(results[1], results[0])


def test_invalid_arguments():
    valid = {"features": torch.zeros(3, 4), "target": torch.tensor([0, 1, 4]), "weight": torch.zeros(5, 4)}
    for changes, message in (
        ({"reduction": "none"}, "'none'"),
        ({"weight": torch.zeros(5, 7)}, r"\(5, 7\)"),
        ({"weight": torch.zeros(1, 4)}, "2 classes"),
        ({"target": torch.zeros(3, 5)}, "class indices"),
        ({"target": torch.zeros(2).long()}, r"\(2,\)"),
        ({"bias": torch.zeros(4)}, "bias"),
        ({"gamma": 1.0, "share": 1.0}, "give one"),
    ):
        with pytest.raises(ValueError, match=message):
            linear_complement_cross_entropy(**(valid | changes))


def test_a_target_that_is_no_class():
    with pytest.raises(IndexError, match="target 5"):
        linear_complement_cross_entropy(torch.zeros(3, 4), torch.tensor([0, 5, 4]), torch.zeros(5, 4))
