"""Runs that differ only in what happens after training share their training: the second is made from the first."""

from dataclasses import replace
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.objectives.objective import build_objective
from evenhand.runs.checksums import replacing_checked
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training._adjusting import Adjusted, at_the_end, beside, describe_fitted, selected_with


def shares_training(config: Config) -> Config | None:
    """Return the config of the run whose training this one can share; None: it needs one of its own.

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
    """Make a run from a finished one that was trained alike, by what its objective does after training.

    Args:
        first: the folder of the finished run.
        config: of the new run; only its objective may differ, and only in what happens after training.
        folder: of the new run.
        command: what was typed, kept on top of the config.

    Raises:
        EvenhandError: the first run is not finished, or was trained otherwise.
    """
    source, run = Run(Path(first)), Run(Path(folder))
    same = {"objective": config.objective.training, "compute": source.config.compute}
    data = source.config.data.model_copy(update={"root": config.data.root})
    if source.config.model_copy(update={"data": data, "start": config.start}) != config.model_copy(update=same):
        raise EvenhandError(f"{source.path} was trained otherwise than {config.objective} asks for; train it anew.")
    before, raw = source.summary.model_dump(mode="json", exclude_unset=True), source.predictions
    counts = raw.train_counts if raw.fitted_counts is None else raw.fitted_counts
    objective = build_objective(config.objective, counts=counts.tolist(), epochs=config.epochs)
    fitted = objective.fit_after(source.validation_predictions)
    if fitted is None:
        raise EvenhandError(f"{config.objective} does nothing after training that {source.path} does not.")
    predictions = replace(raw, adjustment=fitted.values)
    said = beside(Adjusted(predictions, describe_fitted(fitted)))
    _copy(source, run, config, command)
    run.write_predictions(predictions)
    run.write_adjustment(said["adjustment"])
    parts = objective.describe(find_shot_groups(raw.train_counts))
    selected = selected_with(before["selected"], source.validation_predictions, fitted.values)
    notes = [*before["notes"], *at_the_end(said)]
    told = {"objective": config.objective, "selected": selected, "parts": parts, "notes": notes, **said}
    run.write_summary({**before, **told, **summarise(predictions)})
    return run


def _copy(source: Run, run: Run, config: Config, command: str) -> None:
    run.write_config(config, command)
    run.write_environment(source.environment.model_dump(mode="json", exclude_unset=True))
    run.write_splits(source.splits)
    run.write_history(source.history)
    for old, new in ((source.best_weights, run.best_weights), (source.last_weights, run.last_weights)):
        if old.is_file():
            with replacing_checked(new) as temporary:
                temporary.write_bytes(old.read_bytes())
    if source.validation_predictions is not None:
        run.write_validation_predictions(source.validation_predictions)
    run.write_features(source.features)
    run.write_thumbnails(source.thumbnails)
