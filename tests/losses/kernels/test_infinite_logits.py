"""Every combination of +inf, -inf and NaN among the logits: undefined where cross entropy is, on every backend."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses import linear_complement_cross_entropy, set_backend
from evenhand.losses.functional import (
    adjusted_cross_entropy,
    complement_cross_entropy,
    complement_entropy,
    focal_loss,
)
from evenhand.losses.kernels import linear, native

from . import undefined
from .undefined import LOGITS, SETTINGS, TARGETS, UNDEFINED, K, check, expected

LEVELS = list(range(1, native.level + 1))


@pytest.fixture(params=["eager", *(f"native {level}" for level in LEVELS)], autouse=True)
def backend(request, monkeypatch):
    name, _, level = request.param.partition(" ")
    set_backend(name)
    if level:
        monkeypatch.setattr(native, "level", int(level))
    yield request.param
    set_backend("auto")


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", SETTINGS)
def test_complement_cross_entropy(name, dtype, again):
    check(complement_cross_entropy, name, dtype, again)


def test_compiled_and_mapped():
    torch._dynamo.reset()
    check(torch.compile(complement_cross_entropy, fullgraph=True, backend="aot_eager"), "offset")
    rows = torch.func.vmap(lambda z, t: complement_cross_entropy(z, t, share=undefined.SHARE))(LOGITS, TARGETS)
    assert_close(rows.double(), expected("usual")[0], rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::FutureWarning")
def test_traced():
    traced = torch.jit.trace(lambda z: complement_cross_entropy(z, TARGETS, reduction="none", share=0.25), LOGITS)
    leaf = LOGITS.clone().requires_grad_()
    rows = traced(leaf)
    assert_close(rows.detach().double(), expected("usual")[0], rtol=1e-5, atol=1e-5, equal_nan=True)
    assert torch.equal(torch.autograd.grad(rows.sum(), leaf)[0].isnan().any(1), UNDEFINED)


def wide() -> tuple[Tensor, Tensor]:
    """Return rows of 40 classes with what is odd at random places, one kind after the other in each vector's lanes."""
    torch.manual_seed(0)
    logits, target = torch.randn(240, 40), torch.randint(40, (240,))
    for n, value in enumerate((math.inf, -math.inf, math.nan) * 80):
        logits[n, torch.randperm(40)[: n // 60]] = value
        if n % 4 == 3:
            logits[n, target[n]] = value
    return logits, target


@pytest.mark.parametrize("offset", [None, torch.linspace(-2, 0, 40)], ids=["plain", "offset"])
def test_wide_rows(offset):
    logits, target = wide()
    results = []
    for loss in (complement_cross_entropy, F.cross_entropy):
        leaf = logits.clone().requires_grad_()
        z = leaf if loss is complement_cross_entropy or offset is None else leaf + offset
        given = {"offset": offset} if loss is complement_cross_entropy else {}
        rows = loss(z, target, reduction="none", **given)
        results.append((rows.detach(), torch.autograd.grad(rows.sum(), leaf)[0]))
    ours, plain = results
    assert plain[0].isnan().any()
    assert plain[0].isposinf().any()
    assert plain[0].isfinite().any()
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(ours[0]), kind(plain[0]))
        assert torch.equal(kind(ours[1]), kind(plain[1]))


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_complement_entropy_alone(spare, again):
    """It ignores the logit of the correct class, but hides nothing: NaN where a logit is NaN or +inf."""
    leaf = LOGITS.clone().requires_grad_()
    rows = complement_entropy(leaf, TARGETS, reduction="none", spare=spare)
    (gradient,) = torch.autograd.grad(rows.sum(), leaf, create_graph=again)
    masked = (-math.inf == LOGITS).all(1)
    assert torch.equal(rows.isnan(), UNDEFINED & ~masked)
    assert torch.equal(gradient.isnan(), rows.isnan()[:, None].expand(-1, K))
    assert (rows[masked] == 0).all()


OTHERS = {
    "focal": (lambda z, t, **given: focal_loss(z, t, gamma=0.0, **given), {}),
    "focal 2": (focal_loss, {}),
    "margin": (lambda z, t, **given: adjusted_cross_entropy(z, t, margin=torch.zeros(K), **given), {}),
    "smoothed": (complement_cross_entropy, {"label_smoothing": 0.1}),
    "spare": (complement_cross_entropy, {"spare": 1}),
    "rivals": (complement_cross_entropy, {"rivals": torch.eye(K).roll(1, 0).bool()}),
    "adjusted": (complement_cross_entropy, {"counts": [5, 5, 5], "complement_on": "adjusted"}),
    "without C": (complement_cross_entropy, {"gamma": 0.0}),
}
SOFT = {"indices": None, "one": [1.0, 0.0, 0.0], "two": [0.5, 0.5, 0.0], "three": [0.2, 0.3, 0.5]}


CASES = [(name, target) for name in OTHERS for target in SOFT if target == "indices" or name != "rivals"]


@pytest.mark.parametrize(("name", "target"), CASES)
def test_other_losses(name, target):
    """As in cross entropy, but a masked class without probability costs nothing, where torch has 0 times infinity."""
    loss, given = OTHERS[name]
    classes = TARGETS if target == "indices" else torch.tensor([SOFT[target]]).expand(len(LOGITS), K)
    ignored = (-math.inf == LOGITS) & (classes == 0) if target != "indices" else torch.zeros_like(LOGITS).bool()
    free = ignored.any(1) & ~UNDEFINED & (name.startswith("focal") or name == "margin")
    results = []
    for compute, settings in ((loss, given), (F.cross_entropy, {"label_smoothing": given.get("label_smoothing", 0.0)})):
        leaf = LOGITS.clone().requires_grad_()
        rows = compute(leaf, classes, reduction="none", **settings)
        results.append((rows.detach(), torch.autograd.grad(rows.sum(), leaf)[0]))
    ours, plain = results
    assert not ours[0][free].isnan().any()
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(ours[0])[~free], kind(plain[0])[~free])
        assert torch.equal(kind(ours[1]), kind(plain[1]))


@pytest.mark.parametrize("chunk", [1, 10**6], ids=["class by class", "in chunks"])
@pytest.mark.parametrize("name", ["usual", "offset", "all"])
def test_linear_layer(name, chunk, monkeypatch):
    """Two rows of zeros, so that the bias is the logits: one has the class of every row, the other is ignored."""
    monkeypatch.setattr(linear, "CHUNK", chunk)
    settings = {"class_weight" if key == "weight" else key: x for key, x in SETTINGS[name].items()}
    wanted, slope = expected(name)
    weight = torch.zeros(K, 4, requires_grad=True)
    for n in range(0, len(LOGITS), 1 if chunk == 1 else 7):
        bias = LOGITS[n].clone().requires_grad_()
        target = torch.tensor([int(TARGETS[n]), -100])
        loss = linear_complement_cross_entropy(torch.zeros(2, 4), target, weight, bias, reduction="sum", **settings)
        (gradient,) = torch.autograd.grad(loss, bias)
        assert_close(loss.detach().double(), wanted[n], rtol=1e-5, atol=1e-5, equal_nan=True)
        assert_close(gradient.double(), slope[n], rtol=1e-5, atol=1e-5, equal_nan=True)
