"""Everything that is said about one model's predictions, as one dictionary for the summary of a run."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.text import some
from evenhand.metrics import classification as judge
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import ShotGroups, find_shot_groups
from evenhand.runs.failures import failures
from evenhand.statistics.intervals import mean_recall_interval, wilson_interval


def summarise(predictions: Predictions) -> dict[str, Any]:
    """Judge predictions.

    Shares are 0 to 1. Every interval is a list of its lower and upper end at 95%: Wilson's for shares of images, that
    of :func:`evenhand.statistics.intervals.mean_recall_interval` for means over classes and wherever images belong to
    groups.

    Args:
        predictions: of a model on a test set.

    Returns:
        Plain numbers, text, lists and dictionaries, without NaN or infinity:

        - `images`, `classes`: N and K; `absent_classes`: names of those without a test image, left out of every mean;
        - `accuracy`, `accuracy_interval`; `balanced_accuracy`, `balanced_accuracy_interval`, each interval None where
          all images are one group; `test_groups`: how many groups there are, None without any;
        - `macro_f1`, `geometric_mean`; `worst_class`: its `name` and `recall`;
        - `groups`: `many`, `medium` and `few`, each None where no class of it occurs, or `recall` (the mean), its
          `interval`, `classes` (all in the group) and `tested` (those that occur); `shot_rule`: how they were told
          apart;
        - `nll` in nats, `ece` (15 equal bins), `mean_confidence`;
        - `failures`: what has to be told first, see :mod:`evenhand.runs.failures`;
        - `intervals`: how intervals were made, in words, and which classes have none;
        - `per_class`: `name`, `group`, `train_count`, `test_count`, `recall`, `recall_interval`, `precision`, `f1`,
          the last four None for a class that does not occur, the interval also for one tested on a single group;
        - `confusion_matrix`: K rows, actual, of K numbers, predicted.

    Raises:
        EvenhandError: if logits are NaN or infinite, saying of how many images.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.runs.summary import summarise
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
    groups, worst = find_shot_groups(predictions.train_counts), judge.worst_class(confusion)
    accuracy, names = judge.accuracy(confusion), predictions.class_names
    return {
        "images": len(predictions),
        "classes": predictions.num_classes,
        "absent_classes": [names[k] for k in judge.absent_classes(confusion)],
        "accuracy": accuracy,
        "accuracy_interval": _accuracy_interval(predictions, accuracy),
        "balanced_accuracy": judge.balanced_accuracy(confusion),
        "balanced_accuracy_interval": _interval(predictions, None),
        "test_groups": None if predictions.groups is None else len(np.unique(predictions.groups)),
        "macro_f1": judge.macro_f1(confusion),
        "geometric_mean": judge.geometric_mean(confusion),
        "worst_class": {"name": names[worst], "recall": float(recall[worst])},
        "groups": {name: _group(predictions, confusion, getattr(groups, name)) for name in ("many", "medium", "few")},
        "shot_rule": groups.rule,
        "nll": judge.negative_log_likelihood(log_probabilities, predictions.targets),
        "ece": judge.expected_calibration_error(confidences, predicted == predictions.targets),
        "mean_confidence": float(confidences.mean()),
        "failures": failures(predictions),
        "intervals": _interval_words(predictions),
        "per_class": _per_class(predictions, confusion, groups),
        "confusion_matrix": confusion.tolist(),
    }


def _group(predictions: Predictions, confusion: judge.Confusion, classes: tuple[int, ...]) -> dict[str, Any] | None:
    recall = judge.mean_recall(confusion, classes)
    if recall is None:
        return None
    return {
        "recall": recall,
        "interval": _interval(predictions, classes),
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
            "recall_interval": _class_interval(predictions, k, recall[k], test_count),
            "precision": precision[k],
            "f1": f1[k],
        }
        for k, (name, train_count, test_count) in enumerate(rows)
    ]


def _or_none(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _interval(predictions: Predictions, classes: Iterable[int] | None) -> list[float] | None:
    ends = mean_recall_interval(predictions.correct(), predictions.targets, classes, groups=predictions.groups)
    return None if ends is None else list(ends)


def _accuracy_interval(predictions: Predictions, accuracy: float) -> list[float] | None:
    if predictions.groups is None:
        return _wilson(accuracy, len(predictions))
    ends = mean_recall_interval(predictions.correct(), np.zeros_like(predictions.targets), groups=predictions.groups)
    return None if ends is None else list(ends)


def _class_interval(predictions: Predictions, k: int, recall: float | None, trials: int) -> list[float] | None:
    if recall is None:
        return None
    return _wilson(recall, trials) if predictions.groups is None else _interval(predictions, [k])


def _wilson(share: float, trials: int) -> list[float]:
    return [float(end) for end in wilson_interval(share, trials)]


def _interval_words(predictions: Predictions) -> str:
    """Say how intervals were made, and which classes have none."""
    if predictions.groups is None:
        return "95% over test images: Wilson for shares of images; Wilson at the effective size for means over classes"
    words = f"95% over the {len(np.unique(predictions.groups)):,} groups of test images: Wilson at the effective size"
    alone = single_group_classes(predictions)
    if not alone:
        return words
    return (
        f"{words}. Tested on one group, and so without an interval, as nothing shows how groups differ: {some(alone)}"
    )


def single_group_classes(predictions: Predictions) -> list[str]:
    """Return the names of the classes whose test images are all of one group."""
    if predictions.groups is None:
        return []
    targets, names = predictions.targets, predictions.class_names
    return [names[k] for k in np.unique(targets) if len(np.unique(predictions.groups[targets == k])) == 1]
