"""Metrics against scikit-learn, torchmetrics, scipy and numbers worked out by hand."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gmean
from sklearn import metrics as sk
from torchmetrics.functional import classification as tm

from evenhand.metrics import classification as judge

from .cases import Case, cases, confusion_of, predictions_of

anything = settings(deadline=None, derandomize=True, max_examples=100)


def confusion(case: Case) -> judge.Confusion:
    predictions = case.predictions
    return judge.confusion_matrix(predictions.targets, predictions.predicted(), predictions.num_classes)


@given(case=cases())
@anything
def test_equals_scikit_learn(case: Case) -> None:
    targets, predicted = case.predictions.targets, case.predictions.predicted()
    matrix, present, k = confusion(case), case.present, case.predictions.num_classes
    np.testing.assert_array_equal(matrix, sk.confusion_matrix(targets, predicted, labels=range(k)))
    assert judge.accuracy(matrix) == pytest.approx(sk.accuracy_score(targets, predicted), abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where a predicted class does not occur
        expected = sk.balanced_accuracy_score(targets, predicted)
    assert judge.balanced_accuracy(matrix) == pytest.approx(expected, abs=1e-12)
    precision, recall, f1, support = sk.precision_recall_fscore_support(
        targets, predicted, labels=present, zero_division=0
    )
    np.testing.assert_allclose(judge.class_precision(matrix)[present], precision, atol=1e-12)
    np.testing.assert_allclose(judge.class_recall(matrix)[present], recall, atol=1e-12)
    np.testing.assert_allclose(judge.class_f1(matrix)[present], f1, atol=1e-12)
    np.testing.assert_array_equal(matrix.sum(axis=1)[present], support)
    macro = sk.f1_score(targets, predicted, labels=present, average="macro", zero_division=0)
    assert judge.macro_f1(matrix) == pytest.approx(macro, abs=1e-12)


@given(case=cases())
@anything
def test_likelihood_equals_scikit_learn(case: Case) -> None:
    log_probabilities, targets = case.predictions.log_probabilities(), case.predictions.targets
    labels = range(case.predictions.num_classes)
    expected = sk.log_loss(targets, np.exp(log_probabilities), labels=labels)
    assert judge.negative_log_likelihood(log_probabilities, targets) == pytest.approx(expected, abs=1e-9)


@given(case=cases())
@anything
def test_equals_torchmetrics(case: Case) -> None:
    matrix, present, k = confusion(case), case.present, case.predictions.num_classes
    arguments = {
        "preds": torch.from_numpy(case.predictions.logits),
        "target": torch.from_numpy(case.predictions.targets),
        "num_classes": k,
    }
    np.testing.assert_array_equal(matrix, tm.multiclass_confusion_matrix(**arguments))
    micro = tm.multiclass_accuracy(**arguments, average="micro")
    assert judge.accuracy(matrix) == pytest.approx(micro.item(), abs=1e-6)
    for ours, theirs in (
        (judge.class_recall, tm.multiclass_recall),
        (judge.class_precision, tm.multiclass_precision),
        (judge.class_f1, tm.multiclass_f1_score),
    ):
        np.testing.assert_allclose(ours(matrix)[present], theirs(**arguments, average="none")[present], atol=1e-6)
    if set(case.predictions.predicted().tolist()) <= set(present):  # elsewhere it counts absent classes as 0
        macro = tm.multiclass_accuracy(**arguments, average="macro")
        assert judge.balanced_accuracy(matrix) == pytest.approx(macro.item(), abs=1e-6)
        macro = tm.multiclass_f1_score(**arguments, average="macro")
        assert judge.macro_f1(matrix) == pytest.approx(macro.item(), abs=1e-6)


@given(case=cases(), bins=st.sampled_from([1, 2, 10, 15, 40]))
@anything
def test_calibration_equals_torchmetrics(case: Case, bins: int) -> None:
    log_probabilities = case.predictions.log_probabilities()
    confidences = np.exp(log_probabilities.max(axis=1))
    correct = case.predictions.predicted() == case.predictions.targets
    expected = tm.multiclass_calibration_error(
        torch.from_numpy(np.exp(log_probabilities)),
        torch.from_numpy(case.predictions.targets),
        num_classes=case.predictions.num_classes,
        n_bins=bins,
        norm="l1",
    )
    if confidences.max() < 1 - 1e-7:  # a confidence of 1 has its own bin there
        ours = judge.expected_calibration_error(confidences, correct, bins=bins)
        assert ours == pytest.approx(expected.item(), abs=1e-5)


@given(case=cases(), bins=st.integers(1, 20))
@anything
def test_calibration_equals_its_definition(case: Case, bins: int) -> None:
    # Rounded, so that many confidences lie on an edge or are 1.
    confidences = np.exp(case.predictions.log_probabilities().max(axis=1)).round(1).clip(0.1)
    correct = case.predictions.predicted() == case.predictions.targets
    edges, error = np.linspace(0, 1, bins + 1), 0.0
    for low, high in pairwise(edges):
        inside = (confidences > low) & (confidences <= high)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - confidences[inside].mean())
    assert judge.expected_calibration_error(confidences, correct, bins=bins) == pytest.approx(error, abs=1e-12)


def test_a_confidence_of_one_shares_the_last_bin() -> None:
    """One is right at 0.95, one wrong at 1: together as accurate as 0.5; apart 0.05 and 1 off."""
    error = judge.expected_calibration_error(np.array([0.95, 1.0]), np.array([True, False]))
    assert error == pytest.approx((0.95 + 1.0 - 1) / 2)


@given(case=cases())
@anything
def test_means_of_recalls(case: Case) -> None:
    matrix, present = confusion(case), case.present
    recall = judge.class_recall(matrix)
    assert judge.geometric_mean(matrix) == pytest.approx(gmean(recall[present]), abs=1e-12)
    worst = judge.worst_class(matrix)
    assert worst in present
    assert recall[worst] == np.nanmin(recall)
    everything = range(case.predictions.num_classes)
    assert judge.mean_recall(matrix, everything) == judge.balanced_accuracy(matrix)
    assert judge.absent_classes(matrix) == [k for k in everything if k not in present]
    assert judge.geometric_mean(matrix) <= judge.balanced_accuracy(matrix) + 1e-12


@given(case=cases(), extra=st.integers(1, 5))
@anything
def test_classes_that_do_not_occur_change_nothing(case: Case, extra: int) -> None:
    matrix = confusion(case)
    larger = np.pad(matrix, (0, extra))
    for metric in (judge.accuracy, judge.balanced_accuracy, judge.macro_f1, judge.geometric_mean, judge.worst_class):
        assert metric(larger) == metric(matrix)


def test_an_absent_class_is_neither_zero_nor_in_a_mean() -> None:
    """Class 2 does not occur, but is predicted once: that costs class 1 its recall, and nothing else."""
    matrix = np.array([[4, 0, 0], [0, 1, 1], [0, 0, 0]])
    assert judge.balanced_accuracy(matrix) == 0.75
    assert judge.macro_f1(matrix) == pytest.approx((1 + 2 / 3) / 2)
    assert judge.mean_recall(matrix, [2]) is None
    assert judge.mean_recall(matrix, []) is None
    assert judge.mean_recall(matrix, [1, 2]) == 0.5
    for per_class in (judge.class_recall, judge.class_precision, judge.class_f1):
        assert np.isnan(per_class(matrix)).tolist() == [False, False, True]
    assert judge.absent_classes(matrix) == [2]


def test_a_class_never_predicted_has_precision_zero() -> None:
    matrix = np.array([[3, 0], [2, 0]])
    assert judge.class_precision(matrix).tolist() == [0.6, 0.0]
    assert judge.class_f1(matrix)[1] == 0
    assert judge.geometric_mean(matrix) == 0
    assert judge.worst_class(matrix) == 1


def test_always_the_majority() -> None:
    """What balanced accuracy is for: 99% right, and no better than guessing."""
    matrix = confusion_of([990, 0], [990, 10])
    assert judge.accuracy(matrix) == 0.99
    assert judge.balanced_accuracy(matrix) == 0.5


def test_the_geometric_mean_of_many_small_recalls_does_not_underflow() -> None:
    matrix = confusion_of([1] * 1000, [100] * 1000)
    assert judge.geometric_mean(matrix) == pytest.approx(0.01)


def test_likelihood_of_extreme_logits() -> None:
    predictions = predictions_of([[3e38, -3e38], [0, 0]], [1, 0])
    log_probabilities = predictions.log_probabilities()
    assert np.isfinite(log_probabilities).all()
    logits, targets = torch.from_numpy(predictions.logits).double(), torch.from_numpy(predictions.targets)
    expected = torch.nn.functional.cross_entropy(logits, targets).item()
    assert judge.negative_log_likelihood(log_probabilities, predictions.targets) == pytest.approx(expected)


@pytest.mark.parametrize(("targets", "predicted"), [([0, 2], [0, 0]), ([0, 1], [-1, 0]), ([0], [0, 1])])
def test_labels_that_do_not_fit(targets: list[int], predicted: list[int]) -> None:
    with pytest.raises(ValueError, match=r"must (both )?be"):
        judge.confusion_matrix(np.array(targets), np.array(predicted), 2)


def test_nothing_to_judge() -> None:
    empty = judge.confusion_matrix(np.array([], np.int64), np.array([], np.int64), 3)
    for metric in (judge.accuracy, judge.balanced_accuracy, judge.macro_f1, judge.geometric_mean, judge.worst_class):
        with pytest.raises(ValueError, match="counts no image"):
            metric(empty)
    with pytest.raises(ValueError, match="1 or more bins and images"):
        judge.expected_calibration_error(np.array([]), np.array([], bool))
