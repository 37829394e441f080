"""Compute the summary of a run from its predictions."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from evenhand.core.text import some
from evenhand.metrics.classification import (
    absent_classes,
    class_f1,
    class_precision,
    class_recall,
    mean_recall,
    worst_class,
)
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.registry import METRICS
from evenhand.metrics.shot_groups import ShotGroups, find_shot_groups
from evenhand.runs.failures import failures
from evenhand.statistics.intervals import class_recall_intervals, mean_recall_interval, wilson_interval


def summarise(predictions: Predictions) -> dict[str, Any]:
    """Return every metric of predictions, with intervals and per-class results.

    Shares are 0 to 1. Every interval is a list of its lower and upper end at 95%: Wilson's for proportions of images,
    that of :func:`evenhand.statistics.intervals.mean_recall_interval` for means over classes and wherever images belong
    to groups.

    Args:
        predictions: of a model on a test set.

    Returns:
        Plain numbers, text, lists and dictionaries, without NaN or infinity:

        - `images`, `classes`: N and K; `absent_classes`: names of those without a test image, left out of every mean;
        - every metric of :data:`evenhand.metrics.registry.METRICS` by name; `accuracy_interval` and
          `balanced_accuracy_interval`, None where all images are one group;
        - `test_groups`: the number of groups, None without any;
        - `worst_class`: its `name` and `recall`;
        - `groups`: `many`, `medium` and `few`, each None where no class of it occurs, or `recall` (the mean), its
          `interval`, `classes` (all in the group) and `tested` (those that occur); `shot_rule`: how classes are
          grouped;
        - `failures`: see :mod:`evenhand.runs.failures`;
        - `intervals`: the method of the intervals, and the classes without one;
        - `per_class`: `name`, `group`, `train_count`, `test_count`, `recall`, `recall_interval`, `precision`, `f1`,
          the last four None for a class that does not occur, the interval also for one tested on a single group;
        - `confusion_matrix`: K rows (actual) of K counts (predicted).

    Raises:
        EvenhandError: logits are NaN or infinite.

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
    confusion, names = predictions.confusion, predictions.class_names
    groups, worst = find_shot_groups(predictions.train_counts), worst_class(confusion)
    return {
        "images": len(predictions),
        "classes": predictions.num_classes,
        "absent_classes": [names[k] for k in absent_classes(confusion)],
        **{name: metric.function(predictions) for name, metric in METRICS.items()},
        "balanced_accuracy_interval": _interval(predictions),
        "accuracy_interval": _accuracy_interval(predictions),
        "test_groups": None if predictions.groups is None else len(np.unique(predictions.groups)),
        "worst_class": {"name": names[worst], "recall": float(class_recall(confusion)[worst])},
        "groups": {name: _group(predictions, getattr(groups, name)) for name in ("many", "medium", "few")},
        "shot_rule": groups.rule,
        "failures": failures(predictions),
        "intervals": _describe_intervals(predictions),
        "per_class": _per_class(predictions, groups),
        "confusion_matrix": confusion.tolist(),
    }


def _group(predictions: Predictions, classes: tuple[int, ...]) -> dict[str, Any] | None:
    recall = mean_recall(predictions.confusion, classes)
    if recall is None:
        return None
    return {
        "recall": recall,
        "interval": _interval(predictions, classes),
        "classes": len(classes),
        "tested": sum(bool(predictions.confusion[k].any()) for k in classes),
    }


def _per_class(predictions: Predictions, groups: ShotGroups) -> list[dict[str, Any]]:
    confusion = predictions.confusion
    test_counts = confusion.sum(axis=1).tolist()
    ends = class_recall_intervals(
        predictions.correct(), predictions.targets, predictions.num_classes, groups=predictions.groups
    )
    recall, precision, f1, low, high = (
        [None if np.isnan(value) else value for value in values.tolist()]
        for values in (class_recall(confusion), class_precision(confusion), class_f1(confusion), *ends)
    )
    return [
        {
            "name": name,
            "group": groups.of(k),
            "train_count": int(predictions.train_counts[k]),
            "test_count": test_counts[k],
            "recall": recall[k],
            "recall_interval": None if low[k] is None else [low[k], high[k]],
            "precision": precision[k],
            "f1": f1[k],
        }
        for k, name in enumerate(predictions.class_names)
    ]


def _interval(predictions: Predictions, classes: Iterable[int] | None = None) -> list[float] | None:
    ends = mean_recall_interval(predictions.correct(), predictions.targets, classes, groups=predictions.groups)
    return None if ends is None else list(ends)


def _accuracy_interval(predictions: Predictions) -> list[float] | None:
    correct = predictions.correct()
    if predictions.groups is None:
        return [float(end) for end in wilson_interval(correct.mean(), len(predictions))]
    ends = mean_recall_interval(correct, np.zeros_like(predictions.targets), groups=predictions.groups)
    return None if ends is None else list(ends)


def _describe_intervals(predictions: Predictions) -> str:
    """Name the method of the intervals, and the classes that have none."""
    if predictions.groups is None:
        return "95% over test images: Wilson for proportions, Wilson at the effective size for means over classes"
    method = f"95% over the {len(np.unique(predictions.groups)):,} groups of test images: Wilson at the effective size"
    targets, names = predictions.targets, predictions.class_names
    single = [names[k] for k in np.unique(targets) if len(np.unique(predictions.groups[targets == k])) == 1]
    return f"{method}. No interval, as all test images are in one group: {some(single)}" if single else method
