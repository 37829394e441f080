"""Derived runs: runs that differ only after training share it, and the second is made from the first."""

import os
from dataclasses import replace
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.objectives.objective import build_objective
from evenhand.runs.checksums import write_checked
from evenhand.runs.class_weights import weights_in_order
from evenhand.runs.config import Config
from evenhand.runs.filenames import WEIGHTS
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training.results import describe_fitted, select_adjusted, tau_notes, with_unadjusted


def shares_training(config: Config) -> Config | None:
    """Return the config of the run whose training this one can share; None: it needs its own.

    Example:
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.derived_run import shares_training
        >>> shares_training(make_config(objective="ce+post-hoc")).objective
        'ce'
        >>> shares_training(make_config(objective="ce")) is None
        True
    """
    trained = config.objective.training
    return None if trained == config.objective else config.model_copy(update={"objective": trained})


def derive_run(first: Path | str, config: Config, folder: Path | str, *, command: str = "") -> Run:
    """Make a run from a finished one of the same training, by applying the post-hoc part of its objective.

    Args:
        first: the folder of the finished run.
        config: of the new run; it may differ only in the post-hoc part of the objective.
        folder: of the new run.
        command: the command that was typed, written on top of the config.

    Raises:
        EvenhandError: the first run is not finished, or its training differs.
    """
    source, run = Run(Path(first)), Run(Path(folder))
    same = {"objective": config.objective.training, "compute": source.config.compute}
    data = source.config.data.model_copy(update={"root": config.data.root})
    if source.config.model_copy(update={"data": data, "start": config.start}) != config.model_copy(update=same):
        raise EvenhandError(f"The training of {source.path} differs from that of {config.objective}; train it anew.")
    before, raw = source.summary.model_dump(mode="json", exclude_unset=True), source.predictions
    counts = raw.train_counts if raw.fitted_counts is None else raw.fitted_counts
    objective = build_objective(
        config.objective,
        counts=counts.tolist(),
        epochs=config.epochs,
        class_weights=weights_in_order(config.class_weights, raw.class_names),
    )
    fitted = objective.fit_posthoc(source.validation_predictions)
    if fitted is None:
        raise EvenhandError(f"{config.objective} has no post-hoc part, so it is the same as {source.path}.")
    predictions = replace(raw, adjustment=fitted.values)
    adjusted = with_unadjusted(predictions, describe_fitted(fitted))
    run.write_config(config, command)
    run.write_environment(source.environment.model_dump(mode="json", exclude_unset=True))
    run.write_splits(source.splits)
    run.write_history(source.history)
    for name in WEIGHTS:
        old, new = source.path / name, run.path / name
        if os.path.lexists(old):
            with open_regular(old, within=source.path) as file:
                write_checked(new, file.read())
    if source.validation_predictions is not None:
        run.write_validation_predictions(source.validation_predictions)
    if source.calibration_predictions is not None:
        run.write_calibration_predictions(source.calibration_predictions)
    run.write_features(source.features)
    run.write_thumbnails(source.thumbnails)
    run.write_predictions(predictions)
    run.write_adjustment(adjusted["adjustment"])
    parts = objective.describe(find_shot_groups(raw.train_counts))
    selected = select_adjusted(before["selected"], source.validation_predictions, fitted.values)
    notes = [*before["notes"], *tau_notes(adjusted["adjustment"])]
    changed = {"objective": config.objective, "selected": selected, "parts": parts, "notes": notes, **adjusted}
    run.write_summary({**before, **changed, **summarise(predictions)})
    return run
