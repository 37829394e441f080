"""Training into a folder: created once, never overwritten, resumed after its last epoch, evaluated at its end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.locks import LOCK, claimed
from evenhand.core.seeds import stream
from evenhand.metrics.classification import class_recall
from evenhand.metrics.predictions import Predictions
from evenhand.models.build import require_model
from evenhand.models.transform import centre_crop
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.schemas import Features, SplitIds, Thumbnails, precision_name
from evenhand.training._initial_weights import pin_start
from evenhand.training._trackers import TrackedRun, require_tracker
from evenhand.training.checkpoint import load_weights, weights_epoch
from evenhand.training.environment import describe_environment
from evenhand.training.fabric import start_fabric
from evenhand.training.frozen_body import keep_backbone, weights_reference
from evenhand.training.loop import EVALUATION_BATCH, Callback, Trainer, bare
from evenhand.training.prepare import PreparedData, RunSplit, prepare
from evenhand.training.results import describe_fitted, summarise_run

REFITTED = (
    "After its epoch was selected, the last layer was trained again for as long on training and validation images "
    "together; validation results are those before."
)
MOST_FEATURES = 10_000
MOST_ERRORS, MOST_CORRECT, CORRECT_PER_CLASS, LARGEST_THUMBNAIL = 200, 200, 5, 96
WEAK_CLASSES, ERRORS_PER_WEAK_CLASS = 20, 5


def train_run(config: Config, folder: Path | str, *, command: str = "", callback: Callback | None = None) -> Run:
    """Train into a new folder, locked against other processes.

    Args:
        config: everything the run needs.
        folder: must not exist, or be empty.
        command: the command that was typed, written on top of the config.
        callback: progress callback.

    Raises:
        EvenhandError: the folder is not empty, the data do not fit, or the loss diverges.
    """
    with holding(folder) as path:
        return begin_run(config, path, command=command, callback=callback)


def resume_run(folder: Path | str, *, callback: Callback | None = None) -> Run:
    """Continue a run after its last finished epoch; do nothing to a finished run."""
    run = Run(Path(folder))
    if run.config and run.finished:  # refuses a folder that is not a run before locking it
        return run
    with holding(folder) as path:
        return continue_run(path, callback=callback)


def is_first_process() -> bool:
    """Return whether this is the first of the processes that share a run: it writes and prints."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


@contextmanager
def holding(folder: Path | str, *, number: bool = False) -> Iterator[Path]:
    """Lock the folder of a run, see :func:`~evenhand.core.locks.claimed`; of several processes, only the first does."""
    if is_first_process():
        with claimed(folder, number=number) as path:
            yield path
    else:
        yield Path(folder)


def begin_run(config: Config, folder: Path, *, command: str = "", callback: Callback | None = None) -> Run:
    """Train into a folder that this process has locked."""
    require_model(config.model.name)
    if config.compute.log is not None:
        require_tracker(config.compute.log)
    if is_first_process():
        _refuse_used(Run(folder))
    config = pin_start(config)
    fabric = start_fabric(config)
    run = Run(Path(fabric.broadcast(str(folder))))  # the first process may have added a number
    trainer = Trainer(config, run, prepare(config, progress=fabric.is_global_zero), fabric)
    if fabric.is_global_zero:
        run.write_config(config, command, trainer.resolved())
    return _finish(run, trainer, 0, callback or Callback())


def continue_run(folder: Path, *, callback: Callback | None = None) -> Run:
    """Continue a run whose folder this process has locked."""
    run = Run(folder)
    if run.finished:
        return run
    run.refuse_links()
    config, began = run.config, precision_name(run.environment.precision)
    if config.compute.precision == "auto" and began != "unknown":  # resume in the precision of the first epochs
        config = config.model_copy(update={"compute": config.compute.model_copy(update={"precision": began})})
    pin_start(config)
    fabric = start_fabric(config)
    prepared = prepare(config, progress=fabric.is_global_zero)
    old, new = run.environment.weights, prepared.pretrained
    if old is not None and new is not None and old.get("sha256") != new.weights.sha256:
        raise EvenhandError(
            f"The weights of {new.name} ({new.weights.source}) changed since {run.path} began; start it anew."
        )
    trainer = Trainer(config, run, prepared, fabric)
    if fabric.is_global_zero:
        for left_over in run.path.rglob(".*.part"):  # left by a killed process
            left_over.unlink(missing_ok=True)
    start = 0
    if run.can_resume:
        # On other images, training images could move to the test set.
        if run.splits.fingerprint != split_ids(prepared).fingerprint:
            raise EvenhandError(f"{prepared.table.name} has changed since {run.path} began; start the run anew.")
        start = trainer.resume()
    return _finish(run, trainer, start, callback or Callback())


def _refuse_used(run: Run) -> None:
    path = run.path
    try:
        used = path.exists() and (not path.is_dir() or any(each.name != LOCK for each in path.iterdir()))
    except OSError as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}; choose another folder with --out.") from error
    if used and run.begun:
        raise EvenhandError(
            f"{path} has a run; continue it with --resume {path}, or choose another folder with --out"
            " (in Python, evenhand.training.resume_run or out=)."
        )
    if used:
        raise EvenhandError(f"{path} is not an empty folder; choose another with --out (in Python, out=).")


