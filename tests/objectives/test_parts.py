"""Each part does what it says: against formulas written out, chi-squared tests, and runs that were stopped."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare, ks_2samp, kstest
from torch import Tensor
from torchvision.transforms import v2

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.data.batches import Batches, Preprocessing
from evenhand.data.images import open_images
from evenhand.data.table import ArrayPixels, SampleTable
from evenhand.losses.functional import complement_entropy
from evenhand.metrics.shot_groups import ShotGroups
from evenhand.objectives import build_objective
from evenhand.objectives.augmentation import Erasing
from evenhand.objectives.images import Remix
from evenhand.objectives.part import PARTS, TrainingStats
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, StopAfter, assert_same_run, tiny, trainer_of

COUNTS = (400, 100, 25, 5)
LABELS = np.repeat(np.arange(4), COUNTS)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, 4, generator=generator), torch.arange(12) % 4


def log_softmax(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


# The loss that comes out


@pytest.mark.parametrize(("spec", "tau"), [("balanced-softmax", 1.0), ("logit-adjust:tau=0.5", 0.5)])
def test_logit_adjustment_adds_the_log_shares(spec: str, tau: float) -> None:
    logits, labels = batch()
    shifted = logits.double().numpy() + tau * np.log(np.array(COUNTS) / sum(COUNTS))
    expected = -log_softmax(shifted)[np.arange(12), labels].mean()
    assert build_objective(spec, counts=COUNTS).loss(logits, labels).item() == pytest.approx(expected, rel=1e-6)


def test_cce_sees_the_offset_in_h_only() -> None:
    logits, labels = batch()
    shifted = logits.double().numpy() + np.log(np.array(COUNTS) / sum(COUNTS))
    h = -log_softmax(shifted)[np.arange(12), labels].mean()
    c = complement_entropy(logits, labels).item()
    both = build_objective("balanced-softmax+cce:share=0.3", counts=COUNTS).loss(logits, labels).item()
    assert both == pytest.approx(h - 0.3 * c, rel=1e-6)
    adjusted = build_objective("balanced-softmax+cce:share=0.3:on=adjusted", counts=COUNTS).loss(logits, labels).item()
    assert adjusted == pytest.approx(h - 0.3 * complement_entropy(torch.from_numpy(shifted), labels).item(), rel=1e-6)


def test_ldam_takes_a_margin_off_the_correct_logit() -> None:
    logits, labels = batch()
    margins = 0.5 * (min(COUNTS) / np.array(COUNTS)) ** 0.25
    shifted = logits.double().numpy()
    shifted[np.arange(12), labels] -= 30 * margins[labels]
    objective = build_objective("ldam", counts=COUNTS)
    assert objective.head == "cosine:scale=30"
    expected = -log_softmax(shifted)[np.arange(12), labels].mean()
    assert objective.loss(logits, labels).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("spec", ["balanced-softmax", "logit-adjust:tau=2", "ce+weights", "ce+drw"])
def test_equal_counts_leave_cross_entropy(spec: str) -> None:
    logits, labels = batch()
    loss = build_objective(spec, counts=[7] * 4).loss(logits, labels)
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_weights_weigh_rows_and_drw_does_so_late() -> None:
    logits, labels = batch()
    w = sum(COUNTS) / (4 * np.array(COUNTS, np.float64))
    rows = -log_softmax(logits.double().numpy())[np.arange(12), labels]
    expected = (w[labels] * rows).sum() / w[labels].sum()
    plain = rows.mean()
    assert build_objective("ce+weights", counts=COUNTS).loss(logits, labels).item() == pytest.approx(expected, rel=1e-6)
    drw = build_objective("ce+drw:start=0.8:by=inverse", counts=COUNTS, epochs=10)
    losses = [drw.loss(logits, labels, epoch).item() for epoch in range(10)]
    assert losses == pytest.approx([plain] * 8 + [expected] * 2, rel=1e-6)
    short = build_objective("ce+drw", counts=COUNTS, epochs=1)
    assert short.loss(logits, labels, 0).item() != pytest.approx(plain)  # a part that is named is active


def test_focal_loss_takes_weights_and_offsets() -> None:
    logits, labels = batch()
    w = sum(COUNTS) / (4 * np.array(COUNTS, np.float64))
    p = np.exp(log_softmax(logits.double().numpy()))[np.arange(12), labels]
    expected = (-w[labels] * (1 - p) ** 2 * np.log(p)).mean()
    loss = build_objective("focal+weights", counts=COUNTS).loss(logits, labels).item()
    assert loss == pytest.approx(expected, rel=1e-5)
    p = np.exp(log_softmax(logits.double().numpy() + np.log(np.array(COUNTS) / sum(COUNTS))))[np.arange(12), labels]
    loss = build_objective("balanced-softmax+focal", counts=COUNTS).loss(logits, labels).item()
    assert loss == pytest.approx((-((1 - p) ** 2) * np.log(p)).mean(), rel=1e-5)


def test_label_smoothing_is_that_of_cross_entropy() -> None:
    logits, labels = batch()
    objective = build_objective("label-smoothing:eps=0.3", counts=COUNTS)
    _, target = objective.transform(torch.zeros(12, 1, 2, 2), labels, 0, 0)
    expected = F.cross_entropy(logits, labels, label_smoothing=0.3)
    torch.testing.assert_close(objective.loss(logits, target), expected, rtol=1e-6, atol=0)


def test_classes_without_images_break_nothing() -> None:
    logits, labels = batch()
    logits, labels = logits[labels < 3], labels[labels < 3]
    for spec in (
        "balanced-softmax",
        "ldam",
        "ce+weights",
        "ce+weights:by=effective",
        "remix",
        "cce:share=0.3",
    ):
        objective = build_objective(spec, counts=(400, 100, 25, 0))
        _, target = objective.transform(torch.zeros(len(labels), 1, 2, 2), labels, 0, 0)
        assert objective.loss(logits, target).isfinite(), spec
    order = build_objective("ce+sampling", counts=(400, 100, 25, 0)).order(LABELS[LABELS < 3], 0, 0)
    assert order is not None
    assert chisquare(np.bincount(LABELS[order], minlength=3)[:3]).pvalue > 1e-3


# Sampling


@pytest.mark.parametrize(
    ("by", "epoch", "rates"),
    [
        ("class", 0, [1, 1, 1, 1]),
        ("sqrt", 0, [20, 10, 5, 5**0.5]),
        ("progressive", 0, [400, 100, 25, 5]),
        ("progressive", 4, [1, 1, 1, 1]),
        ("progressive", 2, [0.5 * n / 530 + 0.5 / 4 for n in COUNTS]),
    ],
)
def test_samplers_draw_what_they_claim(by: str, epoch: int, rates: list[float]) -> None:
    objective = build_objective(f"sampling:by={by}", counts=COUNTS, epochs=5)
    shown = np.zeros(len(LABELS))
    for seed in range(20):
        order = objective.order(LABELS, seed, epoch)
        assert order is not None
        assert len(order) == len(LABELS)
        shown += np.bincount(order, minlength=len(LABELS))
    classes = np.bincount(LABELS, weights=shown)
    expected = classes.sum() * np.array(rates) / sum(rates)
    assert chisquare(classes, expected).pvalue > 1e-3
    for k in range(4):  # within a class no row is preferred; rounds make the spread smaller than chance would
        rows = shown[k == LABELS]
        assert chisquare(rows).pvalue > 1e-3


def test_no_row_comes_again_before_all_of_its_class_came() -> None:
    order = build_objective("sampling", counts=COUNTS).order(LABELS, 0, 0)
    assert order is not None
    for k in range(4):
        times = np.bincount(order[LABELS[order] == k], minlength=len(LABELS))[k == LABELS]
        assert times.max() - times.min() <= 1


def _batches(rank: int = 0, world: int = 1) -> Batches:
    pixels = np.arange(530, dtype=np.uint16).view(np.uint8).reshape(530, 1, 2, 1).repeat(4, 1).repeat(2, 2)
    table = SampleTable(
        "numbered", tuple("abcd"), LABELS, np.array([f"{i:03}" for i in range(530)]), ArrayPixels(pixels)
    )
    preprocessing = Preprocessing(crop_size=4, mean=(0.5,), std=(0.5,), padding=1)
    return Batches(open_images(table), LABELS, np.arange(530), preprocessing, 50, rank=rank, world=world)


def test_two_processes_share_one_order() -> None:
    objective = build_objective("sampling", counts=COUNTS)
    order = objective.order(LABELS, 3, 1)
    alone = [rows.tolist() for _, _, rows in _batches().train(3, 1, order)]
    assert [row for rows in alone for row in rows] == (order if order is None else order.tolist())
    shares = [[rows.tolist() for _, _, rows in _batches(rank, 2).train(3, 1, order)] for rank in (0, 1)]
    for whole, *parts in zip(alone, *shares, strict=True):
        assert sorted(whole) == sorted([*parts[0], *parts[1]])
        assert parts[0] == whole[::2]


def test_a_row_that_comes_again_is_cut_anew() -> None:
    images = [images for images, _, _ in _batches().train(0, 0, np.full(530, 300))]
    assert len(torch.cat(images).flatten(1).unique(dim=0)) > 5
    with pytest.raises(ValueError, match="an epoch shows 530 rows"):
        next(_batches().train(0, 0, np.zeros(5, np.int64)))


def test_without_a_sampler_the_order_is_as_it_was() -> None:
    assert build_objective("cce+mixup", counts=COUNTS).order(LABELS, 0, 0) is None
    rows = torch.cat([rows for _, _, rows in _batches().train(5, 2)]).numpy()
    assert (rows == stream(5, "order", 2).permutation(530)).all()


# Images


def test_mixup_blends_images_and_targets_alike() -> None:
    objective = build_objective("mixup:alpha=1", counts=COUNTS)
    images, labels = torch.eye(12).reshape(12, 1, 3, 4), torch.arange(12) % 4
    kept = []
    for step in range(300):
        mixed, target = objective.transform(images, labels, 0, 0, step, 0)
        parts = mixed.flatten(1)  # row i: the share of each image in the i-th mixed one
        torch.testing.assert_close(target, parts @ F.one_hot(labels, 4).float())
        torch.testing.assert_close(parts.sum(1), torch.ones(12))
        if not bool((parts.diagonal() > 0.999).all()):
            kept.append(parts.diagonal().min().item())
    assert kstest(kept, "uniform").pvalue > 1e-3
    same = [objective.transform(images, labels, 0, 0, 7, 0)[0] for _ in range(2)]
    assert torch.equal(*same)
    assert not torch.equal(same[0], objective.transform(images, labels, 0, 1, 7, 0)[0])


def test_cutmix_pastes_rectangles_and_counts_their_pixels() -> None:
    objective = build_objective("cutmix", counts=COUNTS)
    images = torch.arange(8.0).reshape(8, 1, 1, 1).expand(8, 1, 16, 16).contiguous()
    labels = torch.arange(8) % 4
    shares = []
    for step in range(100):
        mixed, target = objective.transform(images, labels, 1, 0, step, 0)
        parts = torch.stack([(mixed == i).float().mean(dim=(1, 2, 3)) for i in range(8)], 1)
        torch.testing.assert_close(target, parts @ F.one_hot(labels, 4).float())
        shares.append(parts.diagonal().mean().item())
    assert min(shares) < 0.4 < 0.9 < max(shares)


PIXELS = torch.from_numpy(np.random.default_rng(5).integers(0, 256, (24, 3, 20, 20), np.uint8))


@pytest.mark.parametrize(
    ("spec", "reference"),
    [
        ("randaugment", v2.RandAugment()),
        ("randaugment:ops=1:magnitude=20", v2.RandAugment(1, 20)),
        ("trivialaugment", v2.TrivialAugmentWide()),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_augmentation_is_that_of_torchvision_image_by_image(spec: str, reference: Any, channels: int) -> None:
    augment = build_objective(spec, counts=COUNTS).augment(7, 2, 0)
    assert augment is not None
    images = PIXELS[:, :channels]
    torch.manual_seed(11)
    before = torch.get_rng_state()
    found = augment(images, 3)
    assert torch.equal(torch.get_rng_state(), before)  # nothing else draws other numbers because of it
    assert (found.dtype, found.shape) == (torch.uint8, images.shape)
    assert torch.equal(found, augment(images, 3))
    assert not torch.equal(found, augment(images, 4))
    assert torch.equal(images, PIXELS[:, :channels])
    seed = int(stream(7, spec.partition(":")[0], 2, 3, 0).integers(2**63))
    torch.manual_seed(seed)
    assert torch.equal(found, torch.stack([reference(image) for image in images]))
    others = [build_objective(spec, counts=COUNTS).augment(*where) for where in ((8, 2, 0), (7, 1, 0), (7, 2, 1))]
    assert not any(each is None or torch.equal(found, each(images, 3)) for each in others)
    assert build_objective("cce", counts=COUNTS).augment(7, 2, 0) is None


def test_pixels_are_augmented_before_they_are_normalised(tmp_path: Path) -> None:
    trainer = trainer_of(tiny(), tmp_path / "run")
    batches, seen = trainer.batches("train", 32), []

    def invert(pixels: torch.Tensor, number: int) -> torch.Tensor:
        assert pixels.dtype == torch.uint8
        seen.append(number)
        return 255 - pixels

    plain = [images for images, _, _ in batches.train(0, 1)]
    inverted = [images for images, _, _ in batches.train(0, 1, None, invert)]
    assert seen == list(range(len(batches)))
    normalise = batches.preprocessing.normalise
    white = normalise(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8)) + normalise(torch.zeros(1, 1, 1, 1).byte())
    for one, other in zip(plain, inverted, strict=True):
        torch.testing.assert_close(one + other, white.expand_as(one))


@pytest.mark.parametrize("size", [(32, 32), (24, 48)])
def test_erasing_erases_as_often_and_as_much_as_torchvision(size: tuple[int, int]) -> None:
    images, labels = torch.ones(4000, 1, *size), torch.zeros(4000, dtype=torch.int64)
    found, target = build_objective("erasing", counts=COUNTS).transform(images, labels, 0, 0, 0, 0)
    assert target is labels
    torch.manual_seed(0)
    reference = v2.RandomErasing()
    expected = torch.stack([reference(image) for image in images])
    areas = [1 - each.mean((1, 2, 3)) for each in (found, expected)]
    erased = [area[area > 0] for area in areas]
    assert [len(each) / 4000 for each in erased] == pytest.approx([0.5, 0.5], abs=0.03)
    assert ks_2samp(*(each.numpy() for each in erased)).pvalue > 1e-3
    for axis in (2, 3):  # everywhere as often, also at the borders
        ours, theirs = ((each == 0).float().mean((0, 1, axis)) for each in (found, expected))
        torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(2, 40), st.integers(0, 2**32))
def test_erasing_erases_one_rectangle_inside_each_image(height: int, width: int, seed: int) -> None:
    images = torch.full((6, 2, height, width), 3.0)
    found = Erasing(p=1, largest=0.5).erase(images, np.random.default_rng(seed))
    assert set(found.unique().tolist()) <= {0.0, 3.0}
    for image in (found == 0).numpy():
        assert (image[0] == image[1]).all()
        rows, columns = np.flatnonzero(image[0].any(1)), np.flatnonzero(image[0].any(0))
        assert len(rows) < height
        assert len(columns) < width
        assert image[0].sum() == len(rows) * len(columns)
        for places in (rows, columns):
            assert (np.diff(places) == 1).all()


def test_remix_gives_the_target_to_the_rarer_class() -> None:
    """By the formula of its authors, image by image."""
    part, known = Remix(), TrainingStats(COUNTS)
    own, other = torch.tensor([0, 3, 0, 1]), torch.tensor([3, 0, 0, 2])
    for kept in (0.1, 0.4, 0.6, 0.9):
        expected = []
        for i, j in zip(own.tolist(), other.tolist(), strict=True):
            ratio = COUNTS[i] / COUNTS[j]
            expected.append(0.0 if ratio >= 3 and kept < 0.5 else 1.0 if ratio <= 1 / 3 and 1 - kept < 0.5 else kept)
        assert part.target_weight(kept, own, other, known).tolist() == pytest.approx(expected)


# What is said, and the prior


def test_every_part_says_that_it_is_active() -> None:
    groups = ShotGroups(many=(0, 1), medium=(2,), few=(3,), rule="by hand")
    told = build_objective("ldam+drw:by=inverse+mixup", counts=COUNTS, epochs=10).describe(groups)
    assert [line["part"] for line in told] == ["ldam", "drw:by=inverse", "mixup"]
    assert told[0]["few"] == pytest.approx(0.5)
    assert told[1]["few"] == pytest.approx(530 / 4 / 5, rel=1e-6)
    assert "from epoch 9 of 10 on" in told[1]["what"]
    (line,) = build_objective("sampling", counts=COUNTS).describe(groups)
    assert line["few"] == pytest.approx(530 / 4 / 5)
    (line,) = build_objective("balanced-softmax", counts=COUNTS).describe(groups)
    assert line["few"] == pytest.approx(np.log(5 / 530), rel=1e-6)
    known = TrainingStats(COUNTS, epochs=10)
    silent = [name for name, part in PARTS.items() if part().describe(known) is None]
    assert silent == ["ce"]
    focal, cot = build_objective("focal:gamma=1:alpha=0.5+cot:forwards=1", counts=COUNTS).describe(groups)
    assert focal["what"].startswith("weight of an image 0.5 (1 - p)^1")
    assert cot["what"].endswith("from the same forward pass")


def test_with_two_classes_nothing_is_said_to_weigh_c() -> None:
    groups = ShotGroups(many=(0,), medium=(), few=(1,), rule="by hand")
    for spec in ("balanced-softmax+cce:share=0.3", "cce", "cot"):
        told = build_objective(spec, counts=(50, 5)).describe(groups)
        assert told[-1]["what"].startswith("C is always 0 with 2 classes"), spec


def test_a_part_that_sets_in_after_the_selected_epoch_is_told() -> None:
    objective = build_objective("ldam+drw", counts=COUNTS, epochs=10)
    assert objective.first_epoch == 9
    assert objective.idle_parts(9) == []
    (failure,) = objective.idle_parts(8)
    assert failure == "drw starts at epoch 9, but the weights are those of epoch 8, so drw had no effect."
    assert build_objective("ldam", counts=COUNTS, epochs=10).first_epoch == 1


def test_the_prior_that_training_implies() -> None:
    pi = np.array(COUNTS) / sum(COUNTS)
    equal = np.full(4, 0.25)
    for spec, expected in {
        "ce": pi,
        "balanced-softmax": equal,
        "logit-adjust:tau=0.5": pi**0.5 / (pi**0.5).sum(),
        "ce+sampling": equal,
        "ce+sampling:by=sqrt": pi**0.5 / (pi**0.5).sum(),
        "ce+weights": equal,
        "ce+crt": equal,
    }.items():
        np.testing.assert_allclose(build_objective(spec, counts=COUNTS).prior(), expected, rtol=1e-6, err_msg=spec)
    for spec in (
        "cce",
        "focal",
        "ldam",
        "cot",
        "ce+mixup",
        "ce+label-smoothing",
        "ce+weights:by=effective",
        "ce+drw:by=inverse",
    ):
        assert build_objective(spec, counts=COUNTS).prior() is None, spec


# In a run


@pytest.mark.parametrize(
    "spec",
    [
        "ldam+drw:start=0.5+mixup",
        "balanced-softmax+cce:share=0.3:spare=2+cutmix+label-smoothing",
        "cosine+sampling:by=progressive+remix",
        "focal+weights:by=effective",
        "ce+randaugment:ops=1+erasing+mixup",
        "cce+trivialaugment+erasing:p=1",
    ],
)
def test_resumed_equals_uninterrupted_with_every_part(tmp_path: Path, spec: str) -> None:
    config = tiny(objective=spec)
    train_run(config, tmp_path / "whole")
    with contextlib.suppress(Interrupted):
        train_run(config, tmp_path / "stopped", callback=StopAfter(10))
    assert not (tmp_path / "stopped" / "summary.json").exists()
    resume_run(tmp_path / "stopped")
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_counts_are_those_of_the_rows_trained_on(tmp_path: Path) -> None:
    trainer = trainer_of(tiny(objective="balanced-softmax"), tmp_path / "run")
    labels = trainer.prepared.table.labels[trainer.prepared.splits.train]
    assert trainer.objective.stats.counts == tuple(np.bincount(labels, minlength=10).tolist())
    assert sum(trainer.objective.stats.counts) < trainer.prepared.splits.counts.sum()


def test_ldam_needs_a_linear_layer_to_normalise(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="squeezenet does not end in a linear layer"):
        train_run(tiny(objective="ldam", model__name="squeezenet"), tmp_path / "run")


@pytest.mark.parametrize("tau", [0.5, 1.0])
def test_a_class_without_images_counts_as_the_smallest_in_the_implied_prior(tau: float) -> None:
    """As in the loss, whose offset treats it so; balanced softmax has then made up for all of them."""
    found = build_objective(f"logit-adjust:tau={tau}", counts=[100, 10, 0]).prior()
    expected = np.array([100.0, 10, 10]) ** (1 - tau)
    np.testing.assert_allclose(found, expected / expected.sum())


def test_remix_tells_what_is_left_of_the_target_of_each_class() -> None:
    """Beside a simulation of the rule of Chou et al. (2020) with partners drawn by their shares."""
    objective = build_objective("remix:alpha=0.7:kappa=3:tau=0.4", counts=[300, 90, 10])
    (told,) = (part.describe(objective.stats) for part in objective.parts if part.name == "remix")
    random = np.random.default_rng(0)
    counts = np.array([300.0, 90, 10])
    partner = random.choice(3, 200_000, p=counts / counts.sum())
    blend = random.beta(0.7, 0.7, 200_000)
    for k, own in enumerate(counts):
        ratio = own / counts[partner]
        share = np.where((ratio >= 3) & (blend < 0.4), 0.0, blend)
        share = np.where((ratio <= 1 / 3) & (1 - blend < 0.4), 1.0, share)
        assert told.values is not None
        assert told.values[k] == pytest.approx(share.mean(), abs=0.005)
