"""Tables that several figures need, from predictions."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.metrics.classification import Confusion
from evenhand.metrics.per_image import correct_per_image
from evenhand.metrics.predictions import Predictions
from evenhand.statistics.intervals import class_recall_intervals

Runs = Mapping[str, Sequence[Predictions]]
"""The predictions of each objective, one per seed."""


def first_of(runs: Runs) -> Predictions:
    """Return the first predictions, for class names and counts; all must have the same classes."""
    empty = [name for name, seeds in runs.items() if not seeds]
    if not runs or empty:
        raise EvenhandError(f"There are no predictions to draw{f' for {some(empty)}' if empty else ''}.")
    first = next(iter(runs.values()))[0]
    for name, seeds in runs.items():
        if any(each.class_names != first.class_names for each in seeds):
            raise EvenhandError(
                f"The models have different classes: {some(first.class_names)}, but {name!r} has others."
            )
    return first


def joint_confusion(seeds: Sequence[Predictions]) -> Confusion:
    """Return the sum of the confusion matrices of several seeds, (K, K)."""
    total: Confusion = np.sum([each.confusion for each in seeds], axis=0)
    return total


def recall_intervals(seeds: Sequence[Predictions]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return 95% intervals of the recall of each class, (K,) each; an image tested by several seeds counts once."""
    results = correct_per_image(seeds)
    return class_recall_intervals(results.correct, results.targets, seeds[0].num_classes, groups=results.groups)