def split_ids(prepared: PreparedData) -> SplitIds:
    """Return the ids of the images of each split."""
    ids, splits = prepared.table.ids, prepared.splits
    train, val, test = (tuple(ids[rows].tolist()) for rows in (splits.train, splits.val, splits.test))
    calibration = tuple(ids[splits.calibration].tolist())
    return SplitIds(source=prepared.table.name, train=train, val=val, test=test, calibration=calibration)


def _finish(run: Run, trainer: Trainer, start: int, callback: Callback) -> Run:
    if trainer.fabric.is_global_zero and not start:  # a run killed early may lack these files
        if trainer.prepared.backbone is not None:
            keep_backbone(trainer.prepared.backbone)
        environment, pretrained = describe_environment(trainer.fabric, trainer.config.seed), trainer.prepared.pretrained
        if pretrained is not None:
            environment["weights"] = weights_reference(pretrained.weights)
        run.write_environment(environment)
        run.write_splits(split_ids(trainer.prepared))
    trainer.fabric.barrier()
    log = trainer.config.compute.log
    if log is None or not trainer.fabric.is_global_zero:
        trainer.train(start, callback)
        evaluate_trained(run, trainer)
        return run
    tracked, finished = TrackedRun(run, log, callback), None
    try:
        trainer.train(start, tracked)
        evaluate_trained(run, trainer)
        finished = run
    finally:
        tracked.finish(finished)
    return run


def evaluate_trained(run: Run, trainer: Trainer) -> None:
    """Load the selected weights, predict validation and test images, and write the results of a run."""
    config, prepared, fabric = trainer.config, trainer.prepared, trainer.fabric
    tensors, _ = load_weights(run.validated_weights, within=run.path)
    try:
        bare(trainer.model).load_state_dict(tensors)
    except RuntimeError as error:
        raise EvenhandError(
            f"The {config.select} weights in {run.path} are not those of its {config.model.name}."
        ) from error
    validation = _predict(trainer, "val")[0] if len(prepared.splits.val) else None
    history = trainer.history
    if trainer.refits:
        trainer = trainer.refit(weights_epoch(run.validated_weights) or config.epochs)
        prepared = replace(prepared, notes=(*prepared.notes, REFITTED))
    calibration = _predict(trainer, "calibration")[0] if len(prepared.splits.calibration) else None
    predictions, features = _predict(trainer, "test")
    if fabric.is_global_zero:
        fitted, adjustment = trainer.objective.fit_posthoc(validation), None
        if fitted is not None:
            predictions, adjustment = replace(predictions, adjustment=fitted.values), describe_fitted(fitted)
            run.write_adjustment(adjustment)
        if validation is not None:
            run.write_validation_predictions(validation)
        if calibration is not None:
            run.write_calibration_predictions(calibration)
        run.write_predictions(predictions)
        some = np.sort(stream(config.seed, "features").permutation(len(features))[:MOST_FEATURES])
        run.write_features(Features(features[some], predictions.targets[some], predictions.ids[some]))
        run.write_thumbnails(make_thumbnails(prepared, predictions))
        summary = summarise_run(
            config,
            prepared,
            history,
            trainer.objective,
            predictions,
            precision=trainer.precision,
            weights=weights_epoch(run.selected_weights),
            adjustment=adjustment,
            validation=validation,
            calibration=calibration,
        )
        run.write_summary(summary)
    fabric.barrier()


def _predict(trainer: Trainer, split: RunSplit) -> tuple[Predictions, NDArray[np.float16]]:
    """Return predictions and features of the images of a split."""
    prepared = trainer.prepared
    logits, targets, features = trainer.predict(trainer.batches(split, EVALUATION_BATCH))
    table, rows = prepared.table, getattr(prepared.splits, split)
    predictions = Predictions(
        logits,
        targets,
        table.ids[rows],
        table.class_names,
        prepared.splits.counts,
        groups=None if table.groups is None else table.groups[rows],
        fitted_counts=np.array(trainer.objective.stats.counts),
    )
    return predictions, features


def make_thumbnails(prepared: PreparedData, predictions: Predictions) -> Thumbnails:
    """Return thumbnails of the most confident errors, over all and of each weak class, and of correct images."""
    predicted = predictions.predicted()
    confidence = predictions.confidences()
    wrong = np.flatnonzero(predicted != predictions.targets)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    weakest = np.argsort(class_recall(predictions.confusion), kind="stable")[:WEAK_CLASSES]
    # Errors of a weak class among many may all be less confident than the first ones.
    weak = [wrong[predictions.targets[wrong] == k][:ERRORS_PER_WEAK_CLASS] for k in weakest]
    shown = np.array(list(dict.fromkeys(np.concatenate([wrong[:MOST_ERRORS], *weak]).tolist())), np.int64)
    each = max(1, min(CORRECT_PER_CLASS, MOST_CORRECT // predictions.num_classes))
    correct = [
        np.flatnonzero((predicted == k) & (predictions.targets == k))[:each] for k in range(predictions.num_classes)
    ]
    shown = np.concatenate([shown, *correct])
    thumbnails: list[NDArray[np.uint8]] = []
    for row in prepared.rows[prepared.splits.test[shown]]:
        image = prepared.images[int(row)]
        size = min(image.shape[:2])
        step = -(-size // LARGEST_THUMBNAIL)
        thumbnails.append(centre_crop(image, size)[::step, ::step])
    images = np.stack(thumbnails) if thumbnails else np.zeros((0, 1, 1, prepared.images.channels), np.uint8)
    return Thumbnails(images, shown, predictions.ids[shown])
