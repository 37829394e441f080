"""Progress of a training run: a bar in a terminal, lines in a pipe, JSON lines, or nothing."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from evenhand.cli.output import echo, echo_json, exiting_on_signals, remark, show_kept
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback
from evenhand.training.run import is_first_process


class ShownRun(Callback):
    """Shows the progress of a run to a person or a program."""

    def __init__(self, config: Config, *, quiet: bool, as_json: bool) -> None:
        quiet = quiet or not is_first_process()
        self.epochs, self.quiet, self.as_json = config.epochs, quiet, as_json and not quiet
        self.began = time.perf_counter()
        self.first: int | None = None
        bar = not (quiet or as_json) and sys.stderr.isatty()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not bar,
        )
        self.task = self.bar.add_task("training", total=self.epochs, state="")

    def prepared(self, resolved: dict[str, Any]) -> None:
        """Print what the config left open."""
        if self.quiet or self.as_json:
            return
        size, crop = resolved["image_size"], resolved["crop_size"]
        cut = "" if crop == size else f" cut to {crop}"
        kind = "grey" if resolved["channels"] == 1 else "colour"
        mirrored = "mirrored at random" if resolved["flip"] else "never mirrored"
        remark(f"images of {size} px{cut}, {kind}, {mirrored}; computed in {resolved['precision']}")

    def begin(self, parts: list[dict[str, Any]]) -> None:
        """Print what each part of the objective does."""
        self.began = time.perf_counter()
        if not self.quiet and not self.as_json:
            for line in parts:
                numbers = [f"{name}-shot {line[name]:.3g}" for name in ("many", "medium", "few") if name in line]
                echo(f"{line['part']}: {line['what']}{': ' * bool(numbers)}{', '.join(numbers)}", err=True)

    def step(self, epoch: int, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=epoch - 1 + done / total, description=f"epoch {epoch}/{self.epochs}")

    def epoch(self, row: EpochRow) -> None:
        """Print the loss and the validation score of an epoch."""
        epoch = int(row["epoch"])
        self.first = epoch if self.first is None else self.first
        validation = row.get("val_balanced_accuracy")
        state = f"loss {row['train_loss']:.3f}"
        if validation is not None:
            state += f"  validation balanced accuracy {validation:.1%}"
        state += f"  {row['images_per_second']:,.0f} images/s"
        self.bar.update(self.task, completed=epoch, state=state)
        if self.as_json:
            echo_json({key: value if value == value else None for key, value in row.items()})
        elif not self.quiet and self.bar.disable:
            left = (time.perf_counter() - self.began) / (epoch - self.first + 1) * (self.epochs - epoch)
            echo(f"epoch {epoch}/{self.epochs}  {state}  {left:,.0f} s left", err=True)


@contextmanager
def watching(config: Config, folder: Path, *, quiet: bool, as_json: bool) -> Iterator[ShownRun]:
    """Show the progress of a run; SIGINT and SIGTERM end it with exit codes 130 and 143.

    It stops at once: all finished epochs are on disk, and files are written atomically.
    """

    def stopped() -> None:
        if not is_first_process():
            return
        run = Run(folder)
        if run.begun:
            remark(f"stopped; continue with {run.resume_command}")
        elif config.start.train == "head":
            remark("stopped before training; the same command reuses the features computed so far")
        else:
            remark("stopped before training; nothing is kept")

    shown = ShownRun(config, quiet=quiet, as_json=as_json)
    with exiting_on_signals(stopped), shown.bar:
        yield shown


def show_summary(path: Path, page: Path, summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the results of a run."""
    if as_json:
        echo_json(summary)
        return
    for failure in summary.get("failures", ()):
        echo(f"{summary['objective']} {failure}")
    ends = summary["balanced_accuracy_interval"]
    interval = "" if ends is None else f" [{ends[0]:.1%}, {ends[1]:.1%}]"
    echo(
        f"\n{summary['objective']} on {summary['source']}: balanced accuracy {summary['balanced_accuracy']:.1%}"
        f"{interval} on {summary['images']:,} test images, accuracy {summary['accuracy']:.1%}"
    )
    selected = summary["selected"]
    if selected.get("val_balanced_accuracy") is not None:
        reached = f"balanced accuracy {selected['val_balanced_accuracy']:.1%}"
        after = " after the post-hoc adjustment, which the lines of epochs are without" * bool(
            summary.get("adjustment")
        )
        why = "is the latest near the best" if selected["rule"] == "late" else "was the best"
        echo(f"epoch {selected['epoch']} of {summary['epochs']} {why} on validation, with {reached}{after}")
    groups = summary["groups"]
    listed = [f"{name}-shot {groups[name]['recall']:.1%}" for name in ("many", "medium", "few") if groups[name]]
    worst = summary["worst_class"]
    echo(f"mean recall: {', '.join(listed)}; worst class {worst['name']!r} {worst['recall']:.1%}")
    for note in summary["notes"]:
        echo(note)
    echo(f"use it: evenhand predict {shlex.quote(str(path))} IMAGES\nrun: {path}\nreport: {page}")
    show_kept(path)
