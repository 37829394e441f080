"""Rows without any class left, masks and negated views: every backend gives what torch's operations give."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import complement_cross_entropy, complement_entropy, focal_loss
from evenhand.losses.kernels import _class_major, linear, native

needs_kernel = pytest.mark.skipif(native.level == 0, reason=f"no native kernel: {native.why_not}")
inf, nan = math.inf, math.nan


@pytest.fixture(params=["eager", pytest.param("native", marks=needs_kernel)], autouse=True)
def backend(request):
    set_backend(request.param)
    yield request.param
    set_backend("auto")


def spread(k: int, width: float) -> Tensor:
    return torch.linspace(-width, 0, k)


SETTINGS = {
    "usual": lambda _: {},
    "gamma 3": lambda _: {"gamma": 3.0},
    "offset": lambda k: {"offset": spread(k, 2)},
    "far offset": lambda k: {"offset": spread(k, 90)},
    "margin": lambda k: {"margin": spread(k, 1)},
    "weight": lambda k: {"weight": spread(k, 1) + 2},
    "share a class": lambda k: {"share": spread(k, 1) + 2},
    "adjusted": lambda k: {"offset": spread(k, 2), "complement_on": "adjusted"},
    "spare": lambda _: {"spare": 1},
    "smoothing": lambda _: {"label_smoothing": 0.1},
}


def batch(k: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return four rows, of which the second and the last hold -inf only."""
    torch.manual_seed(0)
    logits = torch.randn(4, k).to(dtype)
    logits[1] = logits[3] = -inf
    return logits.requires_grad_(), torch.tensor([0, 1, 1, 0])


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("again", [False, True])
def test_rows_of_minus_infinity_only_are_undefined_as_in_cross_entropy(name, dtype, again):
    for k in (2, 40):
        check_undefined_rows(name, k, dtype, again)


def check_undefined_rows(name: str, k: int, dtype: torch.dtype, again: bool) -> None:
    logits, target = batch(k, dtype)
    expected = F.cross_entropy(logits, target, reduction="none")
    (plain,) = torch.autograd.grad(expected.sum(), logits)
    rows = complement_cross_entropy(logits, target, reduction="none", **SETTINGS[name](k))
    (gradient,) = torch.autograd.grad(rows.sum(), logits, create_graph=again)
    assert rows.isnan().tolist() == expected.isnan().tolist() == [False, True, False, True]
    assert gradient.isnan().tolist() == plain.isnan().tolist()
    for reduction in ("mean", "sum"):
        value = complement_cross_entropy(logits, target, reduction=reduction, **SETTINGS[name](k))
        assert value.isnan()
        (gradient,) = torch.autograd.grad(value, logits, create_graph=again)
        assert gradient.isnan().tolist() == plain.isnan().tolist()


def test_images_probabilities_and_single_rows():
    logits, target = batch(5, torch.float32)
    image = torch.stack([logits.detach(), torch.zeros(4, 5)], 2)
    rows = complement_cross_entropy(image, target[:, None].expand(4, 2), reduction="none")
    assert rows.isnan().tolist() == [[False, False], [True, False]] * 2
    soft = F.one_hot(target, 5).float()
    assert complement_cross_entropy(logits, soft, reduction="none")[[1, 3]].isnan().all()
    assert complement_cross_entropy(torch.full((5,), -inf), torch.tensor(1)).isnan()
    assert focal_loss(logits, target, gamma=0.0, reduction="none").isnan().tolist() == [False, True, False, True]


def test_transforms_and_compilation():
    logits, target = batch(5, torch.float32)
    wanted = [False, True, False, True]
    rows = torch.func.vmap(complement_cross_entropy)(logits.detach(), target)
    assert rows.isnan().tolist() == wanted
    gradient = torch.func.vmap(torch.func.grad(complement_cross_entropy))(logits.detach(), target)
    assert gradient.isnan().all(1).tolist() == gradient.isnan().any(1).tolist() == wanted
    torch._dynamo.reset()
    compiled = torch.compile(complement_cross_entropy, fullgraph=True, backend="aot_eager")
    rows = compiled(logits, target, reduction="none")
    (gradient,) = torch.autograd.grad(rows.sum(), logits)
    assert rows.isnan().tolist() == gradient.isnan().all(1).tolist() == gradient.isnan().any(1).tolist() == wanted


