"""Second stages: the config of a run that retrains the last layer of a finished one."""

from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.objectives.spec import ObjectiveSpec, parse_stage
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training.predict import selected_weights


def second_stage(run: Path | str, stage: str, *, epochs: int | None = None) -> Config:
    """Return the config of a second stage: that of a finished run, with what the stage changes.

    Args:
        run: the folder of the finished run.
        stage: the name of a second stage, such as `crt`, with its settings.
        epochs: length of the second stage; None: the stage's own setting.

    Raises:
        EvenhandError: the run is not finished or is a second stage itself, or there is no such stage.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.run import train_run
        >>> from evenhand.training.second_stage import second_stage
        >>> run = train_run(make_config(objective="cce", epochs=1), Path(tempfile.mkdtemp()) / "first")
        >>> config = second_stage(run.path, "crt", epochs=2)
        >>> config.objective, config.start.load, config.start.train, config.epochs
        ('cce+crt:epochs=2', 'body', 'head', 2)
    """
    named = parse_stage(stage, epochs)
    selected_weights(run)  # raises if the run is not finished
    first = Run(Path(run)).config
    if first.objective.stage is not None:
        raise EvenhandError(
            f"{run} is a second stage itself ({first.objective}); start from its own first stage, "
            f"{first.start.weights}."
        )
    objective = ObjectiveSpec(f"{first.objective.first_stage}+{named}")
    # An absolute path: the run may be continued from another folder.
    start = first.start.model_copy(update={"weights": str(Path(run).absolute()), "sha256": None})
    return with_stage(first.model_copy(update={"objective": objective, "start": start}))


def with_stage(config: Config) -> Config:
    """Return a config whose `start` and `epochs` are those of the second stage in its objective, if it has one."""
    stage = config.objective.stage
    if stage is None:
        return config
    start = config.start.model_copy(update={"load": stage.load, "train": "head"})
    return config.model_copy(update={"start": start, "epochs": stage.epochs})
