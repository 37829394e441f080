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

from evenhand.metrics import classification as ours

from .cases import Case, cases, confusion_of, predictions_of

anything = settings(deadline=None, derandomize=True, max_examples=100)


def confusion(case: Case) -> ours.Confusion:
    predictions = case.predictions
    return ours.confusion_matrix(predictions.targets, predictions.predicted(), predictions.num_classes)


@given(case=cases())
@anything
def test_equals_scikit_learn(case: Case) -> None:
    targets, predicted = case.predictions.targets, case.predictions.predicted()
    matrix, present, k = confusion(case), case.present, case.predictions.num_classes
    np.testing.assert_array_equal(matrix, sk.confusion_matrix(targets, predicted, labels=range(k)))
    assert ours.accuracy(matrix) == pytest.approx(sk.accuracy_score(targets, predicted), abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where a predicted class does not occur
        expected = sk.balanced_accuracy_score(targets, predicted)
    assert ours.balanced_accuracy(matrix) == pytest.approx(expected, abs=1e-12)
    precision, recall, f1, support = sk.precision_recall_fscore_support(
        targets, predicted, labels=present, zero_division=0
    )
    np.testing.assert_allclose(ours.class_precision(matrix)[present], precision, atol=1e-12)
    np.testing.assert_allclose(ours.class_recall(matrix)[present], recall, atol=1e-12)
    np.testing.assert_allclose(ours.class_f1(matrix)[present], f1, atol=1e-12)
    np.testing.assert_array_equal(matrix.sum(axis=1)[present], support)
    macro = sk.f1_score(targets, predicted, labels=present, average="macro", zero_division=0)
    assert ours.macro_f1(matrix) == pytest.approx(macro, abs=1e-12)


@given(case=cases())
@anything
@pytest.mark.filterwarnings("ignore:A single label was found", "ignore:.*cohen_kappa_score. is undefined")
def test_correlations_equal_scikit_learn(case: Case) -> None:
    labels = {"preds": case.predictions.predicted(), "target": case.predictions.targets}
    expected = sk.matthews_corrcoef(labels["target"], labels["preds"])
    assert ours.matthews_correlation(confusion(case)) == pytest.approx(expected, abs=1e-12)
    assert ours.matthews_correlation(**labels) == pytest.approx(expected, abs=1e-12)
    expected = np.nan_to_num(sk.cohen_kappa_score(labels["target"], labels["preds"]))
    assert ours.cohen_kappa(confusion(case)) == pytest.approx(expected, abs=1e-12)
    assert ours.cohen_kappa(**labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("preds", "target", "mcc", "kappa"),
    [
        ([0, 1, 2], [0, 1, 2], 1, 1),
        ([1, 0, 1, 0], [0, 1, 0, 1], -1, -1),
        ([0, 0, 0, 0], [0, 0, 0, 1], 0, 0),
        ([0, 1, 0, 1], [0, 0, 1, 1], 0, 0),
        ([0, 0], [0, 0], 0, 0),  # one class, which scikit-learn's kappa has no value for
        ([1, 1], [0, 0], 0, 0),
    ],
)
def test_correlations_by_hand(preds: list[int], target: list[int], mcc: float, kappa: float) -> None:
    assert ours.matthews_correlation(preds=preds, target=target) == pytest.approx(mcc, abs=1e-12)
    assert ours.cohen_kappa(preds=preds, target=target) == pytest.approx(kappa, abs=1e-12)


@given(case=cases())
@anything
def test_likelihood_equals_scikit_learn(case: Case) -> None:
    log_probabilities, targets = case.predictions.log_probabilities(), case.predictions.targets
    labels = range(case.predictions.num_classes)
    expected = sk.log_loss(targets, np.exp(log_probabilities), labels=labels)
    assert ours.negative_log_likelihood(log_probabilities, targets) == pytest.approx(expected, abs=1e-9)


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
    assert ours.accuracy(matrix) == pytest.approx(micro.item(), abs=1e-6)
    for function, theirs in (
        (ours.class_recall, tm.multiclass_recall),
        (ours.class_precision, tm.multiclass_precision),
        (ours.class_f1, tm.multiclass_f1_score),
    ):
        np.testing.assert_allclose(function(matrix)[present], theirs(**arguments, average="none")[present], atol=1e-6)
    if set(case.predictions.predicted().tolist()) <= set(present):  # elsewhere it counts absent classes as 0
        macro = tm.multiclass_accuracy(**arguments, average="macro")
        assert ours.balanced_accuracy(matrix) == pytest.approx(macro.item(), abs=1e-6)
        macro = tm.multiclass_f1_score(**arguments, average="macro")
        assert ours.macro_f1(matrix) == pytest.approx(macro.item(), abs=1e-6)


@given(case=cases(), counted=st.booleans())
@anything
def test_labels_by_keyword_equal_scikit_learn_and_torchmetrics(case: Case, counted: bool) -> None:
    target, k = case.predictions.targets, case.predictions.num_classes
    preds, present = case.predictions.predicted(), case.present
    labels = {"preds": preds, "target": target, **({"num_classes": k} if counted else {})}
    size = k if counted else int(max(*preds, *target)) + 1
    theirs = {"preds": torch.from_numpy(preds), "target": torch.from_numpy(target)}
    matrix = ours.confusion_matrix(**labels)
    np.testing.assert_array_equal(matrix, sk.confusion_matrix(target, preds, labels=range(size)))
    np.testing.assert_array_equal(
        matrix, tm.multiclass_confusion_matrix(**theirs, num_classes=max(size, 2))[:size, :size]
    )
    np.testing.assert_array_equal(matrix, ours.confusion_matrix(target, preds, size))
    assert ours.accuracy(**labels) == pytest.approx(sk.accuracy_score(target, preds), abs=1e-12)
    recall = sk.recall_score(target, preds, labels=present, average=None)
    assert ours.balanced_accuracy(**labels) == pytest.approx(recall.mean(), abs=1e-12)
    assert ours.class_recall(**labels)[present] == pytest.approx(recall)
    macro = sk.f1_score(target, preds, labels=present, average="macro")
    assert ours.macro_f1(**labels) == pytest.approx(macro, abs=1e-12)
    assert ours.worst_class(**labels) == present[recall.argmin()]
    for function in (ours.class_precision, ours.class_f1, ours.geometric_mean, ours.absent_classes):
        np.testing.assert_array_equal(function(**labels), function(matrix))
        np.testing.assert_array_equal(function(**theirs, num_classes=size), function(matrix))  # tensors


def test_labels_are_taken_in_one_way() -> None:
    matrix, labels = np.eye(2, dtype=np.int64), {"preds": [0, 1], "target": [0, 1]}
    assert ours.accuracy(confusion=matrix) == ours.accuracy(**labels) == 1
    for arguments in ({}, {"preds": [0]}, {"target": [0]}, {"confusion": matrix, **labels}):
        with pytest.raises(TypeError, match="accuracy takes a confusion matrix, or preds= and target="):
            ours.accuracy(**arguments)
    with pytest.raises(TypeError, match="positional"):
        ours.accuracy([0, 1], [0, 1])
    for arguments in ({}, {"preds": [0]}, {"targets": [0]}, {"targets": [0], "predicted": [0], "preds": [0]}):
        with pytest.raises(TypeError, match="takes targets and predicted, or preds= and target="):
            ours.confusion_matrix(**arguments)
    with pytest.raises(
        ValueError, match=r"predicted must be integer classes of shape \(N,\), got float64 of shape \(2, 2\)"
    ):
        ours.accuracy(preds=np.eye(2), target=[0, 1])
    with pytest.raises(ValueError, match=r"targets must be 0 to 1, got 0 to 2"):
        ours.accuracy(preds=[0, 1], target=[0, 2], num_classes=2)


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
        error = ours.expected_calibration_error(confidences, correct, bins=bins)
        assert error == pytest.approx(expected.item(), abs=1e-5)


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
    assert ours.expected_calibration_error(confidences, correct, bins=bins) == pytest.approx(error, abs=1e-12)


def test_a_confidence_of_one_shares_the_last_bin() -> None:
    """One is right at 0.95, one wrong at 1: together as accurate as 0.5; apart 0.05 and 1 off."""
    error = ours.expected_calibration_error(np.array([0.95, 1.0]), np.array([True, False]))
    assert error == pytest.approx((0.95 + 1.0 - 1) / 2)


@given(case=cases())
@anything
def test_means_of_recalls(case: Case) -> None:
    matrix, present = confusion(case), case.present
    recall = ours.class_recall(matrix)
    assert ours.geometric_mean(matrix) == pytest.approx(gmean(recall[present]), abs=1e-12)
    worst = ours.worst_class(matrix)
    assert worst in present
    assert recall[worst] == np.nanmin(recall)
    everything = range(case.predictions.num_classes)
    assert ours.mean_recall(matrix, everything) == ours.balanced_accuracy(matrix)
    assert ours.absent_classes(matrix) == [k for k in everything if k not in present]
    assert ours.geometric_mean(matrix) <= ours.balanced_accuracy(matrix) + 1e-12


@given(case=cases(), extra=st.integers(1, 5))
@anything
def test_classes_that_do_not_occur_change_nothing(case: Case, extra: int) -> None:
    matrix = confusion(case)
    larger = np.pad(matrix, (0, extra))
    for metric in (ours.accuracy, ours.balanced_accuracy, ours.macro_f1, ours.geometric_mean, ours.worst_class):
        assert metric(larger) == metric(matrix)


def test_an_absent_class_is_neither_zero_nor_in_a_mean() -> None:
    """Class 2 does not occur, but is predicted once: that costs class 1 its recall, and nothing else."""
    matrix = np.array([[4, 0, 0], [0, 1, 1], [0, 0, 0]])
    assert ours.balanced_accuracy(matrix) == 0.75
    assert ours.macro_f1(matrix) == pytest.approx((1 + 2 / 3) / 2)
    assert ours.mean_recall(matrix, [2]) is None
    assert ours.mean_recall(matrix, []) is None
    assert ours.mean_recall(matrix, [1, 2]) == 0.5
    for per_class in (ours.class_recall, ours.class_precision, ours.class_f1):
        assert np.isnan(per_class(matrix)).tolist() == [False, False, True]
    assert ours.absent_classes(matrix) == [2]


def test_a_class_never_predicted_has_precision_zero() -> None:
    matrix = np.array([[3, 0], [2, 0]])
    assert ours.class_precision(matrix).tolist() == [0.6, 0.0]
    assert ours.class_f1(matrix)[1] == 0
    assert ours.geometric_mean(matrix) == 0
    assert ours.worst_class(matrix) == 1


def test_always_the_majority() -> None:
    """What balanced accuracy is for: 99% right, and no better than guessing."""
    matrix = confusion_of([990, 0], [990, 10])
    assert ours.accuracy(matrix) == 0.99
    assert ours.balanced_accuracy(matrix) == 0.5


def test_the_geometric_mean_of_many_small_recalls_does_not_underflow() -> None:
    matrix = confusion_of([1] * 1000, [100] * 1000)
    assert ours.geometric_mean(matrix) == pytest.approx(0.01)


def test_likelihood_of_extreme_logits() -> None:
    predictions = predictions_of([[3e38, -3e38], [0, 0]], [1, 0])
    log_probabilities = predictions.log_probabilities()
    assert np.isfinite(log_probabilities).all()
    logits, targets = torch.from_numpy(predictions.logits).double(), torch.from_numpy(predictions.targets)
    expected = torch.nn.functional.cross_entropy(logits, targets).item()
    assert ours.negative_log_likelihood(log_probabilities, predictions.targets) == pytest.approx(expected)


@pytest.mark.parametrize(("targets", "predicted"), [([0, 2], [0, 0]), ([0, 1], [-1, 0]), ([0], [0, 1])])
def test_labels_that_do_not_fit(targets: list[int], predicted: list[int]) -> None:
    with pytest.raises(ValueError, match=r"must (both )?be"):
        ours.confusion_matrix(np.array(targets), np.array(predicted), 2)


def test_no_images() -> None:
    empty = ours.confusion_matrix(np.array([], np.int64), np.array([], np.int64), 3)
    for metric in (ours.accuracy, ours.balanced_accuracy, ours.macro_f1, ours.geometric_mean, ours.worst_class):
        with pytest.raises(ValueError, match="counts no image"):
            metric(empty)
    with pytest.raises(ValueError, match="1 or more bins and images"):
        ours.expected_calibration_error(np.array([]), np.array([], bool))
