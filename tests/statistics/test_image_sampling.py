"""Intervals over test images and over groups of them: against a bootstrap written here, and how often they hold."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.image_sampling import paired_image_error
from evenhand.statistics.intervals import class_recall_intervals, mean_recall_interval
from evenhand.statistics.moderated_t import moderated_differences

Labels = NDArray[np.int64]
Names = NDArray[np.str_]


def group_bootstrap(values: NDArray[np.float64], targets: Labels, groups: Names, draws: int) -> NDArray[np.float64]:
    """The literal way: whole groups drawn with replacement within each class."""
    rng, total = np.random.default_rng(1), np.zeros(draws)
    for k in np.unique(targets):
        names = np.unique(groups[targets == k])
        sums = np.array([values[(targets == k) & (groups == name)].sum() for name in names])
        sizes = np.array([((targets == k) & (groups == name)).sum() for name in names])
        drawn = rng.integers(0, len(names), (draws, len(names)))
        total += sums[drawn].sum(1) / sizes[drawn].sum(1)
    return total / len(np.unique(targets))


def scenes(
    rng: np.random.Generator, classes: int, count: int, mean: float, likeness: float = 0.4
) -> tuple[NDArray[np.bool_], Labels, Names, float]:
    """Scenes of 1 to 30 images that stand or fall together, and the true mean recall."""
    recalls = np.clip(mean + rng.uniform(-0.1, 0.1, classes), 0.02, 0.99)
    sizes = rng.integers(1, 31, (classes, count))
    own = (1 - likeness) / likeness
    chances = rng.beta(recalls[:, None] * own, (1 - recalls[:, None]) * own, (classes, count))
    targets = np.repeat(np.repeat(np.arange(classes), count), sizes.ravel())
    groups = np.repeat(np.arange(classes * count), sizes.ravel())
    right = rng.random(len(targets)) < chances.ravel()[groups]
    return right, targets, groups.astype(str), float(recalls.mean())


@pytest.mark.parametrize("seed", range(3))
def test_where_groups_are_many_it_is_the_group_bootstrap(seed: int) -> None:
    right, targets, groups, _ = scenes(np.random.default_rng(seed), 4, 60, 0.7)
    drawn = group_bootstrap(right.astype(float), targets, groups, 4000)
    low, high = np.quantile(drawn, [0.025, 0.975])
    found = mean_recall_interval(right, targets, groups=groups)
    assert found == pytest.approx((low, high), abs=0.12 * (high - low))
    single = mean_recall_interval(right, targets)
    assert single[1] - single[0] < 0.6 * (high - low), "images alone are far too sure"


def test_a_paired_difference_by_group_is_the_group_bootstrap_too() -> None:
    rng = np.random.default_rng(5)
    ours, targets, groups, _ = scenes(rng, 4, 60, 0.7)
    theirs = ours ^ (rng.random(240) < 0.1)[groups.astype(int)]
    drawn = group_bootstrap(ours.astype(float) - theirs, targets, groups, 4000)
    found = paired_image_error(ours[None], theirs[None], targets, groups=groups)
    assert found.mean == pytest.approx(
        np.mean([ours[targets == k].mean() - theirs[targets == k].mean() for k in range(4)])
    )
    assert found.error == pytest.approx(drawn.std(), rel=0.12)


def test_groups_of_one_image_each_are_images() -> None:
    right, targets, _, _ = scenes(np.random.default_rng(0), 3, 20, 0.8)
    alone = mean_recall_interval(right, targets)
    named = mean_recall_interval(right, targets, groups=np.arange(len(targets)).astype(str))
    assert named == pytest.approx(alone, abs=0.003)


def test_one_class_without_groups_is_about_wilson_s_interval() -> None:
    for hits, n in ((40, 50), (100, 200), (3, 40)):
        found = mean_recall_interval(np.arange(n) < hits, np.zeros(n, np.int64))
        wilson = binomtest(hits, n).proportion_ci(method="wilson")
        assert found == pytest.approx((wilson.low, wilson.high), abs=0.04)


def test_no_interval_without_width_and_none_from_a_single_group() -> None:
    right, targets = np.array([True] * 5 + [False] * 12), np.repeat([0, 1, 2], [5, 8, 4])
    low, high = mean_recall_interval(right, targets)
    assert low < 0.25
    assert high > 0.45
    assert mean_recall_interval(right, targets, groups=np.full(17, "one scene")) is not None, "a unit in each class"
    assert mean_recall_interval(right, targets, [1], groups=np.full(17, "one scene")) is None
    assert mean_recall_interval(right, targets, [7]) is None
    with pytest.raises(ValueError, match="confidence"):
        mean_recall_interval(right, targets, confidence=1.0)


def test_classes_that_share_their_groups_move_together() -> None:
    """Each patient has images of both classes, and is easy or hard in both."""
    rng = np.random.default_rng(0)
    patients = np.tile(np.repeat(np.arange(40), 5), 2)
    targets = np.repeat([0, 1], 200)
    right = rng.random(400) < rng.beta(1, 1, 40)[patients]
    together = mean_recall_interval(right, targets, groups=patients.astype(str))
    apart = mean_recall_interval(right, targets, groups=(patients + 40 * targets).astype(str))
    assert together[1] - together[0] > 1.2 * (apart[1] - apart[0])


def held(trials: int, classes: int, count: int, mean: float) -> float:
    rng = np.random.default_rng(classes * count)
    inside = 0
    for _ in range(trials):
        right, targets, groups, truth = scenes(rng, classes, count, mean)
        low, high = mean_recall_interval(right, targets, groups=groups)
        inside += low <= truth <= high
    return inside / trials


@pytest.mark.parametrize("mean", [0.6, 0.9])
def test_intervals_by_group_hold_the_truth(mean: float) -> None:
    assert held(500, 5, 10, mean) > 0.92


@pytest.mark.slow
@pytest.mark.parametrize("mean", [0.6, 0.9, 0.98])
@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize("classes", [1, 2, 5, 10])
def test_intervals_by_group_hold_the_truth_in_many_trials(classes: int, count: int, mean: float) -> None:
    assert held(3000, classes, count, mean) > 0.92


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.5, 0.9, 0.98])
@pytest.mark.parametrize("images", [1, 2, 3, 5, 20, 100])
@pytest.mark.parametrize("classes", [1, 3, 10, 50])
def test_intervals_of_a_handful_of_images_hold_the_truth(classes: int, images: int, chance: float) -> None:
    rng, inside, trials = np.random.default_rng(images), 0, 2000
    targets = np.repeat(np.arange(classes), images)
    for _ in range(trials):
        chances = np.clip(chance + rng.uniform(-0.1, 0.1, classes), 0.02, 0.99)
        low, high = mean_recall_interval(rng.random(len(targets)) < chances[targets], targets)
        inside += low <= chances.mean() <= high
    assert inside / trials > 0.92 - 0.015


def test_what_seeds_differ_by_is_no_image_effect() -> None:
    """Images that flip by chance in each seed share nothing; images that all seeds gain share everything."""
    rng, targets = np.random.default_rng(0), np.repeat(np.arange(5), 40)
    base = np.ones((10, 200), bool)
    flips = paired_image_error(rng.random((10, 200)) < 0.8, base, targets)
    assert flips.shared < 0.4 * flips.error
    same = paired_image_error(np.tile(rng.random(200) < 0.8, (10, 1)), base, targets)
    assert same.shared == same.error
    assert paired_image_error(base, base, targets, classes=[9]) is None


def test_images_that_seeds_take_turns_with_are_counted_once() -> None:
    """Where no image is tested twice, seeds show the sampling of images, but not of the training images they share."""
    rng, targets = np.random.default_rng(0), np.repeat(np.arange(5), 40)
    base, gained = np.ones((1, 200)), (rng.random((1, 200)) < 0.8).astype(float)
    turns = np.arange(200) % 4 == np.arange(4)[:, None]
    once = paired_image_error(np.where(turns, gained, np.nan), np.tile(base, (4, 1)), targets)
    whole = paired_image_error(gained, base, targets)
    assert once.rotated
    assert 0 < once.shared < 0.5 * once.error
    assert once.error == pytest.approx(whole.error)
    twice = paired_image_error(np.where(np.tile(turns, (2, 1)), gained, np.nan), np.tile(base, (8, 1)), targets)
    assert twice.error == pytest.approx(whole.error)
    repeated, overlap, share = 1 - (8 - 2) / (7 * 2), (6 * 0.75 + 1) / 7, 0.3 / (1 + 40 / 32)
    close = pytest.approx(whole.error * (repeated + overlap * share) ** 0.5, rel=0.1)
    given = paired_image_error(
        np.where(np.tile(turns, (2, 1)), gained, np.nan),
        np.tile(base, (8, 1)),
        targets,
        train_counts=np.full(5, 40),
        test_fraction=0.25,
    )
    assert given.shared == close
    assert twice.shared > (whole.error**2 * repeated) ** 0.5
    untested = np.concatenate([np.where(turns, gained, np.nan), np.full((4, 50), np.nan)], axis=1)
    more = paired_image_error(untested, np.ones((4, 250)), np.concatenate([targets, np.arange(50) % 5]))
    assert more == once


def rotated(rng: np.random.Generator, seeds: int, chance: float, spread: float) -> Evidence:
    """Two objectives that are equally good: images that are hard for one, training noise, and five test sets."""
    targets, turn = np.tile(np.arange(6), 50), np.arange(300) // 6 % 5
    hard = rng.random((2, 300))
    drawn = np.where(rng.random((2, seeds, 300)) < chance, rng.random((2, seeds, 300)), hard[:, None])
    right = np.where(turn == np.arange(seeds)[:, None] % 5, drawn < 0.85 + rng.normal(0, spread, (2, seeds, 1)), np.nan)
    values = np.stack([np.nanmean(right[:, :, targets == k], axis=2) for k in range(6)]).mean(axis=0)
    found = moderated_differences({"ours": values[1].tolist(), "base": values[0].tolist()}, "base")["ours"]
    return Evidence(found, paired_image_error(right[1], right[0], targets))


@pytest.mark.parametrize(("chance", "spread"), [(0.1, 0.0), (0.5, 0.01), (0.2, 0.03)])
@pytest.mark.parametrize(
    ("seeds", "trials"), [(5, 150), *(pytest.param(n, 3000, marks=pytest.mark.slow) for n in (3, 5, 8, 10))]
)
def test_rotated_test_sets_claim_no_more_than_they_may(seeds: int, trials: int, chance: float, spread: float) -> None:
    rng = np.random.default_rng(seeds)
    false = np.mean([(rotated(rng, seeds, chance, spread).p or 1.0) <= 0.05 for _ in range(trials)])
    assert false <= 0.05 + 4 * (0.05 * 0.95 / trials) ** 0.5


def test_intervals_of_classes_are_wilson_s_or_by_group() -> None:
    rng = np.random.default_rng(0)
    right, targets, groups, _ = scenes(rng, 3, 12, 0.7)
    low, high = class_recall_intervals(right, targets, 3)
    for k in range(3):
        own = right[targets == k]
        wilson = binomtest(int(own.sum()), len(own)).proportion_ci(method="wilson")
        assert (low[k], high[k]) == pytest.approx((wilson.low, wilson.high))
    by_group = class_recall_intervals(right, targets, 3, groups=groups)
    assert (by_group[1] - by_group[0] > 1.3 * (high - low)).all()
    lone = np.where(targets == 2, "one scene", groups)
    assert np.isnan(class_recall_intervals(right, targets, 3, groups=lone)[0]).tolist() == [False, False, True]
