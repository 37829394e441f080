"""The scores of calibration images: all that prediction sets and unsure answers are calibrated by."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.runs.held_out import as_used, one_per_group
from evenhand.runs.model_folder import is_model_folder, read_decisions
from evenhand.runs.run import Run

HOW_TO_CALIBRATE = "train one with --set data.calibration_fraction=0.2"


@dataclass(frozen=True, eq=False)
class CalibrationScores:
    """What a model finds in calibration images, with probabilities as `predict` computes them.

    Attributes:
        class_names: the K classes.
        train_counts: training images per class, (K,).
        targets: the class of each image, (N,).
        own: the probability of this class, (N,).
        predicted: the most probable class, (N,).
        confidence: its probability, (N,).
    """

    class_names: tuple[str, ...]
    train_counts: NDArray[np.int64]
    targets: NDArray[np.int64]
    own: NDArray[np.float64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]


def score(predictions: Predictions) -> CalibrationScores:
    """Return the scores of calibration images, one per group and class."""
    probabilities = rounded(np.exp(predictions.log_probabilities()))
    return CalibrationScores(
        class_names=predictions.class_names,
        train_counts=predictions.train_counts,
        targets=predictions.targets,
        own=probabilities[np.arange(len(predictions)), predictions.targets],
        predicted=probabilities.argmax(1),
        confidence=probabilities.max(1),
    )


def rounded(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return probabilities in the precision in which `predict` computes them, so that equal ones compare as equal."""
    return np.asarray(probabilities, np.float32).astype(np.float64)


def read_calibration(run: Run) -> CalibrationScores:
    """Return the scores of a run's calibration images, of one image per group and class, or those of a model folder.

    Raises:
        EvenhandError: there are none.
    """
    if is_model_folder(run):
        stored = read_decisions(run)
        if stored.calibration is None:
            raise EvenhandError(
                f"{run.path} has no calibration images, as the run that it was exported from has none for its network; "
                f"{HOW_TO_CALIBRATE}, and export that."
            )
        return CalibrationScores(
            class_names=stored.class_names,
            train_counts=np.array(stored.train_counts),
            targets=np.array(stored.calibration.targets),
            own=np.array(stored.calibration.own),
            predicted=np.array(stored.calibration.predicted),
            confidence=np.array(stored.calibration.confidence),
        )
    run.require()
    found = run.calibration_predictions
    if found is None:
        raise EvenhandError(
            f"{run.path} has no calibration images, which may not be used for training, selection or adjustment; "
            f"{HOW_TO_CALIBRATE}."
        )
    return score(one_per_group(as_used(run, found)))
