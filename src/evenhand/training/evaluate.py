"""Evaluation of a finished run: on its own test set, or on another source."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, none_if_unreadable
from evenhand.core.text import some
from evenhand.data.sources import load_source
from evenhand.data.table import SampleTable
from evenhand.metrics.predictions import Predictions
from evenhand.objectives.objective import build_objective
from evenhand.runs.class_weights import weights_in_order
from evenhand.runs.config import Config
from evenhand.runs.filenames import ADJUSTMENT
from evenhand.runs.lenient import read_leniently
from evenhand.runs.model_folder import is_model_folder
from evenhand.runs.run import Run
from evenhand.runs.schemas import precision_name
from evenhand.runs.summary import summarise
from evenhand.training._predict_table import predict_rows, rows_of
from evenhand.training.checkpoint import weights_epoch
from evenhand.training.predict import TrainedModel, load
from evenhand.training.prepare import prepare
from evenhand.training.results import Evaluation as Evaluation
from evenhand.training.results import summarise_run


def evaluate_run(run: Path | str, *, data_root: Path | str | None = None) -> Evaluation:
    """Predict a run's own test images again and evaluate them. Nothing is written.

    The test set is the one that the run stored, whatever was added to the source since.

    Args:
        run: the folder of a finished run.
        data_root: folder of the data sets; None: as in the run.

    Raises:
        EvenhandError: the run is not finished, or its test images are missing.
    """
    folder = Run(Path(run))
    model, config = _load(folder)
    named = folder.splits
    table = load_source(
        config.data.source, data_root=data_root or config.data.root, allow_outside=config.data.allow_outside
    )
    test = rows_of(table, named.test, folder)
    stored, before = none_if_unreadable(lambda: folder.predictions), none_if_unreadable(lambda: folder.summary)
    if stored is None:
        # As in training: counts include validation images, unless the source itself fixes these.
        fixed = table.splits is not None and bool((table.splits == "val").any())
        counts = _class_counts(model, table, named.train + named.calibration + (() if fixed else named.val), folder)
        fitted: NDArray[np.int64] | None = _class_counts(
            model, table, named.train + (named.val if folder.refitted else ()), folder
        )
    else:
        counts, fitted = stored.train_counts, stored.fitted_counts
    predictions, _ = predict_rows(model, config, table, test, counts)
    predictions = replace(predictions, fitted_counts=fitted, adjustment=_own_adjustment(folder, stored))
    remarks = read_leniently(folder, "predictions", "summary")[1] if folder.finished else ()
    remarks += _other_adjustment(folder, predictions)
    if before is None:
        return Evaluation(predictions, _summarise(folder, predictions), remarks)
    results = summarise(predictions)
    if abs(before.balanced_accuracy - results["balanced_accuracy"]) > 1e-9:
        remarks += (
            f"Balanced accuracy is {before.balanced_accuracy:.2%} in the run's summary, which is not changed, and "
            f"{results['balanced_accuracy']:.2%} now.",
        )
    return Evaluation(predictions, {**before.model_dump(mode="json", exclude_unset=True), **results}, remarks)


def keep_missing(run: Path | str, evaluation: Evaluation) -> list[Path]:
    """Write a run's predictions and summary where missing or damaged; return the files written."""
    folder = Run(Path(run))
    written = []
    if none_if_unreadable(lambda: folder.predictions) is None:
        written.append(folder.write_predictions(evaluation.predictions))
    if none_if_unreadable(lambda: folder.summary) is None:
        written.append(folder.write_summary(evaluation.summary))
    return written


def evaluate_on(
    run: Path | str,
    source: str | Path,
    *,
    data_root: Path | str | None = None,
    skip_bad: bool = False,
    allow_outside: bool = False,
) -> Evaluation:
    """Predict the images of another source and evaluate them; classes are matched by name.

    One class is enough. Images of classes that the model does not know are left out, and a note names these classes.

    Args:
        run: the folder of a finished run.
        source: a data set's name, a folder, a `.csv` or a `.npz`; its test split if it has one, else all of it.
        data_root: folder of the data sets.
        skip_bad: leave out unreadable images.
        allow_outside: follow links and paths that lead out of a folder or manifest.

    Raises:
        EvenhandError: the run is not finished, the model knows none of the source's classes, or images cannot be read.
    """
    folder = Run(Path(run))
    model, config = _load(folder)
    stored = folder.predictions
    table = load_source(source, data_root=data_root, allow_outside=allow_outside, strict=False)
    whole = table.splits is None or not len(table.rows("test"))
    rows, notes = _known_rows(model, table, np.arange(len(table)) if whole else table.rows("test"))
    predictions, bad = predict_rows(model, config, table, rows, stored.train_counts, skip_bad=skip_bad)
    predictions = replace(predictions, adjustment=stored.adjustment)
    if bad:
        notes.append(f"Left out as unreadable: {len(bad)} of {len(rows)} images: {some(bad, 3)}.")
    summary = {
        "run": str(folder.path),
        "source": table.name,
        "split": "all" if whole else "test",
        "objective": config.objective,
        "model": config.model.name,
        "seed": config.seed,
        "notes": notes,
        **summarise(predictions),
    }
    remarks = _seen_in_training(folder, table, predictions) + _other_adjustment(folder, predictions)
    return Evaluation(predictions, summary, remarks)


