"""Predictions of a trained model for rows of a table, computed as the run itself evaluates."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data.decode import BadImage, with_channels
from evenhand.data.reading import RowReader
from evenhand.data.table import ArrayPixels, FilePixels, SampleTable
from evenhand.metrics.predictions import Predictions
from evenhand.models.backbone import Backbone
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.models.weights import Weights, join_weights
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training.fabric import start_fabric
from evenhand.training.features import extract_features
from evenhand.training.frozen_body import split_reference
from evenhand.training.loop import EVALUATION_BATCH
from evenhand.training.predict import TrainedModel


def rows_of(table: SampleTable, ids: Sequence[str], run: Run) -> NDArray[np.int64]:
    """Return the rows of a table with these ids, which a run names."""
    where = {name: row for row, name in enumerate(table.ids.tolist())}
    missing = [name for name in ids if name not in where]
    if missing:
        raise EvenhandError(
            f"{len(missing)} of {len(ids)} images that {run.path} names are no longer in {table.name}: "
            f"{some(missing, 3)}."
        )
    return np.array([where[name] for name in ids], np.int64)


def predict_rows(
    model: TrainedModel,
    config: Config,
    table: SampleTable,
    rows: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    skip_bad: bool | None = None,
) -> tuple[Predictions, list[str]]:
    """Predict rows of a table.

    Args:
        model: a trained model.
        config: of its run.
        table: the images.
        rows: which of them.
        counts: training images per class, (K,), stored with the predictions.
        skip_bad: leave out unreadable images; None: refuse them, without advice to skip them.

    Returns:
        The predictions, and the ids of unreadable images.
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
    if model.card.backbone is not None and isinstance(model.network, Classifier):
        batches = _by_features(model, model.network, pixels, rows, _autocast(config))
    else:
        channels = model.card.channels
        reader = RowReader(pixels, model.card.image_size, channels, model.card.interpolation)
        batches = model.forward(
            rows.tolist(), lambda row: with_channels(reader(row), channels), EVALUATION_BATCH, _autocast(config)
        )
    logits: list[NDArray[np.float32]] = []
    kept: list[int] = []
    bad: list[str] = []
    for part, part_logits, unread in batches:
        if unread and not skip_bad:
            first = str(next(iter(unread.values()))).rstrip(".")
            raise EvenhandError(f"{first}." if skip_bad is None else f"{first}; --skip-bad leaves such images out.")
        logits.append(part_logits.numpy())
        kept += [row for position, row in enumerate(part) if position not in unread]
        bad += [str(table.ids[part[position]]) for position in unread]
    if not kept:
        raise EvenhandError(f"None of the {len(rows)} images of {table.name} can be read.")
    number = {name: k for k, name in enumerate(names)}
    targets = np.array([number[table.class_names[k]] for k in table.labels[kept]], np.int64)
    groups = None if table.groups is None else table.groups[kept]
    return Predictions(np.concatenate(logits), targets, table.ids[kept], names, counts, groups), bad


def _by_features(
    model: TrainedModel,
    network: Classifier,
    pixels: FilePixels | ArrayPixels,
    rows: NDArray[np.int64],
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Iterator[tuple[list[int], Tensor, dict[int, BadImage]]]:
    """Yield what `TrainedModel.forward` does for a head on a frozen body: features in float32, the head in autocast."""
    # Under autocast the body would give other features than those that the head was trained on.
    assert model.card.backbone is not None
    about = split_reference(model.card.backbone["sha256"], model.card.backbone["source"])
    weights = [Weights(None, *each) for each in about]
    backbone = Backbone(network, model.card.transform(), join_weights(weights) if len(weights) > 1 else weights[0])
    features = extract_features(pixels.take(rows), backbone, skip_bad=True, device=model.device)
    head = network.get_submodule(last_layer(network))
    for start in range(0, len(rows), EVALUATION_BATCH):
        part = rows[start : start + EVALUATION_BATCH].tolist()
        unread = {
            place: BadImage(f"Cannot read the image {pixels.paths[row]}: {features.bad[start + place]}.")
            for place, row in enumerate(part)
            if start + place in features.bad and isinstance(pixels, FilePixels)
        }
        read = [start + place for place in range(len(part)) if place not in unread]
        values = torch.from_numpy(features.values[read, 0]).to(model.device).float()
        with torch.inference_mode(), autocast():
            yield part, head(values).float().cpu(), unread


def _autocast(config: Config) -> Callable[[], AbstractContextManager[Any]]:
    """Return the autocast of the run's own evaluation, on one device."""
    precision = config.compute.precision
    if precision == "float16" and not torch.cuda.is_available():
        precision = "float32"
    single = {"accelerator": "auto", "devices": 1, "nodes": 1, "sync_batchnorm": False, "precision": precision}
    compute = config.compute.model_copy(update=single)
    return start_fabric(config.model_copy(update={"compute": compute})).autocast
