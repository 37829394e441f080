"""Predictions of held-out images, as the trained model that is used makes them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.runs.run import Run


def as_used(run: Run, predictions: Predictions) -> Predictions:
    """Return predictions with the adjustment that predict, export and load apply."""
    given = run.adjustment
    if given is not None and given.added_to_logits is None:
        raise EvenhandError(
            f"The network of {run.path} was adjusted ({given.describe()}), which its stored predictions are without; "
            "remove its adjustment.json first."
        )
    own = run.predictions.adjustment if given is None else np.array(given.added_to_logits, np.float64)
    return replace(predictions, adjustment=own)


def one_per_group(predictions: Predictions) -> Predictions:
    """Keep one image of each class of each group, as images of a group are not independent."""
    if predictions.groups is None:
        return predictions
    pairs = np.char.add(np.char.add(predictions.targets.astype(str), "/"), predictions.groups)
    return take(predictions, np.sort(np.unique(pairs, return_index=True)[1]))


def take(predictions: Predictions, kept: NDArray[np.int64]) -> Predictions:
    """Return the predictions of some images."""
    return replace(
        predictions,
        logits=predictions.logits[kept],
        targets=predictions.targets[kept],
        ids=predictions.ids[kept],
        groups=None if predictions.groups is None else predictions.groups[kept],
    )