def _known_rows(
    model: TrainedModel, table: SampleTable, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the rows whose classes the model knows, and notes about the others."""
    known = np.array([name in model.class_names for name in table.class_names])[table.labels[rows]]
    unknown = sorted({table.class_names[k] for k in table.labels[rows[~known]]})
    if not known.any():
        raise EvenhandError(
            f"The model knows none of the classes of {table.name}, {some(unknown)}; it knows {some(model.class_names)}."
        )
    if not unknown:
        return rows, list(table.notes)
    left_out = f"{(~known).sum():,} of {len(rows):,} images"
    return rows[known], [*table.notes, f"Left out as of classes unknown to the model: {left_out}, of {some(unknown)}."]


def _load(folder: Run) -> tuple[TrainedModel, Config]:
    if folder.path.is_file() or is_model_folder(folder):
        folder.require()  # neither names its test set
    return load(folder.path, adjust=False), folder.config


def _own_adjustment(folder: Run, stored: Predictions | None) -> NDArray[np.float64] | None:
    """Return what the objective of a run itself adds to logits after training."""
    if stored is not None:
        return stored.adjustment
    objective = folder.config.objective
    if objective.training == objective or folder.adjustment is None:
        return None
    return np.array(folder.adjustment.added_to_logits, np.float64)


def _other_adjustment(folder: Run, predictions: Predictions) -> tuple[str, ...]:
    """Return a remark if predict, export and load apply an adjustment that is not in these predictions."""
    try:
        given = folder.adjustment
    except EvenhandError as error:  # damaged, and not needed here
        return (str(error),)
    if given is None or given.is_in(predictions):
        return ()
    return (
        f"These results are without the run's adjustment ({given.describe()}), which predict, export and load apply; "
        f"its results are in {folder.path / ADJUSTMENT}. Delete that file to remove the adjustment.",
    )


def _class_counts(model: TrainedModel, table: SampleTable, ids: Sequence[str], folder: Run) -> NDArray[np.int64]:
    rows = rows_of(table, ids, folder)
    number = {name: k for k, name in enumerate(model.class_names)}
    return np.bincount([number[table.class_names[k]] for k in table.labels[rows]], minlength=len(number))


def _summarise(folder: Run, predictions: Predictions) -> dict[str, Any]:
    """Return the summary of a run whose own is missing or damaged, as training writes it."""
    config, adjustment = folder.config, folder.adjustment
    counts = predictions.train_counts if predictions.fitted_counts is None else predictions.fitted_counts
    return summarise_run(
        config,
        prepare(config),
        folder.history,
        build_objective(
            config.objective,
            counts=counts.tolist(),
            epochs=config.epochs,
            class_weights=weights_in_order(config.class_weights, predictions.class_names),
        ),
        predictions,
        precision=precision_name(folder.environment.precision),
        weights=weights_epoch(folder.selected_weights),
        adjustment=None if adjustment is None else adjustment.model_dump(mode="json", exclude_unset=True),
        validation=folder.validation_predictions,
        calibration=folder.calibration_predictions,
    )


def _seen_in_training(folder: Run, table: SampleTable, predictions: Predictions) -> tuple[str, ...]:
    """Return a remark if a source has images that the run was trained on."""
    named = none_if_unreadable(lambda: folder.splits)
    if named is None or named.source != table.name:
        return ()
    seen = np.isin(predictions.ids, named.train + named.val + named.calibration).sum()
    if not seen:
        return ()
    return (
        f"{seen:,} of these {len(predictions):,} images have the names of training, validation or calibration images, "
        "so the results are too optimistic; leave SOURCE out to evaluate on the test set.",
    )
