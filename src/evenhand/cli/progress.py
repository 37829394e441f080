"""What a training run shows: a bar in a terminal, plain lines in a pipe, JSON lines for machines, or nothing."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from evenhand.training.config import Config
from evenhand.training.trainer import Interrupted, Row, Watch


class Shown(Watch):
    """Tells a person or a program how far the run is, and stops it when a signal asks for that."""

    def __init__(self, config: Config, *, quiet: bool, as_json: bool) -> None:
        self.epochs, self.quiet, self.as_json = config.epochs, quiet, as_json
        self.signal: int | None = None
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

    def step(self, epoch: int, done: int, total: int) -> None:
        """Move the bar."""
        self.bar.update(self.task, completed=epoch - 1 + done / total, description=f"epoch {epoch}/{self.epochs}")

    def epoch(self, row: Row) -> None:
        """Say what an epoch reached."""
        epoch = int(row["epoch"])
        self.first = epoch if self.first is None else self.first
        judged = row.get("val_balanced_accuracy")
        state = f"loss {row['train_loss']:.3f}"
        if judged is not None:
            state += f"  balanced accuracy {judged:.1%}"
        state += f"  {row['images_per_second']:,.0f} images/s"
        self.bar.update(self.task, completed=epoch, state=state)
        if self.as_json:
            clean = {key: value if value == value else None for key, value in row.items()}
            typer.echo(json.dumps(clean))
        elif not self.quiet and self.bar.disable:
            left = (time.perf_counter() - self.began) / (epoch - self.first + 1) * (self.epochs - epoch)
            typer.echo(f"epoch {epoch}/{self.epochs}  {state}  {left:,.0f} s left", err=True)

    def stopped(self) -> bool:
        """Return whether Ctrl-C was pressed or the system asked to end."""
        return self.signal is not None

    def ask_to_stop(self, number: int, _: FrameType | None) -> None:
        """Take a signal; a second one does not wait for the step to end."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def watching(config: Config, *, quiet: bool, as_json: bool) -> Iterator[Shown]:
    """Show a run while it goes on; SIGINT and SIGTERM end it after the step, with exit codes 130 and 143."""
    shown = Shown(config, quiet=quiet, as_json=as_json)
    before = {number: signal.signal(number, shown.ask_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with shown.bar:
            yield shown
    except Interrupted as stop:
        typer.echo(f"evenhand: stopped; continue with evenhand train --resume {stop}", err=True)
        sys.exit(128 + (shown.signal or signal.SIGINT))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_summary(path: Path, summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the judgement of a run."""
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=True))
        return
    low, high = summary["balanced_accuracy_interval"]
    typer.echo(
        f"\n{summary['objective']} on {summary['source']}: balanced accuracy {summary['balanced_accuracy']:.1%} "
        f"[{low:.1%}, {high:.1%}] on {summary['images']:,} test images, accuracy {summary['accuracy']:.1%}"
    )
    groups = summary["groups"]
    listed = [f"{name}-shot {groups[name]['recall']:.1%}" for name in ("many", "medium", "few") if groups[name]]
    worst = summary["worst_class"]
    typer.echo(f"mean recall: {', '.join(listed)}; worst class {worst['name']!r} {worst['recall']:.1%}")
    for note in summary["notes"]:
        typer.echo(note)
    typer.echo(f"run: {path}")
