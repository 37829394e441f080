"""Everything that is said about one model's predictions, as one dictionary for `summary.json`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics import classification as judge
from evenhand.metrics.bootstrap import RESAMPLES, mean_recall_interval
from evenhand.metrics.intervals import wilson_interval
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shots import ShotGroups, shot_groups


def summarise(predictions: Predictions, *, seed: int = 0) -> dict[str, Any]:
    """Judge predictions.

    Shares are 0 to 1. Every interval is a list of its lower and upper end at 95%: Wilson's for shares of images, the
    stratified bootstrap's (:func:`evenhand.metrics.bootstrap.mean_recall_interval`) for means over classes.

    Args:
        predictions: of a model on a test set.
        seed: of the bootstrap.

    Returns:
        Plain numbers, text, lists and dictionaries, without NaN or infinity:

        - `images`, `classes`: N and K; `absent_classes`: names of those without a test image, left out of every mean;
        - `accuracy`, `accuracy_interval`; `balanced_accuracy`, `balanced_accuracy_interval`;
          `classes_without_spread`: how many of the classes that occur have recall 0 or 1 and so add no width to the
          bootstrap's intervals;
        - `macro_f1`, `geometric_mean`; `worst_class`: its `name` and `recall`;
        - `groups`: `many`, `medium` and `few`, each None where no class of it occurs, or `recall` (the mean), its
          `interval`, `classes` (all in the group) and `tested` (those that occur); `shot_rule`: how they were told
          apart;
        - `nll` in nats, `ece` (15 equal bins), `mean_confidence`;
        - `intervals`: how intervals were made, in words;
        - `per_class`: `name`, `group`, `train_count`, `test_count`, `recall`, `recall_interval`, `precision`, `f1`,
          the last four None for a class that does not occur;
        - `confusion_matrix`: K rows, actual, of K numbers, predicted.

    Raises:
        EvenhandError: if logits are NaN or infinite, saying of how many images.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.metrics.summary import summarise
        >>> logits = np.array([[3, 0, 0], [2, 0, 1], [0, 1, 0], [2, 1, 0]], np.float32)
        >>> ids, counts = np.array(["a", "b", "c", "d"]), np.array([500, 50, 5])
        >>> summary = summarise(Predictions(logits, np.array([0, 0, 1, 1]), ids, ("cat", "dog", "lynx"), counts))
        >>> summary["balanced_accuracy"], summary["worst_class"], summary["absent_classes"]
        (0.75, {'name': 'dog', 'recall': 0.5}, ['lynx'])
        >>> summary["groups"]["few"] is None
        True
    """
    predicted, log_probabilities = predictions.predicted(), predictions.log_probabilities()
    confusion = judge.confusion_matrix(predictions.targets, predicted, predictions.num_classes)
    confidences = np.exp(log_probabilities.max(axis=1))
    recall = judge.class_recall(confusion)
    groups, worst = shot_groups(predictions.train_counts), judge.worst_class(confusion)
    accuracy, names = judge.accuracy(confusion), predictions.class_names
    return {
        "images": len(predictions),
        "classes": predictions.num_classes,
        "absent_classes": [names[k] for k in judge.absent_classes(confusion)],
        "accuracy": accuracy,
        "accuracy_interval": _wilson(accuracy, len(predictions)),
        "balanced_accuracy": judge.balanced_accuracy(confusion),
        "balanced_accuracy_interval": _bootstrapped(confusion, range(len(confusion)), seed),
        "classes_without_spread": int(np.isin(recall, (0, 1)).sum()),
        "macro_f1": judge.macro_f1(confusion),
        "geometric_mean": judge.geometric_mean(confusion),
        "worst_class": {"name": names[worst], "recall": float(recall[worst])},
        "groups": {name: _group(confusion, getattr(groups, name), seed) for name in ("many", "medium", "few")},
        "shot_rule": groups.rule,
        "nll": judge.negative_log_likelihood(log_probabilities, predictions.targets),
        "ece": judge.expected_calibration_error(confidences, predicted == predictions.targets),
        "mean_confidence": float(confidences.mean()),
        "intervals": f"95%: Wilson for shares of images; stratified bootstrap over test images, {RESAMPLES:,} "
        f"resamples, seed {seed}, for means over classes",
        "per_class": _per_class(predictions, confusion, groups),
        "confusion_matrix": confusion.tolist(),
    }


def _group(confusion: judge.Confusion, classes: tuple[int, ...], seed: int) -> dict[str, Any] | None:
    recall = judge.mean_recall(confusion, classes)
    if recall is None:
        return None
    return {
        "recall": recall,
        "interval": _bootstrapped(confusion, classes, seed),
        "classes": len(classes),
        "tested": sum(bool(confusion[k].any()) for k in classes),
    }


def _per_class(predictions: Predictions, confusion: judge.Confusion, groups: ShotGroups) -> list[dict[str, Any]]:
    measures = (judge.class_recall(confusion), judge.class_precision(confusion), judge.class_f1(confusion))
    recall, precision, f1 = (_or_none(values) for values in measures)
    rows = zip(predictions.class_names, predictions.train_counts.tolist(), confusion.sum(axis=1).tolist(), strict=True)
    return [
        {
            "name": name,
            "group": groups.of(k),
            "train_count": train_count,
            "test_count": test_count,
            "recall": recall[k],
            "recall_interval": _wilson(recall[k], test_count),
            "precision": precision[k],
            "f1": f1[k],
        }
        for k, (name, train_count, test_count) in enumerate(rows)
    ]


def _or_none(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _wilson(share: float | None, trials: int) -> list[float] | None:
    return None if share is None else [float(end) for end in wilson_interval(share, trials)]


def _bootstrapped(confusion: judge.Confusion, classes: Iterable[int], seed: int) -> list[float] | None:
    interval = mean_recall_interval(confusion, classes, seed=seed)
    return None if interval is None else list(interval)
