"""Ways in which a training process ends before its time; each is called in a process of its own.

Steps are counted over the run: 7 an epoch, so the tenth is in the second epoch.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evenhand import cli
from evenhand.core import files
from evenhand.objectives.objective import Objective
from evenhand.runs.run import Run
from evenhand.training import loop as trainer
from evenhand.training import run as running
from evenhand.training.run import train_run
from tests.training.runs import SETTINGS, tiny


def end(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def at(count: int, action: Callable[[], None]) -> Callable[[], None]:
    calls = iter(range(1, 10**6))
    return lambda: action() if next(calls) == count else None


def before(owner: Any, name: str, call: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        call()
        return real(*args, **kwargs)

    setattr(owner, name, wrapped)


def mid_epoch(folder: Path) -> None:
    before(trainer.Callback, "step", at(10, end))
    train_run(tiny(), folder)


def first_epoch(folder: Path) -> None:
    before(trainer.Callback, "step", at(3, end))
    train_run(tiny(), folder)


def before_splits(folder: Path) -> None:
    before(Run, "write_splits", end)
    train_run(tiny(), folder)


def mid_save(folder: Path) -> None:
    real, count = files._write_new, iter(range(1, 100))

    def half(name: str, content: bytes, folder: int | None) -> None:
        if ".state.pt." in name and next(count) == 2:
            real(name, content[: len(content) // 2], folder)
            end()
        real(name, content, folder)

    files._write_new = half
    train_run(tiny(), folder)


def before_renaming(folder: Path) -> None:
    real, count = os.replace, iter(range(1, 100))

    def never(source: str, target: str, **folders: int) -> None:
        if Path(target).name == "state.pt" and next(count) == 2:
            end()
        real(source, target, **folders)

    os.replace = never
    train_run(tiny(), folder)


def between_files(folder: Path) -> None:
    before(Run, "write_history", at(2, end))  # the best weights are those of the second epoch by now
    train_run(tiny(), folder)


def between_epochs(folder: Path) -> None:
    before(trainer.Callback, "epoch", at(2, end))
    train_run(tiny(), folder)


def mid_validation(folder: Path) -> None:
    before(trainer.Trainer, "_gather", at(4, end))  # three of them are one evaluation
    train_run(tiny(), folder)


def mid_evaluation(folder: Path) -> None:
    before(running, "summarise_run", end)
    train_run(tiny(), folder)


def ctrl_c(folder: Path) -> None:
    _by_signal(signal.SIGINT, folder)


def terminated(folder: Path) -> None:
    _by_signal(signal.SIGTERM, folder)


def _by_signal(number: int, folder: Path) -> None:
    before(Objective, "step", at(10, lambda: end(number)))
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    asked = ["--objective", "cce", "--imbalance", "exp:20", "--epochs", "3", "--out", str(folder)]
    sys.argv = ["evenhand", "train", "digits", *asked, *options]
    cli.main()


KILLED: dict[Callable[[Path], None], int | None] = {
    mid_epoch: 1,
    first_epoch: None,
    before_splits: None,
    mid_save: 1,
    before_renaming: 1,
    between_files: 1,
    between_epochs: 2,
    mid_validation: 1,
    mid_evaluation: 3,
}
"""A moment, and the last epoch whose state must have survived it."""
