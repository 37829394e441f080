"""CCE with a share, with wrong classes excluded and with class counts: H of adjusted logits and C of raw ones."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from evenhand import ComplementCrossEntropyLoss
from evenhand.losses.functional import (
    adjusted_cross_entropy,
    balanced_softmax_loss,
    complement_cross_entropy,
    complement_entropy,
    frequent_rivals,
    logit_adjusted_cross_entropy,
    logit_offset,
)

from . import reference
from .cases import batches, every_backend, hard_rows, repeatable
from .composed_cases import COUNTS, MARGIN, OFFSET, WEIGHT, K, batch
from .test_numerics import share_of_largest


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@st.composite
def compositions(draw: st.DrawFn) -> dict:
    """Draw settings of the loss; what depends on the number of classes is made by `composed` and `by_formula`."""
    return {
        "share": draw(st.sampled_from([0.0, 0.1, 0.3, 2.0, "per class"])),
        "spare": draw(st.sampled_from([0, 0, 1, 2, 5])),
        "offset": draw(st.sampled_from(["none", "counts", "far"])),
        "margin": draw(st.booleans()),
        "on": draw(st.sampled_from(["raw", "raw", "adjusted"])),
    }


def parts(setting: dict, k: int) -> tuple[Tensor, Tensor | None, Tensor | None, str]:
    """Return shares (K), offset, margin, and what C is taken of."""
    shares = torch.linspace(0.1, 0.5, k).double() if setting["share"] == "per class" else setting["share"]
    counts = 1000 * 0.01 ** torch.linspace(0, 1, k).double()
    # A spread of 60 is more than one exponential an element can bear: the other way of the code.
    far = torch.linspace(-60, 0, k).double()
    offset = {"none": None, "counts": logit_offset(counts), "far": far}[setting["offset"]]
    margin = torch.linspace(0, 2, k).double() if setting["margin"] else None
    return shares, offset, margin, "raw" if offset is None else setting["on"]


def composed(setting: dict, logits: Tensor, target: Tensor, **kwargs) -> Tensor:
    k = logits.shape[0 if logits.dim() == 1 else 1]
    share, offset, margin, on = parts(setting, k)
    return complement_cross_entropy(
        logits,
        target,
        share=share,
        spare=setting["spare"],
        offset=offset,
        margin=margin,
        complement_on=on,
        **kwargs,
    )


def by_formula(setting: dict, logits: Tensor, target: Tensor) -> Tensor:
    """Rows (M, K) and (M) -> (M): H of the adjusted logits less share C."""
    k = logits.shape[1]
    share, offset, margin, on = parts(setting, k)
    shifted = logits if offset is None else logits + offset
    own = shifted if margin is None else shifted - F.one_hot(target, k) * margin
    h = torch.logsumexp(own, 1) - own.gather(1, target[:, None])[:, 0]
    share = share[target] if isinstance(share, Tensor) else share
    return h - share * reference.spared_complement_entropy(
        shifted if on == "adjusted" else logits, target, setting["spare"]
    )


@every_backend
@settings(repeatable, max_examples=200)
@given(
    batch=batches(),
    setting=compositions(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    again=st.booleans(),
)
def test_value_and_gradient(batch, setting, dtype, again):
    logits, target = batch
    apart = torch.arange(logits.numel()).double().sqrt() * 1e-3  # of rivals that tie, any may be spared
    logits = (logits + apart.view_as(logits)).to(dtype).requires_grad_()
    exact = logits.detach().double().requires_grad_()
    expected = by_formula(setting, *reference.flat_rows(exact, target)).reshape(target.shape)
    got = composed(setting, logits, target, reduction="none")
    assert got.dtype == dtype
    tolerance = {"rtol": 1e-9, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 5e-5, "atol": 1e-5}
    assert_close(got.double(), expected, **tolerance)
    upstream = torch.linspace(-1, 2, target.numel(), dtype=torch.float64).reshape(target.shape) + 0.1
    (gradient,) = torch.autograd.grad(got, logits, upstream.to(dtype), create_graph=again)
    (exact_gradient,) = torch.autograd.grad(expected, exact, upstream)
    assert_close(gradient.detach().double(), exact_gradient, **tolerance)
    assert_close(composed(setting, logits, target).double(), expected.mean(), **tolerance)


@every_backend
@settings(repeatable, max_examples=200)
@given(batch=hard_rows(), spare=st.sampled_from([0, 2]), counts=st.booleans(), inner=st.booleans())
def test_float32_gradient_of_hard_rows(batch, spare, counts, inner):
    """Confident rows keep their digits. The numbers are such that float32 holds logits and offset exactly."""
    logits, target = batch
    k = logits.shape[1]
    spare = spare if k - 1 - spare >= 2 else 0
    offset = logit_offset(1000 * 0.01 ** torch.linspace(0, 1, k)) if counts else torch.zeros(k)
    offset, logits = ((x * 64).round() / 64 for x in (offset.float(), logits))
    h = reference.precise_cross_entropy_gradient(logits + offset.double(), target)
    rest = logits.double().scatter(1, target[:, None], -torch.inf)
    if spare:
        rest = rest.scatter(1, rest.topk(spare, 1).indices, -torch.inf)
    u = rest.amax(1, keepdim=True) - rest
    q = torch.exp(-u) / torch.exp(-u).sum(1, keepdim=True)
    qu = torch.where(q > 0, q * u, 0.0)
    c = qu - q * qu.sum(1, keepdim=True)
    shaped = (logits.T[None].contiguous(), target[None]) if inner else (logits, target)
    leaf = shaped[0].requires_grad_()
    value = complement_cross_entropy(leaf, shaped[1], share=0.3, spare=spare, offset=offset, reduction="sum")
    (gradient,) = torch.autograd.grad(value, leaf)
    gradient = gradient[0].T if inner else gradient
    assert value.isfinite()
    assert share_of_largest(gradient - (h - 0.3 * c), h.abs() + 0.3 * c.abs()) <= 2e-5


# What the settings mean.


@every_backend
def test_share_does_not_know_the_number_of_classes():
    logits, target = torch.randn(5, K), torch.tensor([0, 1, 2, 3, 5])
    h, c = F.cross_entropy(logits, target), complement_entropy(logits, target)
    assert_close(complement_cross_entropy(logits, target, share=0.3), h - 0.3 * c)
    assert_close(complement_cross_entropy(logits, target, share=1 / (K - 1)), complement_cross_entropy(logits, target))
    assert_close(complement_cross_entropy(logits, target, share=0), h, rtol=0, atol=0)
    assert_close(complement_cross_entropy(logits, target, share=[0.3] * K), h - 0.3 * c)


def test_the_released_code_by_name():
    logits, target = torch.randn(5, K), torch.tensor([0, 1, 2, 3, 5])
    expected = F.cross_entropy(logits, target) + complement_entropy(logits, target) / K
    assert_close(complement_cross_entropy(logits, target, gamma="released"), expected)
    assert_close(ComplementCrossEntropyLoss(gamma="released")(logits, target), expected)


def test_sparing_a_rival_leaves_the_others_evened_out():
    logits, target = torch.tensor([[1.0, 9.0, 0.0, 0.0, 0.0]]), torch.tensor([0])
    assert complement_entropy(logits, target) < 0.01
    assert complement_entropy(logits, target, spare=1).item() == pytest.approx(math.log(3))
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(complement_entropy(logits, target, spare=1), logits)
    assert gradient[0, 1] == 0


@repeatable
@given(batch=batches(), spare=st.integers(0, 9))
def test_spared_complement_entropy(batch, spare):
    rows = complement_entropy(*batch, spare=spare, reduction="none")
    expected = reference.spared_complement_entropy(*reference.flat_rows(*batch), spare)
    assert_close(rows, expected.reshape(batch[1].shape), rtol=1e-9, atol=1e-10)


@repeatable
@given(batch=batches(), offset=st.booleans(), smoothing=st.sampled_from([0.0, 0.1]))
def test_rivals_that_are_frequent(batch, offset, smoothing):
    """C of each row by eq. 2, over the wrong classes with at least as many images."""
    flat, labels = reference.flat_rows(*batch)
    k = flat.shape[1]
    counts = [1 + (7 * i) % 20 for i in range(k)]
    shift = torch.linspace(-1, 1, k, dtype=torch.float64) if offset else torch.zeros(k, dtype=torch.float64)
    rows = []
    for row, g in zip(flat.double(), labels.tolist(), strict=True):
        rest = [j for j in range(k) if j != g and counts[j] >= counts[g]]
        q = row[rest].softmax(0)
        h = F.cross_entropy(row + shift, torch.tensor(g), label_smoothing=smoothing)
        rows.append(h + 0.3 * (q * q.log()).sum())
    settings = {"offset": shift if offset else None, "label_smoothing": smoothing, "reduction": "none"}
    found = complement_cross_entropy(*batch, share=0.3, rivals=frequent_rivals(counts), **settings)
    expected = torch.stack(rows) if rows else flat.new_zeros(0)
    assert_close(found, expected.reshape(batch[1].shape), rtol=1e-8, atol=1e-9)


def test_rivals_leave_the_gradient_of_rarer_classes_to_cross_entropy():
    logits, target = torch.randn(6, K, dtype=torch.float64, requires_grad=True), torch.arange(6) % K
    counts = [2 ** (K - k) for k in range(K)]
    rivals = frequent_rivals(counts)
    ours = complement_cross_entropy(logits, target, share=0.3, rivals=rivals, reduction="sum")
    plain = F.cross_entropy(logits, target, reduction="sum")
    (found,), (expected,) = (torch.autograd.grad(loss, logits) for loss in (ours, plain))
    rarer = torch.arange(K)[None, :] > target[:, None]
    assert_close(found[rarer], expected[rarer])
    assert not torch.allclose(found[3:], expected[3:])
    assert gradcheck(lambda z: complement_cross_entropy(z, target, share=0.3, rivals=rivals, counts=counts), logits)
    module = ComplementCrossEntropyLoss(share=0.3, rivals=rivals, reduction="sum")
    assert module(logits, target) == ours
    assert "rivals" in module.state_dict()


@pytest.mark.parametrize("spare", [4, 5, 6, 100])
def test_cross_entropy_is_left_where_fewer_than_two_classes_are(spare):
    logits, target = torch.randn(5, K), torch.tensor([0, 1, 2, 3, 5])
    for kwargs in ({}, {"offset": OFFSET}, {"margin": MARGIN}):
        expected = adjusted_cross_entropy(logits, target, **kwargs)
        assert_close(complement_cross_entropy(logits, target, share=0.5, spare=spare, **kwargs), expected)
    assert complement_entropy(logits, target, spare=spare) == 0


@repeatable
@given(batch=batches(), tau=st.sampled_from([0.0, 0.5, 1.0, 2.0]), n=st.integers(1, 1000))
def test_counts_are_an_offset_of_h(batch, tau, n):
    k = reference.flat_rows(*batch)[0].shape[1]
    counts = [1 + (7 * i) % 50 for i in range(k)]
    loss = complement_cross_entropy(*batch, counts=counts, tau=tau)
    assert_close(loss, complement_cross_entropy(*batch, offset=logit_offset(counts, tau)), rtol=0, atol=0)
    h, c = logit_adjusted_cross_entropy(*batch, counts, tau=tau), complement_entropy(*batch, balanced=True)
    assert_close(loss, h - c, rtol=1e-9, atol=1e-10)
    equal = complement_cross_entropy(*batch, counts=[n] * k, tau=tau, share=0.3)
    assert_close(equal, complement_cross_entropy(*batch, share=0.3), rtol=1e-9, atol=1e-9)


def test_no_weight_of_c_leaves_the_adjusted_loss():
    logits, target = torch.randn(5, K), torch.tensor([0, 1, 2, 3, 5])
    for kwargs in ({"gamma": 0}, {"share": 0.0}):
        loss = complement_cross_entropy(logits, target, counts=COUNTS, **kwargs)
        assert_close(loss, balanced_softmax_loss(logits, target, COUNTS), rtol=0, atol=0)


def test_a_class_that_never_occurred_costs_no_nan():
    logits, target = torch.randn(4, 4, requires_grad=True), torch.tensor([0, 1, 2, 3])
    loss = complement_cross_entropy(logits, target, counts=[100, 0, 10, 0])
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()


# The module.


@every_backend
@pytest.mark.parametrize(
    "chosen",
    [
        {"share": 0.3, "counts": COUNTS, "tau": 0.5},
        {"share": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "spare": 2},
        {"gamma": -2.0, "counts": COUNTS, "complement_on": "adjusted", "weight": WEIGHT.float()},
    ],
    ids=str,
)
def test_the_module_is_its_function_with_a_memory(chosen):
    criterion = ComplementCrossEntropyLoss(**chosen)
    logits, target = batch(5, K, dtype=torch.float32)
    assert_close(criterion(logits, target), complement_cross_entropy(logits, target, **chosen))
    assert criterion.double()(logits.double(), target).dtype == torch.float64
    buffers = {"offset"} if "counts" in chosen else set()
    buffers |= {"share"} if isinstance(chosen.get("share"), list) else set()
    buffers |= {"weight"} if "weight" in chosen else set()
    assert criterion.state_dict().keys() == buffers


def test_the_module_shows_its_settings():
    module = ComplementCrossEntropyLoss(share=0.3, spare=2, counts=COUNTS, complement_on="adjusted")
    assert repr(module) == "ComplementCrossEntropyLoss(share=0.3, spare=2, tau=1.0, complement_on=adjusted)"
    assert repr(ComplementCrossEntropyLoss(gamma="released")) == "ComplementCrossEntropyLoss(gamma=released)"
