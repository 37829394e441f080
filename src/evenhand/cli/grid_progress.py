"""What a grid of runs shows: a bar in a terminal, plain lines in a pipe, or nothing; and a table of how far it is."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from evenhand.cli.output import echo, remark
from evenhand.experiments.grid.jobs import Failure, Job, Status, read_failure
from evenhand.experiments.grid.local import default_workers
from evenhand.experiments.grid.progress import GridProgress, describe, time_left
from evenhand.experiments.grid.running import check_engine, run_on_engine
from evenhand.runs.run import runs_in
from evenhand.runs.schemas import EpochRow

EVERY = 30.0
"""Seconds after which a pipe hears from a grid that finishes no run."""

REFRESH = 0.2
"""Seconds between two moves of the bar by epochs."""


class ShownGrid(GridProgress):
    """Tells a person how far a grid is."""

    def __init__(self, jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False) -> None:
        super().__init__(jobs, workers or default_workers(jobs))
        bar = not quiet and sys.stderr.isatty()
        self.lines = not quiet and not bar
        self.said = self.moved = time.monotonic()
        self.signal: int | None = None
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            disable=not bar,
        )
        self.task = self.bar.add_task("runs", total=self.epochs, state="")
        self._move()

    def began(self) -> None:
        """Say what there is to do."""
        done = self.count(Status.DONE)
        left = len(self.jobs) - done
        if self.lines and left:
            kept = f"; {done} finished already" if done else ""
            echo(f"{left} run{'s' * (left != 1)} to do, up to {self.workers} at a time{kept}", err=True)

    def started(self, job: Job) -> None:
        """Move the bar."""
        super().started(job)
        self._move()

    def progress(self, job: Job, row: EpochRow) -> None:
        """Move the bar; a pipe hears of it now and then."""
        super().progress(job, row)
        if time.monotonic() - self.moved > REFRESH:  # short epochs of a large grid come in quick succession
            self._move()
        if time.monotonic() - self.said > EVERY:
            self._say(f"{self.epochs_done:,} of {self.epochs:,} epochs")

    def waiting(self, job: Job) -> None:
        """Say that another process is at it."""
        super().waiting(job)
        self._move()
        self._say(f"{job.folder.name} is worked on by another process")

    def done(self, job: Job) -> None:
        """Say that a run is finished."""
        super().done(job)
        self._move()
        self._say(f"{job.folder.name} done")

    def failed(self, failure: Failure) -> None:
        """Say that a run failed; why is told at the end."""
        super().failed(failure)
        self._move()
        self._say(f"{failure.job.folder.name} failed")

    def stop(self, number: int, _: FrameType | None) -> None:
        """Take a signal."""
        self.signal = number
        raise KeyboardInterrupt

    def _move(self) -> None:
        if self.bar.disable:
            return
        self.moved = time.monotonic()
        running, failed = self.count(Status.RUNNING), self.count(Status.FAILED)
        state = f"{running} running" + (f", {failed} failed" if failed else "") + _left(self.seconds_left)
        description = f"runs {self.count(Status.DONE)}/{len(self.jobs)}"
        self.bar.update(self.task, completed=self.epochs_done, description=description, state=state)

    def _say(self, what: str) -> None:
        if self.lines:
            over = self.count(Status.DONE, Status.FAILED)
            echo(f"run {over}/{len(self.jobs)}  {what}{_left(self.seconds_left)}", err=True)
            self.said = time.monotonic()


def run_grid(
    jobs: Sequence[Job],
    *,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    command: str = "",
    quiet: bool = False,
) -> list[Failure]:
    """Finish all runs of a grid on the engine asked for, and show how far it is.

    Args:
        jobs: the runs.
        workers: how many go on at once on this machine; None: as `run_jobs` chooses.
        engine: `local` or `ray`.
        address: of a Ray cluster; None: one on this machine.
        command: what was typed, kept on top of each config.
        quiet: show nothing.
    """
    check_engine(engine, workers=workers, address=address)
    with watching_grid(jobs, workers=workers, quiet=quiet) as callback:
        callback.began()
        return run_on_engine(jobs, engine, workers=workers, address=address, command=command, callback=callback)


@contextmanager
def watching_grid(jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False) -> Iterator[ShownGrid]:
    """Show a grid while it goes on; SIGINT and SIGTERM end it with exit codes 130 and 143.

    Args:
        jobs: the runs.
        workers: how many go on at once, for the time left; None: as `run_jobs` chooses.
        quiet: show nothing.
    """
    shown = ShownGrid(jobs, workers=workers, quiet=quiet)
    before = {number: signal.signal(number, shown.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with shown.bar:
            yield shown
    except KeyboardInterrupt:
        done = f"{shown.count(Status.DONE)} of {len(jobs)} runs are done"
        remark(f"stopped; {done}, and the same command continues")
        sys.exit(128 + (shown.signal or signal.SIGINT))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def show_failures(failures: Sequence[Failure]) -> None:
    """Print why runs failed, on stderr."""
    for failure in failures:
        remark(f"{failure.job.folder.name} failed: {failure.reason}")
    if failures:
        runs = "run" if len(failures) == 1 else "runs"
        remark(f"{len(failures)} {runs} failed; the same command tries again")


def show_status(jobs: Sequence[Job], *, workers: int | None = None) -> None:
    """Print how far each run of a grid is, and how long the rest will take."""
    states = describe(jobs)
    table = Table(box=None, pad_edge=False)
    for name in ("run", "status", "epochs", "s/epoch"):
        table.add_column(name, justify="left" if name in ("run", "status") else "right", overflow="fold")
    for state in states:
        speed = "" if state.seconds is None else f"{state.seconds:.2f}"
        table.add_row(Text(state.job.folder.name), state.status.value, f"{state.epochs_done}/{state.epochs}", speed)
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
    counts = [(sum(state.status is each for state in states), each.value) for each in Status]
    listed = ", ".join(f"{count} {name}" for count, name in counts if count)
    left = time_left(states, workers or default_workers(jobs))
    echo(f"{len(states)} runs: {listed}{_left(left)}")
    for state in states:
        failure = read_failure(state.job) if state.status is Status.FAILED else None
        if failure is not None:
            echo(f"{state.job.folder.name} failed: {failure.reason}")


def show_others(jobs: Sequence[Job], folder: Path) -> None:
    """Say how many runs of a folder are not of this grid."""
    known = {job.folder.name for job in jobs}
    others = [run for run in runs_in(folder) if run.path.name not in known]
    if others:
        runs = "1 run" if len(others) == 1 else f"{len(others)} runs"
        echo(f"{folder} also holds {runs} of other settings; give those settings to see how far they are")


def _left(seconds: float | None) -> str:
    """Say how much time is left, as roughly as it is known."""
    if not seconds:
        return ""
    if seconds < 100:
        return f"  {seconds:.0f} s left"
    return f"  {seconds / 60:.0f} min left" if seconds < 6000 else f"  {seconds / 3600:.1f} h left"
