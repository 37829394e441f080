"""Figures: the numbers they draw, against independent references."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix as reference_confusion
from sklearn.metrics import recall_score

from evenhand.core.errors import EvenhandError
from evenhand.losses.functional import complement_entropy
from evenhand.metrics.predictions import Predictions
from evenhand.report import figures
from evenhand.report.figures.embedding import _merge_equal, choose_points
from evenhand.report.figures.errors import error_study
from tests.report.figure_cases import history, predictions, runs


def _from_confusion(confusion: Any, counts: list[int]) -> Predictions:
    """Return predictions with this confusion matrix."""
    targets, predicted = (np.repeat(axis.ravel(), np.ravel(confusion)) for axis in np.indices(np.shape(confusion)))
    logits = np.eye(len(counts), dtype=np.float32)[predicted] * 5
    ids = np.array([str(row) for row in range(len(targets))])
    return Predictions(logits, targets, ids, tuple(f"class {k}" for k in range(len(counts))), np.array(counts))


# ---- class distributions


def test_the_papers_distributions_have_the_known_totals() -> None:
    panels = figures.paper_distributions()
    assert [title[:3] for title in panels] == [f"({letter})" for letter in "abcdefghij"]
    totals = {title[4:]: [sum(counts) for counts in panel.values()] for title, panel in panels.items()}
    assert totals == {
        "CIFAR-10 LT": [20431, 12406],
        "CIFAR-10 Step": [27500, 25250],
        "CIFAR-100 LT": [19573, 10847],
        "CIFAR-100 Step": [27500, 25250],
        "Road Marking": [1443],
        "Fashion-MNIST LT": [24516, 14886],
        "Fashion-MNIST Step": [33000, 30300],
        "Tiny ImageNet LT": [39072, 21549],
        "Tiny ImageNet Step": [55000, 50500],
        "SVHN": [73257],
    }
    assert len(panels["(e) Road Marking"][""]) == 27


def test_distributions_are_drawn_largest_class_first_and_larger_variant_behind() -> None:
    figure = figures.class_distributions({"mine": {"all": [3, 9, 6], "few": [1, 2, 3]}})
    behind, front = figure.axes[0].patches
    assert behind.get_data().values.tolist() == [9, 6, 3]  # type: ignore[attr-defined]
    assert front.get_data().values.tolist() == [3, 2, 1]  # type: ignore[attr-defined]


# ---- confusion matrices


def test_confusion_matrices_are_normalised_by_row_ordered_and_on_one_scale() -> None:
    named = runs(12, seeds=1)
    figure = figures.confusion_matrices(named, by_count=True)
    for axes, [mine] in zip(figure.axes, named.values(), strict=False):
        [image] = axes.get_images()
        wanted = 100 * reference_confusion(mine.targets, mine.predicted(), normalize="true")
        order = np.argsort(-mine.train_counts, kind="stable")
        np.testing.assert_allclose(image.get_array(), wanted[np.ix_(order, order)])
        assert image.get_clim() == (0, 100)


@pytest.mark.parametrize(("num_classes", "numbers"), [(15, True), (16, False)])
def test_cells_show_numbers_for_up_to_15_classes(num_classes: int, numbers: bool) -> None:
    figure = figures.confusion_matrices({"ce": [predictions(num_classes)]})
    assert bool(figure.axes[0].texts) is numbers


def test_a_class_without_test_images_is_hatched_not_counted() -> None:
    mine = _from_confusion([[3, 1, 0], [0, 4, 0], [0, 0, 0]], [5, 5, 5])
    axes = figures.confusion_matrices({"ce": [mine]}).axes[0]
    assert [patch.get_hatch() for patch in axes.patches] == ["////"]
    assert axes.get_title(loc="left") == "ce\nbalanced accuracy 87.5%"


def test_seeds_are_added_up() -> None:
    one = _from_confusion([[1, 0], [0, 1]], [5, 5])
    other = _from_confusion([[0, 1], [0, 1]], [5, 5])
    [image] = figures.confusion_matrices({"ce": [one, other]}).axes[0].get_images()
    assert np.asarray(image.get_array()).tolist() == [[50, 50], [0, 100]]


def test_models_of_different_classes_are_refused() -> None:
    with pytest.raises(EvenhandError, match="different classes"):
        figures.confusion_matrices({"ce": [predictions(3)], "cce": [predictions(4)]})
    with pytest.raises(EvenhandError, match="no predictions to draw for 'cce'"):
        figures.recall_by_count({"ce": [predictions(3)], "cce": []})


# ---- t-SNE


def test_features_that_objectives_share_are_drawn_once() -> None:
    one, other = np.eye(4, 3), np.eye(4, 3) * 2
    (only,) = _merge_equal({"ce": one, "cce": one.copy()})
    assert only == "all objectives (equal features)"
    assert list(_merge_equal({"ce": one})) == ["ce"]
    kept = _merge_equal({"ce": one, "cce": other, "focal": one.copy()})
    assert list(kept) == ["ce, focal", "cce"]
    assert np.array_equal(kept["cce"], other)


def test_embeddings_repeat_under_a_seed_and_keep_neighbours() -> None:
    rng = np.random.default_rng(0)
    classes = np.arange(60) % 3
    features = (rng.normal(size=(60, 64)) + 20 * np.eye(64)[classes]).astype(np.float16)
    points = figures.embed(features, seed=3)
    np.testing.assert_array_equal(points, figures.embed(features, seed=3))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2) + 1e9 * np.eye(60)
    assert (classes[distances.argmin(axis=1)] == classes).mean() > 0.95


def test_at_most_2000_points_are_chosen_by_the_seed() -> None:
    chosen = choose_points(10_000, seed=1)
    assert len(np.unique(chosen)) == 2000
    assert not np.array_equal(chosen, choose_points(10_000, seed=2))
    assert choose_points(50, seed=1).tolist() == list(range(50))


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.full((20, 4), np.inf, np.float16), "NaN or infinite"),
        (np.ones((20, 4)), "are equal"),
        (np.ones((3, 4)), "10 or more rows"),
    ],
)
def test_features_that_cannot_be_drawn_are_refused(features: Any, words: str) -> None:
    with pytest.raises(EvenhandError, match=words):
        figures.embed(features)


def test_a_single_feature_can_be_drawn() -> None:
    assert np.isfinite(figures.embed(np.arange(20.0)[:, None])).all()


# ---- curves


def test_error_curves_are_means_with_a_band_from_lowest_to_highest_seed() -> None:
    seeds = [[{"epoch": e, "test_accuracy": a} for e, a in enumerate(row, 1)] for row in ([0.2, 0.6, 0.9], [0.4, 0.8])]
    axes = figures.error_curves({"ce": seeds}).axes[0]
    [line] = axes.get_lines()
    np.testing.assert_allclose(line.get_xydata(), [[1, 70], [2, 30]])  # type: ignore[arg-type]
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((20, 80))  # type: ignore[call-overload, index]


def test_a_history_without_the_test_set_says_how_to_get_it() -> None:
    with pytest.raises(EvenhandError, match="--track-test"):
        figures.error_curves({"ce": [[{"epoch": 1, "val_accuracy": 0.5}]]})
    with pytest.raises(EvenhandError, match="'ce' has no finished epoch"):
        figures.history_curves({"ce": [[]]}, "val_accuracy", label="accuracy")


def test_epochs_without_wrong_images_leave_the_curve_open() -> None:
    rows = [{**row, "val_complement_entropy_wrong": math.nan if row["epoch"] == 2 else 1.0} for row in history(3)]
    right, wrong = figures.complement_entropy_curves({"ce": [rows]}, num_classes=10).axes
    assert np.isnan(wrong.get_lines()[0].get_ydata()).tolist() == [False, True, False]  # type: ignore[arg-type]
    assert right.get_lines()[1].get_ydata() == pytest.approx([math.log(9)] * 2)  # type: ignore[comparison-overlap]


# ---- errors


def test_similarity_does_not_see_a_preference_for_large_classes() -> None:
    rng = np.random.default_rng(0)
    similarity = rng.random((6, 6)) * 0.5
    similarity = (similarity + similarity.T) / 2
    np.fill_diagonal(similarity, 1)
    preference = np.geomspace(1, 30, 6)
    choices = similarity * preference
    confusion = np.rint(1e7 * choices / choices.sum(axis=1, keepdims=True)).astype(np.int64)
    np.testing.assert_allclose(figures.class_similarity(confusion), similarity, rtol=1e-3)


def test_errors_are_few_where_they_go_one_way_and_similar_where_they_go_both_ways() -> None:
    confusion = np.diag([90, 90, 80, 80, 30, 90])
    confusion[2, 3] = confusion[3, 2] = 15  # alike
    confusion[4, 0] = 60  # rare: all is lost to the largest
    confusion[1, 5] = 4  # neither
    mine = _from_confusion(confusion, [5000, 900, 800, 700, 9, 90])
    kinds = figures.sort_errors(mine)
    predicted = mine.predicted()
    assert set(kinds[(mine.targets == 2) & (predicted == 3)]) == {"similar"}
    assert set(kinds[(mine.targets == 4) & (predicted == 0)]) == {"few"}
    assert set(kinds[(mine.targets == 1) & (predicted == 5)]) == {"other"}
    assert set(kinds[mine.targets == predicted]) == {""}


def test_of_two_classes_none_is_similar() -> None:
    mine = _from_confusion([[9, 1], [5, 5]], [500, 9])
    assert set(figures.sort_errors(mine)) == {"", "other", "few"}


def test_the_error_study_shows_the_most_confident_errors_and_at_most_two_of_a_kind() -> None:
    mine = _from_confusion([[9, 0, 0], [0, 9, 0], [5, 1, 3]], [500, 90, 9])
    logits = mine.logits * np.linspace(1, 2, len(mine), dtype=np.float32)[:, None]
    mine = replace(mine, logits=logits)
    images = np.zeros((len(mine), 4, 4, 3), np.uint8)
    figure = error_study(mine, images, mine.ids)
    assert len(figure.axes) == 3
    captions = [text.get_text() for text in figure.texts if text.get_text().startswith("true")]
    assert captions[0].startswith("true: class 2\n9 in training\npredicted: class 1\n")
    assert [caption.split("\n")[2] for caption in captions[1:]] == ["predicted: class 0"] * 2
    with pytest.raises(EvenhandError, match="image 'elsewhere'"):
        error_study(mine, images[:1], ["elsewhere"])


def test_a_model_without_errors_has_an_error_study() -> None:
    mine = _from_confusion([[2, 0], [0, 2]], [5, 5])
    figure = error_study(mine, np.zeros((0, 1, 1, 3), np.uint8), [])
    assert "none" in [text.get_text() for text in figure.texts]


# ---- recall


def test_recalls_have_wilson_intervals() -> None:
    mine = predictions(4, each=20)
    axes = figures.recall_by_count({"ce": [mine]}).axes[0]
    [lines] = [each for each in axes.collections if isinstance(each, LineCollection)]
    order = np.argsort(-mine.train_counts, kind="stable")
    for k, segment in zip(order, lines.get_segments(), strict=True):
        own = mine.targets == k
        hits = int((mine.predicted()[own] == k).sum())
        wanted = binomtest(hits, int(own.sum())).proportion_ci(method="wilson")
        np.testing.assert_allclose(sorted(100 * np.array([wanted.low, wanted.high])), np.asarray(segment)[:, 0])


def test_very_many_classes_are_pooled_by_count_and_equal_counts_stay_together() -> None:
    mine = predictions(40, each=5)
    axes = figures.recall_by_count({"ce": [mine]}).axes[0]
    assert len(np.asarray(axes.get_lines()[0].get_xdata())) == 8
    step = replace(mine, train_counts=np.repeat([500, 5], 20))
    line = figures.recall_by_count({"ce": [step]}).axes[0].get_lines()[0]
    hits = mine.predicted() == mine.targets
    wanted = [100 * hits[mine.targets >= 20].mean(), 100 * hits[mine.targets < 20].mean()]
    np.testing.assert_allclose(np.asarray(line.get_xdata()), [5, 500])
    np.testing.assert_allclose(np.asarray(line.get_ydata()), wanted)


def test_differences_are_those_of_recalls_with_bonett_and_prices_interval() -> None:
    ours, baseline = predictions(5, each=30, skill=3), predictions(5, each=30, seed=1)
    shuffled = np.random.default_rng(0).permutation(len(baseline))
    moved = Predictions(
        baseline.logits[shuffled],
        baseline.targets[shuffled],
        baseline.ids[shuffled],
        baseline.class_names,
        baseline.train_counts,
    )
    axes = figures.recall_difference([ours], [moved], names=("cce", "ce")).axes[0]
    recalls = [recall_score(each.targets, each.predicted(), average=None) for each in (ours, baseline)]
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], 100 * (recalls[0] - recalls[1]))  # type: ignore[attr-defined]
    own = ours.targets == 0
    mine, theirs = (each.predicted()[own] == 0 for each in (ours, baseline))
    n, gained, lost = own.sum(), (mine & ~theirs).sum(), (theirs & ~mine).sum()
    a, b = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    half = 1.959964 * math.sqrt((a + b - (a - b) ** 2) / (n + 2))
    segment = axes.collections[0].get_segments()[0]  # type: ignore[attr-defined]
    np.testing.assert_allclose(segment[:, 0], [100 * (a - b - half), 100 * (a - b + half)])


def test_differences_need_the_same_test_images() -> None:
    ours = predictions(3)
    other = replace(ours, ids=np.char.add(ours.ids, "x"))
    with pytest.raises(EvenhandError, match="same images"):
        figures.recall_difference([ours], [other], names=("cce", "ce"))
    with pytest.raises(EvenhandError, match="same images"):
        figures.recall_difference([ours, other], [ours], names=("cce", "ce"))


def test_of_very_many_classes_the_best_and_worst_are_named() -> None:
    baseline, ours = (seeds for seeds in runs(60).values())
    everyone, extremes = figures.recall_difference(ours, baseline, names=("cce", "ce")).axes
    assert len(everyone.patches) == 60
    widths = [bar.get_width() for bar in extremes.patches]  # type: ignore[attr-defined]
    assert len(widths) == 20
    assert widths == sorted(widths, reverse=True)


# ---- calibration


def test_reliability_shows_mean_confidence_and_accuracy_of_each_bin() -> None:
    mine = predictions(3, each=200)
    axes = figures.reliability({"ce": [mine]}).axes[0]
    confidence = np.exp(mine.log_probabilities().max(axis=1))
    correct = mine.predicted() == mine.targets
    wanted = []
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.sum() >= 5:
            wanted.append([100 * confidence[inside].mean(), 100 * correct[inside].mean()])
    np.testing.assert_allclose(axes.get_lines()[1].get_xydata(), wanted)  # type: ignore[arg-type]


def test_balanced_training_data_has_no_shot_groups_to_tell_apart() -> None:
    mine = replace(predictions(3), train_counts=np.array([7, 7, 7]))
    assert len(figures.reliability({"ce": [mine]}).axes) == 1


def test_the_calibration_error_is_the_mean_of_that_of_the_seeds() -> None:
    seeds = [predictions(3, seed=k, each=40) for k in range(2)]
    errors = []
    for each in seeds:
        confidence, correct = np.exp(each.log_probabilities().max(axis=1)), each.predicted() == each.targets
        place = np.ceil(15 * confidence).astype(int)
        inside = [place == k for k in range(1, 16) if (place == k).any()]
        errors.append(sum(own.mean() * abs(correct[own].mean() - confidence[own].mean()) for own in inside))
    label = figures.reliability({"ce": seeds}).axes[0].get_xlabel()
    assert label == f"confidence (%)\nECE {100 * np.mean(errors):.1f}%"


# ---- overview


def test_the_overview_shows_every_probability_and_the_complement_entropy() -> None:
    mine = predictions(6)
    axes = figures.overview({"ce": mine}, np.zeros((8, 8, 1), np.uint8), "test/00009").axes[1]
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(widths, 100 * np.exp(mine.log_probabilities()[9]))
    entropy = complement_entropy(torch.from_numpy(mine.logits[9:10]), torch.from_numpy(mine.targets[9:10]))
    assert f"complement entropy {float(entropy):.2f} of {math.log(5):.2f}" in axes.get_xlabel()


def test_of_many_classes_the_overview_adds_up_the_unlikely_ones() -> None:
    mine = predictions(40)
    axes = figures.overview({"ce": mine}, np.zeros((8, 8, 1), np.uint8), "test/00009").axes[1]
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100)  # type: ignore[attr-defined]
    assert axes.get_yticklabels()[-1].get_text() == "the other 29 classes"


def test_the_overview_picks_the_image_of_the_rarest_class_that_gains_most() -> None:
    before, after = predictions(4, seed=0), predictions(4, seed=1)
    chosen = figures.overview_image({"ce": before, "cce": after}, before.ids)
    gain = np.exp(after.log_probabilities()) - np.exp(before.log_probabilities())
    rarest = np.flatnonzero(before.targets == 3)
    assert chosen == before.ids[rarest[gain[rarest, 3].argmax()]]
    with pytest.raises(EvenhandError, match="no image"):
        figures.overview_image({"ce": before}, [])
