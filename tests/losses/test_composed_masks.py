"""CCE with all its arguments, of masked classes and of logits that are huge or not numbers."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses.functional import (
    complement_cross_entropy,
    complement_entropy,
)

from .cases import every_backend
from .composed_cases import COUNTS, SETTINGS, K, all_settings, batch, kinds


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@all_settings
@pytest.mark.parametrize("again", [False, True])
def test_masked_classes_are_as_absent(setting, again):
    """Masked, a class is no rival to spare either, and H and C of the others stay: those of a network without it."""
    chosen = SETTINGS[setting]
    logits, target = batch(4, K)
    target = target.clamp(max=K - 2)
    masked = logits.clone()
    masked[:, -1] = -torch.inf
    masked.requires_grad_()
    fewer = {key: x[:-1] if isinstance(x, Tensor) else x for key, x in chosen.items()}
    if "share" not in chosen:  # gamma is divided by the number of classes, masked or not
        fewer["share"] = -chosen.get("gamma", -1.0) / (K - 1)
        if fewer["share"] > 0:
            fewer.pop("gamma", None)
    without = logits[:, :-1].clone().requires_grad_()
    expected = complement_cross_entropy(without, target, reduction="none", **fewer)
    got = complement_cross_entropy(masked, target, reduction="none", **chosen)
    assert_close(got, expected, rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(got.sum(), masked, create_graph=again)
    assert (gradient[:, -1] == 0).all()
    assert_close(gradient[:, :-1].detach(), torch.autograd.grad(expected.sum(), without)[0], rtol=1e-10, atol=1e-12)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_offset_of_minus_infinity_masks_a_class_for_h_alone(dtype):
    logits, target = torch.randn(3, K, dtype=dtype, requires_grad=True), torch.tensor([0, 1, 2])
    offset = torch.zeros(K)
    offset[-1] = -torch.inf
    loss = complement_cross_entropy(logits, target, offset=offset, share=0.3)
    expected = F.cross_entropy(logits[:, :-1], target) - 0.3 * complement_entropy(logits, target)
    assert_close(loss, expected)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert_close(gradient, torch.autograd.grad(expected, logits)[0])


@all_settings
@kinds
def test_nan_logits_are_not_hidden_and_stay_in_their_row(setting, kind):
    target = torch.tensor([0, 1]) if kind == "indices" else torch.eye(K)[:2]
    for place in (0, 2):
        logits = torch.randn(2, K)
        logits[0, place] = torch.nan
        rows = complement_cross_entropy(logits, target, reduction="none", **SETTINGS[setting])
        assert rows.isnan().tolist() == [True, False]
        rows = complement_entropy(logits, target, spare=2, reduction="none")
        assert rows.isnan().tolist() == [True, False]


LARGEST = torch.finfo(torch.float32).max
HUGE = {
    "one wrong class": [3e38, 0.0, 1.0, -2.0, 0.5, 0.0],
    "the correct class": [0.0, 3e38, 1.0, -2.0, 0.5, 0.0],
    "the largest number": [LARGEST, 0.0, 1.0, -2.0, 0.5, 0.0],
    "one far below": [-3e38, 0.0, 1.0, -2.0, 0.5, 0.0],
    "the correct class far below": [0.0, -3e38, 1.0, -2.0, 0.5, 0.0],
    "all far below": [-3e38] * 6,
    "all far above": [3e38] * 6,
    "all but the correct class far below": [-3e38, 1.0, -3e38, -3e38, -3e38, -3e38],
    "two levels": [1e38, 2e38, 1e38, 1e38, -1e38, 1e38],
    "sizes of 1e31": [1e31, 0.0, 3e31, -1e31, 0.0, 2e31],
}


@every_backend
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"share": 5.0},
        {"gamma": "released"},
        {"spare": 2},
        {"counts": COUNTS},
    ],
    ids=str,
)
@pytest.mark.parametrize("again", [False, True])
def test_the_loss_is_finite_wherever_cross_entropy_is(chosen, again):
    for name, row in HUGE.items():
        check_finite(name, torch.tensor(row), chosen, again)


def check_finite(name: str, row: Tensor, chosen: dict, again: bool) -> None:
    logits = torch.stack([torch.zeros(K), row, torch.linspace(-1, 1, K), torch.zeros(K)]).requires_grad_()
    target = torch.tensor([0, 1, 2, 3])
    plain = F.cross_entropy(logits, target, reduction="none")
    rows = complement_cross_entropy(logits, target, reduction="none", **chosen)
    assert rows.isfinite().tolist() == plain.isfinite().tolist(), name
    assert_close(rows[1], plain[1], rtol=1e-5, atol=5 * math.log(K))  # C, at most ln(K - 1), is nothing beside H
    whole, plain_mean = complement_cross_entropy(logits, target, **chosen), F.cross_entropy(logits, target)
    assert whole.isfinite() == plain_mean.isfinite(), name
    (gradient,) = torch.autograd.grad(rows[plain.isfinite()].sum(), logits, create_graph=again)
    assert gradient.isfinite().all(), name


@every_backend
def test_a_huge_logit_costs_what_cross_entropy_says():
    logits, target = torch.zeros(4, 10), torch.tensor([0, 1, 2, 3])
    logits[1, 0] = 3e38
    assert complement_cross_entropy(logits, target).item() == pytest.approx(7.5e37)
