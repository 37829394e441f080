"""Judging a finished run again: on its own test set, or on images of another source."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data.decode import BadImage, with_channels
from evenhand.data.reading import RowReader
from evenhand.data.sources import load_source
from evenhand.data.table import ArrayPixels, FilePixels, SampleTable
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.models.backbone import Backbone
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.models.weights import Weights
from evenhand.objectives.objective import build_objective
from evenhand.runs.config import Config
from evenhand.runs.filenames import ADJUSTMENT
from evenhand.runs.run import Run, read_leniently
from evenhand.runs.schemas import Summary, precision_name
from evenhand.runs.summary import summarise
from evenhand.training._adjusting import Adjusted, at_the_end, beside, selected_with
from evenhand.training._selection import selection
from evenhand.training.features import extract_features
from evenhand.training.predict import TrainedModel, load, selected_weights
from evenhand.training.prepare import prepare
from evenhand.training.run import start_fabric

BATCH_SIZE = 512
"""As at the end of training, so that the same numbers come out."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions, and what is said about them."""

    predictions: Predictions
    summary: dict[str, Any]
    """As :class:`evenhand.runs.schemas.Summary` reads it."""
    remarks: tuple[str, ...] = ()
    """Sentences the user should see beside the numbers."""


def evaluate_run(run: Path | str, *, data_root: Path | str | None = None) -> Evaluation:
    """Predict a run's own test images anew and judge them. Nothing is written.

    The test set is the one the run wrote down, whatever was added to the source since.

    Args:
        run: the folder of a finished run.
        data_root: where data sets lie; None: where the run found them.

    Raises:
        EvenhandError: the run is not finished, or its test images are not at hand.
    """
    folder = Run(Path(run))
    model, config = _load(folder)
    named = folder.splits
    table = load_source(
        config.data.source, data_root=data_root or config.data.root, allow_outside=config.data.allow_outside
    )
    test, before = rows_of(table, named.test, folder), _summary_on_disk(folder)
    kept = _predictions_on_disk(folder)
    if kept is None:
        # As the run did: with validation, unless the source itself fixes that.
        own = table.splits is not None and bool((table.splits == "val").any())
        counts = _count_again(model, table, named.train + (() if own else named.val), folder)
        fitted: NDArray[np.int64] | None = _count_again(model, table, named.train, folder)
    else:
        counts, fitted = kept.train_counts, kept.fitted_counts
    predictions, _ = predict_rows(model, config, table, test, counts)
    predictions = replace(predictions, fitted_counts=fitted, adjustment=_own_adjustment(folder, kept))
    judged = summarise(predictions)
    remarks = _damage(folder) + _left_out(folder, predictions)
    if before is None:
        return Evaluation(predictions, {**_heading(folder, config, predictions), **judged}, remarks)
    if abs(before.balanced_accuracy - judged["balanced_accuracy"]) > 1e-9:
        seen = f"{before.balanced_accuracy:.2%}, now it is {judged['balanced_accuracy']:.2%}"
        remarks += (f"In the run's summary, which is left as it is, balanced accuracy is {seen}.",)
    return Evaluation(predictions, {**before.model_dump(mode="json", exclude_unset=True), **judged}, remarks)


def keep_missing(run: Path | str, judgement: Evaluation) -> list[Path]:
    """Write a run's predictions and summary where missing or damaged; return what was written."""
    folder = Run(Path(run))
    written = []
    if _predictions_on_disk(folder) is None:
        written.append(folder.write_predictions(judgement.predictions))
    if _summary_on_disk(folder) is None:
        written.append(folder.write_summary(judgement.summary))
    return written


def evaluate_on(
    run: Path | str,
    source: str | Path,
    *,
    data_root: Path | str | None = None,
    skip_bad: bool = False,
    allow_outside: bool = False,
) -> Evaluation:
    """Predict the images of another source and judge them; classes are matched by name.

    One class is enough. Images of classes that the model does not know are left out, and a note names those classes.

    Args:
        run: the folder of a finished run.
        source: a data set's name, a folder, a `.csv` or a `.npz`. If it has a test split that is judged, else all of
            it.
        data_root: where data sets lie.
        skip_bad: leave unreadable images out.
        allow_outside: let a folder or a manifest lead to files elsewhere.

    Raises:
        EvenhandError: the run is not finished, the model knows none of the source's classes, or its images cannot be
            read.
    """
    folder = Run(Path(run))
    model, config = _load(folder)
    kept = folder.predictions
    table = load_source(source, data_root=data_root, allow_outside=allow_outside, strict=False)
    whole = table.splits is None or not len(table.rows("test"))
    rows = np.arange(len(table)) if whole else table.rows("test")
    rows, notes = _known_rows(model, table, rows)
    predictions, bad = predict_rows(model, config, table, rows, kept.train_counts, skip_bad=skip_bad)
    predictions = replace(predictions, adjustment=kept.adjustment)
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
    remarks = _seen_in_training(folder, table, predictions) + _left_out(folder, predictions)
    return Evaluation(predictions, summary, remarks)


