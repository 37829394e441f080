"""What the loss means: its sign, its weights, soft targets and masked classes, where the paper speaks and where not."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from evenhand.losses.functional import complement_cross_entropy, complement_entropy

from . import reference
from .cases import batches, repeatable, seeds

K = 4
WEIGHT = torch.tensor([0.5, 2.0, 1.0, 3.5], dtype=torch.float64)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def logits_and_target(n: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(n, K, dtype=torch.float64), torch.arange(n) % K


# The sign.


def test_a_flat_complement_costs_less_than_a_peaked_one():
    # Both rows give the correct class (the first) a probability of one half.
    flat, peaked = torch.tensor([[3, 1, 1, 1], [3, 2.8, 0.1, 0.1]]).log()
    correct = torch.tensor(0)
    assert_close(F.cross_entropy(flat, correct), F.cross_entropy(peaked, correct))
    assert complement_entropy(flat, correct) > complement_entropy(peaked, correct)
    assert complement_cross_entropy(flat, correct) < complement_cross_entropy(peaked, correct)
    assert complement_cross_entropy(flat, correct, gamma=1) > complement_cross_entropy(peaked, correct, gamma=1)


def train(gamma: float, start: Tensor, target: Tensor, steps: int = 50) -> Tensor:
    logits = start.clone().requires_grad_()
    optimizer = torch.optim.SGD([logits], lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        complement_cross_entropy(logits, target, gamma=gamma, reduction="sum").backward()
        optimizer.step()
    return logits.detach()


def test_training_raises_the_complement_entropy():
    start, target = logits_and_target()
    before = complement_entropy(start, target)
    by_cce, by_ce, by_opposite = (complement_entropy(train(gamma, start, target), target) for gamma in (-1, 0, 1))
    assert by_cce > before
    assert by_cce > by_ce > by_opposite
    assert complement_cross_entropy(train(-1, start, target), target) < complement_cross_entropy(start, target)


@repeatable
@given(batch=batches())
def test_gamma_of_the_released_code_adds_c_over_k(batch):
    logits, target = reference.flat_rows(*batch)
    k = logits.shape[1]
    loss = complement_cross_entropy(logits, target, gamma=(k - 1) / k)
    expected = reference.cross_entropy(logits, target).mean() + reference.complement_entropy(logits, target).mean() / k
    assert_close(loss, expected, rtol=1e-9, atol=1e-9)


def test_two_classes_leave_cross_entropy():
    logits, target = torch.randn(5, 2, dtype=torch.float64, requires_grad=True), torch.tensor([0, 1, 1, 0, 1])
    assert (complement_entropy(logits, target, reduction="none") == 0).all()
    for gamma in (-1.0, 3.0):
        loss, plain = complement_cross_entropy(logits, target, gamma=gamma), F.cross_entropy(logits, target)
        assert_close(loss, plain, rtol=1e-12, atol=0)
        assert_close(*(torch.autograd.grad(value, logits)[0] for value in (loss, plain)), rtol=1e-12, atol=0)


def test_the_loss_can_be_negative():
    assert complement_cross_entropy(torch.tensor([9.0, 0, 0, 0]), torch.tensor(0)) < 0


# Weights.


def test_a_weight_scales_the_whole_loss_of_its_rows():
    logits, target = logits_and_target()
    h, c = reference.cross_entropy(logits, target), reference.complement_entropy(logits, target)
    w = WEIGHT[target]
    rows = w * (h - c / (K - 1))
    assert_close(complement_cross_entropy(logits, target, WEIGHT, reduction="none"), rows)
    assert_close(complement_cross_entropy(logits, target, WEIGHT, reduction="sum"), rows.sum())
    assert_close(complement_cross_entropy(logits, target, WEIGHT), rows.sum() / w.sum())
    assert_close(complement_entropy(logits, target, WEIGHT, reduction="none"), w * c)
    assert_close(complement_entropy(logits, target, WEIGHT), (w * c).sum() / w.sum())
    assert_close(complement_entropy(logits, target, WEIGHT, balanced=True), (w * c).sum() / w.sum() / (K - 1))


def test_ignored_rows_count_neither_in_the_sum_nor_in_the_mean():
    logits, target = logits_and_target()
    some = torch.tensor([0, 1, -100, 3, -100, 1])
    kept = some != -100
    for loss in (complement_entropy, complement_cross_entropy):
        for weight in (None, WEIGHT):
            assert_close(loss(logits, some, weight), loss(logits[kept], target[kept], weight))
            rows = loss(logits, some, weight, reduction="none")
            assert (rows[~kept] == 0).all()
            assert_close(rows.sum(), loss(logits[kept], target[kept], weight, reduction="sum"))


# Label smoothing.


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_label_smoothing_changes_the_cross_entropy_only(weight, reduction):
    logits, target = logits_and_target()
    smoothed = F.cross_entropy(logits, target, weight, label_smoothing=0.2, reduction=reduction)
    c = reference.complement_entropy(logits, target)
    w = torch.ones(len(target), dtype=torch.float64) if weight is None else weight[target]
    part = {"none": w * c, "sum": (w * c).sum(), "mean": (w * c).sum() / w.sum()}[reduction]
    loss = complement_cross_entropy(logits, target, weight, label_smoothing=0.2, reduction=reduction, gamma=-2)
    assert_close(loss, smoothed - 2 * part / (K - 1))


# Probability targets. `entropy_without` is eq. 2 with more than one class left out.


def entropy_without(row: Tensor, *correct: int) -> Tensor:
    rest = torch.stack([z for j, z in enumerate(row) if j not in correct])
    return torch.special.entr(rest.softmax(0)).sum()


@repeatable
@given(ratio=st.sampled_from([1e-4, 0.1, 0.5, 0.7, 0.9999]), seed=seeds)
def test_both_partners_of_a_mixup_are_correct(ratio, seed):
    row = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    target = torch.tensor([0, ratio, 0, 0, 1 - ratio, 0], dtype=torch.float64)
    c = entropy_without(row, 1, 4)
    assert_close(complement_entropy(row, target), c)
    assert_close(complement_cross_entropy(row, target), F.cross_entropy(row, target) - c / 5)


def test_partners_of_one_class_are_one_class():
    logits, target = logits_and_target()
    mixed = 0.3 * F.one_hot(target, K) + 0.7 * F.one_hot(target, K)
    assert_close(complement_cross_entropy(logits, mixed.double()), complement_cross_entropy(logits, target))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_smoothed_one_hots_have_the_complement_of_one_hots(smoothing, dtype):
    logits, target = torch.randn(8, 10, dtype=dtype), torch.arange(8)
    smoothed = F.one_hot(target, 10).to(dtype) * (1 - smoothing) + smoothing / 10
    smoothed += 1e-7 * torch.rand(8, 10, dtype=dtype)  # as rounding leaves it
    c = complement_entropy(logits, target, reduction="none")
    assert_close(complement_entropy(logits, smoothed, reduction="none"), c, rtol=1e-5, atol=1e-6)
    assert_close(
        complement_cross_entropy(logits, smoothed, reduction="none"),
        F.cross_entropy(logits, smoothed, reduction="none") - c / 9,
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    "target",
    [[0.25] * 4, [0.0] * 4, [0.1, 0.2, 0.3, 0.4], [0.3, 0.3, 0.3, 0.1]],
    ids=["all tied", "all zero", "one incorrect", "three tied, one incorrect"],
)
def test_no_complement_without_two_incorrect_classes(target):
    row = torch.randn(K, dtype=torch.float64, requires_grad=True)
    target = torch.tensor(target, dtype=torch.float64)
    c = complement_entropy(row, target)
    assert c == 0
    assert (torch.autograd.grad(c, row)[0] == 0).all()
    assert_close(complement_cross_entropy(row, target), F.cross_entropy(row, target), rtol=0, atol=0)


def test_classes_are_incorrect_within_a_millionth_of_the_smallest():
    row = torch.randn(K, dtype=torch.float64)
    close, apart = (torch.tensor([0.8, 0.1, 0.1, 0.1 + gap], dtype=torch.float64) for gap in (9e-7, 1.1e-6))
    assert_close(complement_entropy(row, close), close.sum() * entropy_without(row, 0))
    assert_close(complement_entropy(row, apart), apart.sum() * entropy_without(row, 0, 3))


def test_probabilities_weigh_the_complement_and_the_mean_divides_by_the_rows():
    logits = torch.randn(3, K, dtype=torch.float64)
    # Rows need not add up to one; cross entropy does not ask for it either.
    target = torch.tensor([[1, 0, 0, 0], [0, 0.3, 0.7, 0], [0, 0, 0, 0.5]], dtype=torch.float64)
    c = torch.stack([entropy_without(row, *t.nonzero()[:, 0].tolist()) for row, t in zip(logits, target, strict=True)])
    for weight, w in ((None, target.sum(1)), (WEIGHT, (target * WEIGHT).sum(1))):
        plain = F.cross_entropy(logits, target, weight, reduction="none")
        rows = plain - w * c / (K - 1)
        assert_close(complement_cross_entropy(logits, target, weight, reduction="none"), rows)
        assert_close(complement_cross_entropy(logits, target, weight, reduction="sum"), rows.sum())
        assert_close(complement_cross_entropy(logits, target, weight), rows.sum() / 3)
        assert_close(complement_entropy(logits, target, weight), (w * c).sum() / 3)


def test_probabilities_of_images_are_taken_class_by_class():
    logits = torch.randn(2, K, 3, 2, dtype=torch.float64)
    target = torch.randn_like(logits).mul(3).softmax(1).clamp(min=0.2)
    whole = complement_cross_entropy(logits, target, WEIGHT, reduction="none")
    for n, i, j in [(0, 0, 0), (1, 2, 1), (0, 1, 1)]:
        assert_close(whole[n, i, j], complement_cross_entropy(logits[n, :, i, j], target[n, :, i, j], WEIGHT))


def test_one_hot_probabilities_are_class_indices():
    logits, target = logits_and_target()
    for reduction in ("none", "mean", "sum"):
        soft = complement_cross_entropy(logits, F.one_hot(target, K).double(), reduction=reduction)
        assert_close(soft, complement_cross_entropy(logits, target, reduction=reduction))


# Masked classes.


def test_masked_classes_still_count_in_k():
    row, correct = torch.tensor([2.0, 0.0, 0.0, 0.0, -torch.inf]).double(), torch.tensor(0)
    assert complement_entropy(row, correct).item() == pytest.approx(math.log(3))
    assert complement_entropy(row, correct, balanced=True).item() == pytest.approx(math.log(3) / 4)
    expected = F.cross_entropy(row, correct).item() - math.log(3) / 4
    assert complement_cross_entropy(row, correct).item() == pytest.approx(expected)
