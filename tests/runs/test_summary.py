"""The summary: complete, right, and plain enough for JSON."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score

from evenhand.core.errors import EvenhandError
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.runs.summary import summarise
from tests.metrics.cases import Case, cases, predictions_of


def example() -> dict[str, Any]:
    """Four classes: 8 of 10 right, 3 of 4 right, one absent but predicted, one never right."""
    targets = [0] * 10 + [1] * 4 + [3] * 2
    predicted = [0] * 8 + [1, 2] + [1] * 3 + [0] + [0, 1]
    logits = 2.0 * np.eye(4)[predicted]
    return summarise(predictions_of(logits, targets, names=("cat", "dog", "lynx", "owl"), counts=[500, 90, 60, 12]))


def test_by_hand() -> None:
    summary = example()
    assert (summary["images"], summary["classes"], summary["absent_classes"]) == (16, 4, ["lynx"])
    assert summary["accuracy"] == 11 / 16
    assert summary["balanced_accuracy"] == pytest.approx((0.8 + 0.75 + 0) / 3)
    assert summary["test_groups"] is None
    assert summary["geometric_mean"] == 0
    assert summary["worst_class"] == {"name": "owl", "recall": 0.0}
    assert summary["macro_f1"] == pytest.approx((16 / 20 + 6 / 9 + 0) / 3)
    assert summary["shot_rule"] == "more than 100, 20 to 100, fewer than 20 training images"
    assert summary["confusion_matrix"] == [[8, 1, 1, 0], [1, 3, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]
    groups = summary["groups"]
    assert groups["many"]["recall"] == 0.8
    assert groups["medium"] == {**groups["medium"], "recall": 0.75, "classes": 2, "tested": 1}
    assert groups["few"] == {**groups["few"], "recall": 0.0, "classes": 1, "tested": 1}
    assert groups["few"]["interval"][0] == pytest.approx(0, abs=1e-12)
    assert groups["few"]["interval"][1] > 0.5, "two images that were wrong are not certain to be"
    confidence = np.exp(2) / (np.exp(2) + 3)
    assert summary["mean_confidence"] == pytest.approx(confidence)
    assert summary["ece"] == pytest.approx(abs(11 / 16 - confidence))
    assert summary["nll"] == pytest.approx(np.log(np.exp(2) + 3) - 2 * 11 / 16)
    assert "over test images" in summary["intervals"]


def test_classes_by_hand() -> None:
    cat, dog, lynx, owl = example()["per_class"]
    wilson = binomtest(8, 10).proportion_ci(method="wilson")
    assert cat["recall_interval"] == pytest.approx([wilson.low, wilson.high])
    assert (cat["name"], cat["group"], cat["train_count"], cat["test_count"]) == ("cat", "many", 500, 10)
    assert (cat["recall"], cat["precision"], cat["f1"]) == pytest.approx((0.8, 0.8, 0.8))
    assert (dog["recall"], dog["precision"], dog["f1"]) == pytest.approx((0.75, 0.6, 2 / 3))
    assert lynx == {
        "name": "lynx",
        "group": "medium",
        "train_count": 60,
        "test_count": 0,
        "recall": None,
        "recall_interval": None,
        "precision": None,
        "f1": None,
    }
    assert (owl["recall"], owl["precision"], owl["f1"]) == (0, 0, 0)
    assert owl["recall_interval"][0] == 0
    assert owl["recall_interval"][1] > 0.5, "two images are far from proof, and the class's own interval says so"


def plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and plain(each) for key, each in value.items())
    if isinstance(value, list):
        return all(map(plain, value))
    return type(value) in (str, int, float, type(None))  # exactly these: numpy's float64 is a float too


@given(case=cases())
@settings(deadline=None, derandomize=True, max_examples=40)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true", "ignore:A single label was found")
def test_any_predictions(case: Case) -> None:
    predictions = case.predictions
    summary = summarise(predictions)
    assert plain(summary)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    expected = balanced_accuracy_score(predictions.targets, predictions.predicted())
    assert summary["balanced_accuracy"] == pytest.approx(expected, abs=1e-12)
    right = int((predictions.predicted() == predictions.targets).sum())
    wilson = binomtest(right, len(predictions)).proportion_ci(method="wilson")
    assert summary["accuracy_interval"] == pytest.approx([wilson.low, wilson.high], abs=1e-9)
    low, high = summary["balanced_accuracy_interval"]
    assert 0 <= low <= summary["balanced_accuracy"] <= high <= 1
    assert len(summary["absent_classes"]) + len(case.present) == summary["classes"] == len(summary["per_class"])
    assert summary["worst_class"]["recall"] == min(row["recall"] for row in summary["per_class"] if row["test_count"])
    groups = find_shot_groups(predictions.train_counts)
    for name in ("many", "medium", "few"):
        occurring = [row["recall"] for row in summary["per_class"] if row["group"] == name and row["test_count"]]
        group = summary["groups"][name]
        assert (group is None) == (not occurring)
        if group:
            assert group["recall"] == pytest.approx(np.mean(occurring))
            assert group["interval"][0] <= group["recall"] + 1e-12
            assert group["recall"] <= group["interval"][1] + 1e-12
            assert (group["classes"], group["tested"]) == (len(getattr(groups, name)), len(occurring))


def test_groups_widen_intervals_and_a_class_of_one_group_says_why_it_has_none() -> None:
    rng = np.random.default_rng(0)
    targets = np.repeat([0, 1, 2], [200, 100, 20])
    scene = np.concatenate([np.arange(200) // 20, 10 + np.arange(100) // 20, np.full(20, 99)])
    right = rng.random(100)[scene] < 0.6
    logits = np.eye(3)[np.where(right, targets, (targets + 1) % 3)]
    single = predictions_of(logits, targets)
    grouped = replace(single, groups=scene.astype(str))
    alone, together = summarise(single), summarise(grouped)
    assert together["balanced_accuracy"] == alone["balanced_accuracy"]
    assert together["test_groups"] == 16
    for key in ("balanced_accuracy_interval", "accuracy_interval"):
        (low, high), (below, above) = alone[key], together[key]
        assert below < low < high < above
    rows = together["per_class"]
    assert [row["recall_interval"] is None for row in rows] == [False, False, True]
    assert "No interval, as all test images are in one group" in together["intervals"]
    assert together["intervals"].endswith("'class 2'")


def test_one_image() -> None:
    summary = summarise(predictions_of([[0, 0]], [0]))
    assert summary["accuracy"] == summary["balanced_accuracy"] == 1, "of equally likely classes the first is taken"
    assert summary["absent_classes"] == ["class 1"]
    assert summary["balanced_accuracy_interval"][0] < 0.5
    assert json.dumps(summary, allow_nan=False)


def test_extreme_logits_stay_plain() -> None:
    summary = summarise(predictions_of([[3.4e38, -3.4e38], [3.4e38, -3.4e38]], [1, 0]))
    assert json.dumps(summary, allow_nan=False)
    assert summary["nll"] == pytest.approx(3.4e38)
    assert summary["ece"] == 0.5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite(value: float) -> None:
    with pytest.raises(EvenhandError, match="The logits of 2 of 3 images are NaN or infinite"):
        summarise(predictions_of([[value, 0], [1, value], [0, 0]], [0, 1, 1]))