def _known_rows(
    model: TrainedModel, table: SampleTable, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[str]]:
    """Leave out the rows whose classes the model does not know; return the others, and what to say of it."""
    known = np.array([name in model.class_names for name in table.class_names])[table.labels[rows]]
    unknown = sorted({table.class_names[k] for k in table.labels[rows[~known]]})
    if not known.any():
        raise EvenhandError(
            f"The model knows none of the classes of {table.name}, {some(unknown)}; it knows {some(model.class_names)}."
        )
    if not unknown:
        return rows, list(table.notes)
    left_out = f"{(~known).sum():,} of {len(rows):,} images"
    note = f"Left out as of classes that the model does not know: {left_out}, of {some(unknown)}."
    return rows[known], [*table.notes, note]


def _load(folder: Run) -> tuple[TrainedModel, Config]:
    if folder.path.is_file():
        folder.require()  # weights alone do not say what they were tested on
    return load(selected_weights(folder.path)), folder.config  # as it is, whatever is done to its logits later


def predict_rows(
    model: TrainedModel,
    config: Config,
    table: SampleTable,
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    skip_bad: bool | None = None,
) -> tuple[Predictions, list[str]]:
    """Predict rows of a table; return that, and the names of those that could not be read.

    With `skip_bad=None` all have to be read, and leaving some out is not offered.
    """
    names = model.class_names
    unknown = [table.class_names[k] for k in np.unique(table.labels[rows]) if table.class_names[k] not in names]
    if unknown:
        raise EvenhandError(
            f"{table.name} has classes that the model does not know: {some(unknown)}; it knows {some(names)}."
        )
    pixels = table.pixels
    if isinstance(pixels, FilePixels):
        pixels = replace(pixels, stretch=model.card.stretch)
    reader = RowReader(pixels, model.card.image_size, model.card.channels, model.card.interpolation)
    found, kept, bad = [], [], []
    if model.card.backbone is not None and isinstance(model.network, Classifier):
        batches = _by_features(model, model.network, pixels, rows, _autocast(config))
    else:
        batches = model.forward(
            rows.tolist(), lambda row: with_channels(reader(row), model.card.channels), BATCH_SIZE, _autocast(config)
        )
    for part, logits, unread in batches:
        if unread and not skip_bad:
            first = str(next(iter(unread.values()))).rstrip(".")
            raise EvenhandError(f"{first}." if skip_bad is None else f"{first}; --skip-bad leaves such images out.")
        found.append(logits.numpy())
        kept += [row for position, row in enumerate(part) if position not in unread]
        bad += [str(table.ids[part[position]]) for position in unread]
    if not kept:
        raise EvenhandError(f"None of the {len(rows)} images of {table.name} can be read.")
    number = {name: k for k, name in enumerate(names)}
    targets = np.array([number[table.class_names[k]] for k in table.labels[kept]], np.int64)
    groups = None if table.groups is None else table.groups[kept]
    return Predictions(np.concatenate(found), targets, table.ids[kept], names, counts, groups), bad