@pytest.mark.parametrize("spare", [0, 1])
def test_the_complement_entropy_of_nothing_is_zero(spare):
    logits, target = batch(5, torch.float32)
    rows = complement_entropy(logits, target, reduction="none", spare=spare)
    (gradient,) = torch.autograd.grad(rows.sum(), logits)
    assert (rows[[1, 3]] == 0).all()
    assert (gradient[[1, 3]] == 0).all()


@pytest.mark.parametrize("junk", [inf, -inf, nan, torch.finfo(torch.float32).min])
@pytest.mark.parametrize("name", ["usual", "far offset", "share a class"])
@pytest.mark.parametrize("again", [False, True])
def test_whatever_an_ignored_row_holds_its_gradient_is_zero(junk, name, again):
    torch.manual_seed(0)
    logits, target = torch.randn(3, 5), torch.tensor([0, -100, 2])
    results = []
    for value in (0.0, junk):
        logits[1] = value
        leaf = logits.clone().requires_grad_()
        loss = complement_cross_entropy(leaf, target, **SETTINGS[name](5))
        results.append((loss.detach(), torch.autograd.grad(loss, leaf, create_graph=again)[0].detach()))
        loss = complement_entropy(leaf, target)
        results[-1] += (loss.detach(), torch.autograd.grad(loss, leaf, create_graph=again)[0].detach())
    assert_close(results[1], results[0])


LOWEST = torch.finfo(torch.float32).min
ROWS = [row for row in itertools.product((-inf, LOWEST, 0.0, 3.0, nan), repeat=3) if 0.0 in row or 3.0 in row]
ROWS += [(-inf,) * 3, (LOWEST,) * 3, (nan,) * 3]


@needs_kernel
@pytest.mark.parametrize("with_h", [True, False])
@pytest.mark.parametrize("offset", [None, torch.tensor([0.0, -1.0, 2.0]), torch.tensor([0.0, -80.0, 2.0])], ids=str)
def test_mixtures_of_masks_numbers_and_nan(offset, with_h):
    """NaN where cross entropy is, infinite where it is, and the same on every backend."""
    logits = torch.tensor(ROWS)
    if offset is not None:
        logits = logits[logits.amax(1) != LOWEST]  # where torch's own sum with an offset loses it
    for target in range(3):
        classes = torch.full((len(logits),), target)
        results = []
        for name in ("native", "eager"):
            set_backend(name)
            leaf = logits.clone().requires_grad_()
            if with_h:
                rows = complement_cross_entropy(leaf, classes, offset=offset, reduction="none")
            else:
                rows = complement_entropy(leaf, classes, reduction="none")
            results.append((rows.detach(), torch.autograd.grad(rows.sum(), leaf, create_graph=True)[0].detach()))
        assert_close(results[0], results[1], rtol=1e-5, atol=1e-6, equal_nan=True)
        assert_close(torch.autograd.grad(rows.sum(), leaf)[0], results[1][1], rtol=1e-5, atol=1e-6, equal_nan=True)
        if with_h:
            plain = F.cross_entropy(logits if offset is None else logits + offset, classes, reduction="none")
            assert results[0][0].isnan().tolist() == plain.isnan().tolist()
            assert results[0][0].isinf().tolist() == plain.isinf().tolist()


@pytest.mark.parametrize("far", [0.0, 80.0, 200.0, 1e4, 3e38])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_offset_that_masks_the_largest_logit(far, place):
    """What is left of exp below a masked logit far ahead is 0, but H does not see that logit."""
    logits = torch.tensor([[0.5, -0.3, 0.2, 1.0]])
    logits[0, place] = far
    offset = torch.zeros(4)
    offset[place] = -inf
    leaf = logits.clone().requires_grad_()
    target = torch.tensor([3])
    loss = complement_cross_entropy(leaf, target, offset=offset, share=1e-20)
    expected = F.cross_entropy(logits + offset, target)
    assert_close(loss, expected)
    whole = torch.eye(4)
    through_layer = linear_complement_cross_entropy(logits, target, whole, share=1e-20, offset=offset)
    assert_close(through_layer, expected)


