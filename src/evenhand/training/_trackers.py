"""Experiment trackers, optional extras: each epoch of a run goes to TensorBoard, Weights & Biases, MLflow or trackio.

A tracker is one more progress callback. One that cannot start is refused before the training; one that fails later is
left, with a warning, and the training goes on: the run's folder has everything.
"""

import hashlib
import importlib.util
import logging
import math
import os
from collections.abc import Callable
from typing import Any, Protocol

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback

PROJECT = "evenhand"
"""Project or experiment, unless the environment names another."""
FINAL = ("accuracy", "balanced_accuracy", "macro_f1", "nll", "ece")
"""Test results that a tracker gets at the end."""

_logger = logging.getLogger("evenhand")


class Tracker(Protocol):
    """A tracker that has started."""

    def log(self, values: dict[str, float], epoch: int) -> None:
        """Log values of an epoch."""

    def finish(self) -> None:
        """End, with everything written."""


def require_tracker(name: str) -> None:
    """Refuse a tracker that is not installed."""
    if importlib.util.find_spec(name) is None:
        raise EvenhandError(f"--log {name} needs an extra: {how_to_install(name)}.")


class TrackedRun(Callback):
    """Forwards all calls, and logs each epoch to a tracker.

    Args:
        run: the run, begun: its name, config and start identify it, also when it continues.
        name: of the tracker.
        callback: gets all calls too.

    Raises:
        EvenhandError: the tracker is missing, or refuses to start.
    """

    def __init__(self, run: Run, name: str, callback: Callback) -> None:
        require_tracker(name)
        self.name, self.callback = name, callback
        self.tracker: Tracker | None = None
        try:
            self.tracker = TRACKERS[name](run)
        except Exception as error:  # whatever it raises: each has errors of its own
            why = reason(error, 300).rstrip(".")
            raise EvenhandError(f"--log {name} does not start: {why}; set it up, or leave out --log.") from error

    def prepared(self, resolved: dict[str, Any]) -> None:
        """Forward."""
        self.callback.prepared(resolved)

    def begin(self, parts: list[dict[str, Any]]) -> None:
        """Forward."""
        self.callback.begin(parts)

    def step(self, epoch: int, done: int, total: int) -> None:
        """Forward."""
        self.callback.step(epoch, done, total)

    def epoch(self, row: EpochRow) -> None:
        """Log, and forward."""
        values = {key: value for key, value in row.items() if key != "epoch" and not math.isnan(value)}
        self._call(lambda tracker: tracker.log(values, int(row["epoch"])))
        self.callback.epoch(row)

    def finish(self, run: Run | None = None) -> None:
        """End the tracker; of a finished run, log the test results first."""
        if run is not None:
            summary = run.summary.model_dump(mode="json")
            values = {f"test/{key}": summary[key] for key in FINAL if isinstance(summary.get(key), float)}
            self._call(lambda tracker: tracker.log(values, int(summary["epochs"])))
        self._call(lambda tracker: tracker.finish())
        self.tracker = None

    def _call(self, use: Callable[[Tracker], None]) -> None:
        if self.tracker is None:
            return
        try:
            use(self.tracker)
        except Exception as error:
            self.tracker = None
            _logger.warning("--log %s failed and is left out from here on: %s", self.name, reason(error, 300))


def _identity(run: Run) -> str:
    """Return an id that is the same when a run continues, and differs between runs in the same folder."""
    return hashlib.sha256(f"{run.path.name} {run.environment.started}".encode()).hexdigest()[:16]


class _TensorBoard:
    def __init__(self, run: Run) -> None:
        from torch.utils.tensorboard import SummaryWriter

        run.refuse_links()
        self.writer: Any = SummaryWriter(str(run.tensorboard))

    def log(self, values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class _Wandb:
    """Its own environment variables choose, such as WANDB_MODE=offline and WANDB_PROJECT."""

    def __init__(self, run: Run) -> None:
        wandb: Any = importlib.import_module("wandb")
        run.refuse_links("wandb")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.path.name,
            id=_identity(run),
            resume="allow",
            dir=str(run.path),
            config=run.config.model_dump(mode="json"),
            settings=wandb.Settings(silent=True, console="off"),
        )
        if self.run.url:
            _logger.info("wandb shows the run at %s", self.run.url)

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.run.log({**values, "epoch": epoch})

    def finish(self) -> None:
        self.run.finish()


class _Mlflow:
    """MLFLOW_TRACKING_URI chooses the server or the files, MLFLOW_EXPERIMENT_NAME the experiment."""

    def __init__(self, run: Run) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        self.client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self.client.get_experiment_by_name(name)
        experiment = self.client.create_experiment(name) if found is None else found.experiment_id
        same = self.client.search_runs([experiment], filter_string=f"tags.`evenhand.id` = '{_identity(run)}'")
        tags = {"evenhand.id": _identity(run), "mlflow.runName": run.path.name}
        self.id = (
            same[0] if same else self.client.create_run(experiment, tags=tags, run_name=run.path.name)
        ).info.run_id
        if not same:
            for key, value in _flat(run.config.model_dump(mode="json")).items():
                self.client.log_param(self.id, key, value)

    def log(self, values: dict[str, float], epoch: int) -> None:
        for key, value in values.items():
            self.client.log_metric(self.id, key, value, step=epoch)

    def finish(self) -> None:
        self.client.set_terminated(self.id)


class _Trackio:
    """Without a space of the Hugging Face Hub it is local; TRACKIO_DIR chooses the folder."""

    def __init__(self, run: Run) -> None:
        trackio: Any = importlib.import_module("trackio")
        name, config = f"{run.path.name}-{_identity(run)[:6]}", run.config.model_dump(mode="json")
        self.run = trackio.init(project=PROJECT, name=name, config=config, resume="allow", embed=False)

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.run.log(values, step=epoch)

    def finish(self) -> None:
        self.run.finish()


TRACKERS: dict[str, Callable[[Run], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "mlflow": _Mlflow,
    "trackio": _Trackio,
}


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