def _by_features(
    model: TrainedModel,
    network: Classifier,
    pixels: FilePixels | ArrayPixels,
    rows: NDArray[np.int64],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Iterator[tuple[list[int], Tensor, dict[int, BadImage]]]:
    """Yield what `TrainedModel.forward` does, as the run computed it: features in full precision, once, then the head.

    In the precision of the head alone, a frozen body would give other features than those that were trained on.
    """
    assert model.card.backbone is not None
    backbone = Backbone(network, model.card.transform(), Weights(None, **model.card.backbone))
    found = extract_features(pixels.take(rows), backbone, skip_bad=True, device=model.device)
    head = network.get_submodule(last_layer(network))
    for start in range(0, len(rows), BATCH_SIZE):
        part = rows[start : start + BATCH_SIZE].tolist()
        unread = {
            place: BadImage(f"Cannot read the image {pixels.paths[row]}: {found.bad[start + place]}.")
            for place, row in enumerate(part)
            if start + place in found.bad and isinstance(pixels, FilePixels)
        }
        read = [start + place for place in range(len(part)) if place not in unread]
        features = torch.from_numpy(found.values[read, 0]).to(model.device).float()
        with torch.inference_mode(), autocast():
            yield part, head(features).float().cpu(), unread


def _autocast(config: Config) -> Callable[[], AbstractContextManager[Any]]:
    """Return the precision of the run's own evaluation, on one device."""
    precision = config.compute.precision
    if precision == "float16" and not torch.cuda.is_available():
        precision = "float32"
    alone = {"accelerator": "auto", "devices": 1, "nodes": 1, "sync_batchnorm": False, "precision": precision}
    compute = config.compute.model_copy(update=alone)
    return start_fabric(config.model_copy(update={"compute": compute})).autocast


def rows_of(table: SampleTable, ids: Sequence[str], folder: Run) -> NDArray[np.int64]:
    """Return the rows of a table that bear these ids, which a run names."""
    where = {name: row for row, name in enumerate(table.ids.tolist())}
    lost = [name for name in ids if name not in where]
    if lost:
        raise EvenhandError(
            f"{len(lost)} of {len(ids)} images that {folder.path} names are no longer in {table.name}: {some(lost, 3)}."
        )
    return np.array([where[name] for name in ids], np.int64)


def _predictions_on_disk(folder: Run) -> Predictions | None:
    try:
        return folder.predictions
    except EvenhandError:
        return None


def _own_adjustment(folder: Run, kept: Predictions | None) -> NDArray[np.float64] | None:
    """Return what the objective of a run itself adds to logits after training."""
    if kept is not None:
        return kept.adjustment
    objective = folder.config.objective
    if objective.training == objective or folder.adjustment is None:
        return None
    return np.array(folder.adjustment.added_to_logits, np.float64)


def _left_out(folder: Run, predictions: Predictions) -> tuple[str, ...]:
    """Say where others will use the model with an adjustment that is not in these predictions."""
    try:
        given = folder.adjustment
    except EvenhandError as error:  # it is not needed here
        return (str(error),)
    if given is None or given.is_in(predictions):
        return ()
    return (
        f"This is without the adjustment that the run was given ({given.describe()}), which predict, export and "
        f"load apply; {folder.path / ADJUSTMENT} says what it reaches, and without that file the run is as it was.",
    )


def _summary_on_disk(folder: Run) -> Summary | None:
    try:
        return folder.summary
    except EvenhandError:
        return None


def _damage(folder: Run) -> tuple[str, ...]:
    """Say which files of a judged run cannot be used; they are written again."""
    return read_leniently(folder, "predictions", "summary")[1] if folder.finished else ()


def _count_again(model: TrainedModel, table: SampleTable, ids: Sequence[str], folder: Run) -> NDArray[np.int64]:
    rows = rows_of(table, ids, folder)
    number = {name: k for k, name in enumerate(model.class_names)}
    return np.bincount([number[table.class_names[k]] for k in table.labels[rows]], minlength=len(number))


def _heading(folder: Run, config: Config, predictions: Predictions) -> dict[str, Any]:
    """Say again what the run was, as training does at its end."""
    prepared, history, kept = prepare(config), folder.history, folder.adjustment
    counts = predictions.train_counts if predictions.fitted_counts is None else predictions.fitted_counts
    objective = build_objective(config.objective, counts=counts.tolist(), epochs=config.epochs)
    selected, adjusted = selection(history, config.select), {}
    if predictions.adjustment is not None and kept is not None:
        adjusted = beside(Adjusted(predictions, kept.model_dump(mode="json", exclude_unset=True)))
        selected = selected_with(selected, folder.validation_predictions, predictions.adjustment)
    return {
        "source": prepared.table.name,
        "imbalance": config.data.imbalance,
        "objective": config.objective,
        "model": config.model.name,
        "seed": config.seed,
        "epochs": len(history),
        "selected": selected,
        "seconds_per_epoch": float(np.median([row["seconds"] for row in history])),
        "resolved": {**prepared.resolved(), "precision": precision_name(folder.environment.precision)},
        "parts": objective.describe(find_shot_groups(predictions.train_counts)),
        "notes": [*prepared.notes, *objective.notes(int(selected["epoch"])), *at_the_end(adjusted)],
        **adjusted,
    }


def _seen_in_training(folder: Run, table: SampleTable, predictions: Predictions) -> tuple[str, ...]:
    """Warn where a source holds images that the run was trained on, which flatters the model."""
    try:
        named = folder.splits
    except EvenhandError:
        return ()
    if named.source != table.name:
        return ()
    seen = np.isin(predictions.ids, named.train + named.val).sum()
    if not seen:
        return ()
    return (
        f"{seen:,} of these {len(predictions):,} images bear the names of images the model was trained or selected on, "
        "which flatters it; leave SOURCE out to judge it on its test set.",
    )
