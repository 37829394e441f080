"""All arguments of CCE together, in every way of computing: transforms, precisions, compiled, in pieces."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jvp, vmap
from torch.testing import assert_close

from evenhand.losses.functional import (
    adjusted_cross_entropy,
    complement_cross_entropy,
    complement_entropy,
)

from .composed_cases import COUNTS, OFFSET, SETTINGS, WEIGHT, K, all_settings, batch, kinds


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@all_settings
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weights_ignored_rows_and_smoothing(setting, smoothing):
    """The loss is H plus C, each by its own function: both were compared with their formulas."""
    chosen = dict(SETTINGS[setting])
    logits, target = batch(8, K)
    target[2] = target[5] = 1
    keywords = {"weight": WEIGHT, "ignore_index": 1, "reduction": "none"}
    on = logits + OFFSET if setting == "adjusted" else logits
    c = complement_entropy(on, target, spare=chosen.get("spare", 0), **keywords)
    share = chosen.get("share", -chosen.get("gamma", -1.0) / (K - 1))
    share = share[target] if isinstance(share, Tensor) else share
    h = adjusted_cross_entropy(
        logits,
        target,
        offset=chosen.get("offset"),
        margin=chosen.get("margin"),
        label_smoothing=smoothing,
        **keywords,
    )
    rows = h - share * c
    total = WEIGHT[target][target != 1].sum()
    for reduction, expected in {"none": rows, "sum": rows.sum(), "mean": rows.sum() / total}.items():
        got = complement_cross_entropy(
            logits, target, WEIGHT, ignore_index=1, reduction=reduction, label_smoothing=smoothing, **chosen
        )
        assert_close(got, expected, rtol=1e-10, atol=1e-12)


@all_settings
def test_one_hot_probabilities_are_their_class(setting):
    logits, target = batch(6, K)
    hard = complement_cross_entropy(logits, target, WEIGHT, reduction="none", **SETTINGS[setting])
    soft = F.one_hot(target, K).double()
    assert_close(
        complement_cross_entropy(logits, soft, WEIGHT, reduction="none", **SETTINGS[setting]),
        hard,
        rtol=1e-9,
        atol=1e-10,
    )


@all_settings
@kinds
def test_derivatives_and_transforms(setting, kind):
    logits, target = batch(3, K, kind=kind)
    logits.requires_grad_()

    def one(z: Tensor, t: Tensor) -> Tensor:
        return complement_cross_entropy(z, t, **SETTINGS[setting])

    def value(z: Tensor) -> Tensor:
        return one(z, target)

    assert gradcheck(value, logits)
    assert gradgradcheck(value, logits)
    (gradient,) = torch.autograd.grad(value(logits), logits)
    logits = logits.detach()
    assert_close(grad(value)(logits), gradient)
    tangent = torch.randn_like(logits)
    assert_close(jvp(value, (logits,), (tangent,))[1], (gradient * tangent).sum())
    assert_close(hessian(value)(logits), torch.autograd.functional.hessian(value, logits))
    assert_close(vmap(grad(one))(logits, target).div(3), gradient)
    assert_close(vmap(one)(logits, target).mean(), value(logits))


def test_what_differs_from_batch_to_batch_may_be_mapped_over():
    logits, target = batch(4, 3, K)
    offsets, shares, margins = torch.randn(4, K).double(), torch.rand(4, K).double(), torch.rand(4, K).double()

    def loss(z: Tensor, t: Tensor, o: Tensor, s: Tensor, m: Tensor) -> Tensor:
        return complement_cross_entropy(z, t, offset=o, share=s, margin=m, reduction="none")

    expected = torch.stack([loss(*each) for each in zip(logits, target, offsets, shares, margins, strict=True)])
    assert_close(vmap(loss)(logits, target, offsets, shares, margins), expected)
    one = torch.stack([loss(logits[0], target[0], o, s, m) for o, s, m in zip(offsets, shares, margins, strict=True)])
    assert_close(vmap(loss, in_dims=(None, None, 0, 0, 0))(logits[0], target[0], offsets, shares, margins), one)
    twice = vmap(lambda o: vmap(lambda z: loss(z, target[0], o, shares[0], margins[0]))(logits))(offsets)
    for i in range(4):
        for j in range(4):
            assert_close(twice[i, j], loss(logits[j], target[0], offsets[i], shares[0], margins[0]))


def test_offset_margin_and_share_may_be_learned():
    logits, target = batch(4, K)
    learned = [torch.rand(K, dtype=torch.float64, requires_grad=True) for _ in range(3)]

    def loss(o: Tensor, m: Tensor, s: Tensor) -> Tensor:
        return complement_cross_entropy(logits, target, offset=o, margin=m, share=s)

    assert gradcheck(loss, learned)
    plain = [x.detach() for x in learned]
    assert_close(loss(*learned), loss(*plain))
    (slope,) = torch.autograd.grad(loss(*learned), learned[0])
    assert_close(grad(loss)(*plain), slope)


@all_settings
@kinds
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_every_precision(setting, kind, dtype, size):
    logits, target = batch(8, K, kind=kind)
    logits = (size * logits).clamp(-2e4, 2e4).to(dtype)
    results = []
    for z in (logits.double(), logits):
        leaf = z.clone().requires_grad_()
        value = complement_cross_entropy(
            leaf, target.to(z.dtype) if kind == "probabilities" else target, **SETTINGS[setting]
        )
        results.append((value.detach().double(), torch.autograd.grad(value, leaf)[0].double()))
    assert results[1][0].isfinite()
    digits = {torch.float16: 5e-3, torch.float32: 2e-5}[dtype]
    if size > 1:
        digits = max(digits, 2e-3)  # z + offset is rounded where z is large, as it is for cross entropy
    assert_close(results[1], results[0], rtol=digits, atol=digits)


@all_settings
def test_compiled(setting):
    def loss(z: Tensor, t: Tensor) -> Tensor:
        return complement_cross_entropy(z, t, reduction="none", **SETTINGS[setting])

    logits, target = torch.randn(6, K), torch.tensor([0, -100, 3, 4, -100, 1])
    logits[0, 1] = logits[3, 0] = -torch.inf
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for function in (loss, compiled):
        leaf = logits.clone().requires_grad_()
        value = function(leaf, target)
        results.append((value.detach(), torch.autograd.grad(value.sum(), leaf)[0]))
    assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_compiled_with_counts():
    def loss(z: Tensor, t: Tensor) -> Tensor:
        return complement_cross_entropy(z, t, counts=COUNTS, share=0.3, gamma=None)

    logits, target = torch.randn(6, K), torch.tensor([0, 2, 3, 4, 5, 1])
    assert_close(torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, target), loss(logits, target))


@all_settings
@kinds
def test_no_value_is_read_back_from_the_device(setting, kind):
    chosen = {key: x.to("meta") if isinstance(x, Tensor) else x for key, x in SETTINGS[setting].items()}
    logits, target = (x.to("meta") for x in batch(4, K, kind=kind))
    logits.requires_grad_()
    complement_cross_entropy(logits, target, **chosen).backward()
    assert logits.grad.shape == (4, K)


@all_settings
@kinds
@pytest.mark.parametrize("shape", [(40, K), (3, K, 40)], ids=str)
def test_pieces_make_the_whole(setting, kind, shape, monkeypatch):
    logits = torch.randn(shape, dtype=torch.float64)
    target = torch.randint(K, (shape[0], *shape[2:]))
    if kind == "probabilities":
        target = F.one_hot(target, K).movedim(-1, 1).double()

    def results() -> tuple[Tensor, Tensor]:
        leaf = logits.clone().requires_grad_()
        rows = complement_cross_entropy(leaf, target, reduction="none", **SETTINGS[setting])
        return rows.detach(), torch.autograd.grad(rows.sum(), leaf)[0]

    whole = results()
    monkeypatch.setattr("evenhand.losses._formula.CHUNK", 64)
    assert_close(results(), whole, rtol=1e-12, atol=1e-14)
