"""Tiny runs on digits, and what must be equal in two of them."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.fabric import start_fabric
from evenhand.training.loop import Callback, Trainer

TIMINGS = ("seconds", "images_per_second")
SETTINGS = ("compute.precision=float32", "compute.accelerator=cpu", "schedule.warmup_epochs=1")
"""float32 on a CPU is where equality to the last bit is promised."""


def tiny(*settings: str, **flags: Any) -> Config:
    """A config of 3 epochs of 7 steps: a fraction of a second."""
    return make_config(
        settings=(*SETTINGS, *settings), **{"objective": "cce", "epochs": 3, "data__imbalance": "exp:20", **flags}
    )


def trainer_of(config: Config, folder: Path) -> Trainer:
    """A run in memory that has not begun."""
    from evenhand.training.prepare import prepare

    return Trainer(config, Run(folder), prepare(config, progress=False), start_fabric(config))


class Interrupted(Exception):  # noqa: N818 - not an error
    """A test asked the run to stop."""


@dataclass
class StopAfter(Callback):
    """Stops a run after so many steps."""

    steps: int
    done: int = 0

    def step(self, epoch: int, done: int, total: int) -> None:
        self.done += 1
        if self.done == self.steps:
            raise Interrupted(f"epoch {epoch}, step {done} of {total}")


class Notes(Callback):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int, int]] = []
        self.rows: list[EpochRow] = []

    def step(self, epoch: int, done: int, total: int) -> None:
        self.steps.append((epoch, done, total))

    def epoch(self, row: EpochRow) -> None:
        self.rows.append(row)


def files_of(folder: Path) -> set[str]:
    """The names of all files in a run, those that begin with a dot too."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def untimed_history(folder: Path) -> list[dict[str, str]]:
    """The rows of a history, as text, without what a clock measured."""
    rows = csv.DictReader(io.StringIO((folder / "history.csv").read_text()))
    return [{key: value for key, value in row.items() if key not in TIMINGS} for row in rows]


def untimed_summary(folder: Path) -> dict[str, Any]:
    """A summary without what a clock measured."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text("utf-8"))
    del summary["seconds_per_epoch"]
    return summary


def assert_same_run(one: Path, other: Path) -> None:
    """Two runs came to the same, to the last bit."""
    assert files_of(one) == files_of(other)
    assert untimed_history(one) == untimed_history(other)
    assert untimed_summary(one) == untimed_summary(other)
    for name in (
        "weights/best.safetensors",
        "weights/last.safetensors",
        "predictions.npz",
        "validation.npz",
        "features.npz",
        "thumbnails.npz",
        "splits.json",
    ):
        if (one / name).exists():
            assert (one / name).read_bytes() == (other / name).read_bytes(), name
