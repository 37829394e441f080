"""Detect failed training, which is reported first and from which nothing is concluded."""

from collections.abc import Mapping, Sequence

import numpy as np

from evenhand.metrics.classification import balanced_accuracy
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.runs.schemas import LEARNED_NOTHING
from evenhand.statistics.intervals import mean_recall_interval

FEWEST_EPOCHS = 3
"""With fewer, the last epoch is often the worst by chance."""


def learned_nothing(predictions: Predictions) -> str | None:
    """Return why a network is not better than always predicting one class; None if it is better.

    Always predicting one class gives a balanced accuracy of 1 / K, K being the classes that occur. A network is better
    if its 80% interval over test images is above that.

    Example:
        >>> import numpy as np
        >>> from evenhand.runs.failures import learned_nothing
        >>> from evenhand.metrics.predictions import Predictions
        >>> targets, ids, counts = np.repeat([0, 1], 20), np.arange(40).astype(str), np.array([90, 10])
        >>> always = np.tile(np.array([[1, 0]], np.float32), (40, 1))
        >>> learned_nothing(Predictions(always, targets, ids, ("cat", "dog"), counts))
        'learned nothing: its balanced accuracy of 50.0% is not clearly above the 50.0% of always predicting one class'
        >>> right = np.eye(2, dtype=np.float32)[targets]
        >>> learned_nothing(Predictions(right, targets, ids, ("cat", "dog"), counts)) is None
        True
    """
    classes = len(np.unique(predictions.targets))
    if classes < 2:
        return None
    ends = mean_recall_interval(predictions.correct(), predictions.targets, groups=predictions.groups, confidence=0.8)
    value = balanced_accuracy(predictions.confusion)
    if (value if ends is None else ends[0]) > 1 / classes:
        return None
    return (
        f"{LEARNED_NOTHING}: its balanced accuracy of {value:.1%} is not clearly above the {1 / classes:.1%} of "
        "always predicting one class"
    )


def below_majority(predictions: Predictions) -> str | None:
    """Return that accuracy is below that of always predicting the largest training class; None if it is not.

    Example:
        >>> import numpy as np
        >>> from evenhand.runs.failures import below_majority
        >>> from evenhand.metrics.predictions import Predictions
        >>> targets, ids, counts = np.array([0, 0, 0, 1]), np.arange(4).astype(str), np.array([90, 10])
        >>> logits = np.eye(2, dtype=np.float32)[[0, 1, 1, 1]]
        >>> below_majority(Predictions(logits, targets, ids, ("cat", "dog"), counts))
        "its accuracy of 50.0% is below the 75.0% of always predicting 'cat', the largest class"
    """
    largest = int(predictions.train_counts.argmax())
    share, accuracy = float(np.mean(predictions.targets == largest)), float(predictions.correct().mean())
    if accuracy >= share:
        return None
    name = predictions.class_names[largest]
    return f"its accuracy of {accuracy:.1%} is below the {share:.1%} of always predicting {name!r}, the largest class"


def no_few_shot(predictions: Predictions) -> str | None:
    """Return that no image of the few-shot classes is recognised; None if one is, or none is tested."""
    tested = np.isin(predictions.targets, find_shot_groups(predictions.train_counts).few)
    if not tested.any() or predictions.correct()[tested].any():
        return None
    count = len(np.unique(predictions.targets[tested]))
    return f"recognises no image of its {count} few-shot class{'es' * (count != 1)}"


def ended_at_worst(history: Sequence[Mapping[str, float]], selected: int) -> str | None:
    """Return that the selected epoch is the worst of all; None if it is not, or cannot be decided.

    A fall of up to two standard errors of the best epoch, where they were measured, is chance: with few validation
    images `--select late` keeps such an epoch on purpose.

    Args:
        history: one row per epoch, with validation balanced accuracy and its standard error, or test accuracy if
            measured, else the training loss.
        selected: the selected epoch, from 1.

    Example:
        >>> from evenhand.runs.failures import ended_at_worst
        >>> ended_at_worst([{"val_balanced_accuracy": share} for share in (0.5, 0.6, 0.3)], 3)
        'ended at its worst epoch: validation balanced accuracy was 60.0% at epoch 2 and is 30.0% at epoch 3, its last'
        >>> ended_at_worst([{"train_loss": loss} for loss in (2.0, 1.0, 0.5)], 3) is None
        True
    """
    if len(history) < FEWEST_EPOCHS or not 1 <= selected <= len(history):
        return None
    for key, words, sign in (
        ("val_balanced_accuracy", "validation balanced accuracy", 1),
        ("test_accuracy", "test accuracy", 1),
        ("train_loss", "the training loss", -1),
    ):
        values = [row.get(key) for row in history]
        known = [value for value in values if value is not None and np.isfinite(value)]
        if len(known) < len(values):
            continue
        last, best = known[selected - 1], max(known, key=lambda value: sign * value)
        if best == last or any(sign * value < sign * last for value in known):
            return None
        error = history[known.index(best)].get(f"{key}_error", 0.0)
        if sign * (best - last) <= 2 * error:
            return None
        form = ".1%" if sign > 0 else ".3g"
        return (
            f"ended at its worst epoch: {words} was {best:{form}} at epoch {known.index(best) + 1} and is "
            f"{last:{form}} at epoch {selected}, its last"
        )
    return None


def failures(predictions: Predictions) -> list[str]:
    """Return all failures of an evaluated network, the worst first.

    Example:
        >>> import numpy as np
        >>> from evenhand.runs.failures import failures
        >>> from evenhand.metrics.predictions import Predictions
        >>> targets, ids, counts = np.repeat([0, 1], 20), np.arange(40).astype(str), np.array([200, 10])
        >>> failures(Predictions(np.eye(2, dtype=np.float32)[targets], targets, ids, ("cat", "dog"), counts))
        []
    """
    found = (learned_nothing(predictions), no_few_shot(predictions), below_majority(predictions))
    return [each for each in found if each is not None]
