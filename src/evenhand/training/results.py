"""The results of a run: its summary, also with its logits adjusted after training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.classification import balanced_accuracy
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.priors import TAUS
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.objectives.objective import Objective
from evenhand.objectives.posthoc import FittedAdjustment
from evenhand.runs.config import Config
from evenhand.runs.failures import ended_at_worst
from evenhand.runs.schemas import EpochRow
from evenhand.runs.summary import summarise
from evenhand.training._selection import selection
from evenhand.training.prepare import PreparedData

COMPARED = ("accuracy", "balanced_accuracy", "balanced_accuracy_interval", "macro_f1", "groups", "nll", "ece")
"""Results that are reported both with and without an adjustment."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions and their summary."""

    predictions: Predictions
    summary: dict[str, Any]
    """As :class:`evenhand.runs.schemas.Summary` reads it."""
    remarks: tuple[str, ...] = ()
    """Sentences to show next to the numbers."""


def summarise_run(
    config: Config,
    prepared: PreparedData,
    history: Sequence[EpochRow],
    objective: Objective,
    predictions: Predictions,
    *,
    precision: str,
    weights: int | None,
    adjustment: Mapping[str, Any] | None = None,
    validation: Predictions | None = None,
    calibration: Predictions | None = None,
) -> dict[str, Any]:
    """Return the summary of a trained run, as :class:`evenhand.runs.schemas.Summary` reads it.

    Args:
        config: of the run.
        prepared: its data.
        history: one row per epoch.
        objective: as it was trained.
        predictions: of the test images, adjusted if there is an adjustment.
        precision: in which it was computed.
        weights: the epoch of its weights, if they name it.
        adjustment: of the logits after training, as :class:`evenhand.runs.schemas.Adjustment` reads it.
        validation: predictions of the validation images.
        calibration: predictions of the calibration images.
    """
    selected, adjusted = selection(history, config.select, objective.first_epoch, weights), {}
    if adjustment is not None and predictions.adjustment is not None:
        adjusted = with_unadjusted(predictions, adjustment)
        selected = select_adjusted(selected, validation, predictions.adjustment)
    summary = {
        "source": prepared.table.name,
        "imbalance": config.data.imbalance,
        "objective": config.objective,
        "model": config.model.name,
        "seed": config.seed,
        **({} if config.start.weights is None else {"parent": config.start.model_dump(mode="json")}),
        "epochs": len(history),
        "selected": selected,
        **({} if validation is None else {"validation": _counts(validation)}),
        **({} if calibration is None else {"calibration": _counts(calibration)}),
        "seconds_per_epoch": float(np.median([row["seconds"] for row in history])),
        "resolved": {**prepared.resolved(), "precision": precision},
        "parts": objective.describe(find_shot_groups(predictions.train_counts)),
        "notes": [*prepared.notes, *tau_notes(adjusted.get("adjustment"))],
        **adjusted,
        **summarise(predictions),
    }
    idle = objective.idle_parts(int(selected["epoch"]))
    worst = ended_at_worst(history, selected["epoch"])
    return {**summary, "failures": [*idle, *([worst] if worst else []), *summary["failures"]]}


def _counts(predictions: Predictions) -> dict[str, list[int]]:
    """Return images and correct answers by class, as :class:`evenhand.runs.schemas.HeldOutCounts` reads them."""
    confusion = predictions.confusion
    return {"images": confusion.sum(1).tolist(), "correct": confusion.diagonal().tolist()}


def describe_fitted(fitted: FittedAdjustment) -> dict[str, Any]:
    """Return a fitted post-hoc adjustment as :class:`evenhand.runs.schemas.Adjustment` reads it."""
    values = fitted.values.tolist()
    return {"kind": "post-hoc", "chosen": fitted.chosen, "tau": fitted.tau, "added_to_logits": values}


def with_unadjusted(predictions: Predictions, adjustment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a summary for an adjustment, and the results without it."""
    plain = summarise(replace(predictions, adjustment=None))
    return {"adjustment": dict(adjustment), "unadjusted": {key: plain[key] for key in COMPARED}}


def select_adjusted(
    selected: Mapping[str, Any], validation: Predictions | None, values: NDArray[np.float64]
) -> dict[str, Any]:
    """Return the selected epoch with its validation accuracy after an adjustment, for `compare --tune`."""
    if validation is None:
        return dict(selected)
    return {**selected, "val_balanced_accuracy": balanced_accuracy(replace(validation, adjustment=values).confusion)}


def tau_notes(adjustment: Mapping[str, Any] | None, grid: NDArray[np.float64] = TAUS) -> tuple[str, ...]:
    """Return a note if the best tau on validation is the largest of the grid."""
    if adjustment is None or adjustment["chosen"] != "validation" or adjustment["tau"] < grid[-1]:
        return ()
    return (
        f"The best tau on validation, {adjustment['tau']:g}, is the largest that was tried; a larger one may be "
        "better, and can be given as a number.",
    )