def test_an_offset_that_masks_every_class():
    logits, target = torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1])
    loss = complement_cross_entropy(logits, target, offset=torch.full((3,), -inf))
    assert loss.isnan()
    assert torch.autograd.grad(loss, logits)[0].isnan().all()


@pytest.mark.parametrize("way", ["at once", "in chunks", "in blocks of classes"])
def test_a_layer_whose_classes_are_all_masked(way, monkeypatch):
    if way != "at once":
        monkeypatch.setattr(linear, "CHUNK", 1)
    if way == "in chunks":
        monkeypatch.setattr(_class_major, "suits", lambda *_: False)
    weight, bias = torch.randn(5, 4, requires_grad=True), torch.full((5,), -inf)
    for offset in (None, torch.linspace(-1, 0, 5)):
        loss = linear_complement_cross_entropy(torch.randn(3, 4), torch.arange(3), weight, bias, offset=offset)
        assert loss.isnan()
        assert torch.autograd.grad(loss, weight)[0].isnan().all()


VECTOR = torch.linspace(0.1, 1, 5)
NEGATED = {
    "negated": lambda x: torch._neg_view(-x),
    "imaginary part": lambda x: torch.complex(x, -x).conj().imag,
    "negated twice": lambda x: torch._neg_view(torch._neg_view(x)),
    "part of a negated": lambda x: torch._neg_view(-torch.cat([x, x]))[len(x) :],
    "negated with gaps": lambda x: torch._neg_view(-torch.stack([x, x], -1))[..., 1],
    "negated and expanded": lambda x: torch._neg_view(-x[:1]).expand(x.shape),
    "float64, negated": lambda x: torch._neg_view(-x.double()),
}


@pytest.mark.parametrize("kind", NEGATED)
@pytest.mark.parametrize("name", ["input", "weight", "offset", "margin", "share"])
def test_the_sign_of_a_negated_view(kind, name):
    torch.manual_seed(0)
    given = {"input": torch.randn(6, 5), "target": torch.arange(6) % 5} | dict.fromkeys(
        ("weight", "offset", "margin", "share"), VECTOR
    )
    view = NEGATED[kind](given[name])
    assert name == "share" or view.is_neg() != (kind == "negated twice")
    values = view.resolve_neg().clone()
    for reduction in ("none", "mean"):
        got = complement_cross_entropy(**(given | {name: view}), reduction=reduction)
        assert_close(got, complement_cross_entropy(**(given | {name: values}), reduction=reduction))
    if name != "input":
        key = "class_weight" if name == "weight" else name
        features, weight = torch.randn(6, 4), torch.randn(5, 4)
        got = linear_complement_cross_entropy(features, given["target"], weight, **{key: view})
        assert_close(got, linear_complement_cross_entropy(features, given["target"], weight, **{key: values}))


def test_the_sign_of_a_negated_target():
    logits, target = torch.randn(3, 200), torch.tensor([4, 100, 7])
    ignored = torch._neg_view(torch.tensor([-4, 100, -7]))  # 4, -100 and 7
    expected = complement_cross_entropy(logits, torch.where(target == 100, -100, target))
    assert_close(complement_cross_entropy(logits, ignored), expected)


@needs_kernel
@pytest.mark.parametrize("name", ["weight", "offset", "margin", "share", "input"])
def test_zeros_that_have_no_memory(name):
    set_backend("native")  # torch cannot index them itself
    given = {"input": torch.randn(6, 5), "target": torch.arange(6) % 5} | dict.fromkeys(
        ("weight", "offset", "margin", "share"), VECTOR
    )
    zeros = torch._efficientzerotensor(given[name].shape, dtype=given[name].dtype)
    got = complement_cross_entropy(**(given | {name: zeros}), reduction="none")
    assert_close(got, complement_cross_entropy(**(given | {name: torch.zeros_like(given[name])}), reduction="none"))
