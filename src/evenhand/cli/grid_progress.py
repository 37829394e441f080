"""Progress of a grid of runs: a bar in a terminal, lines in a pipe, or nothing; and a table of its status."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from evenhand.cli.output import echo, exiting_on_signals, remark
from evenhand.experiments.grid import queued_jobs
from evenhand.experiments.grid.jobs import Failure, Job, Status, read_failure
from evenhand.experiments.grid.local import default_workers
from evenhand.experiments.grid.progress import GridProgress, job_states, time_left
from evenhand.runs.comparison_schemas import PRIMARY
from evenhand.runs.interim_analyses import read_ledger
from evenhand.runs.run import runs_in
from evenhand.runs.schemas import EpochRow
from evenhand.statistics.paired import LEVEL

EVERY = 30.0
"""Seconds after which a pipe gets a line even if no run has finished."""

REFRESH = 0.2
"""Seconds between two updates of the bar."""


class ShownGrid(GridProgress):
    """Shows the progress of a grid to a person.

    Args:
        workers: runs at a time, for the time left; None: as `run_jobs` chooses.
        engine: on a cluster, the number of runs at a time is not known.
        heading: lines to print before the runs.
        note: a sentence to print once, before the first runs.
        quiet: show nothing.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        engine: str = "local",
        heading: Sequence[str] = (),
        note: str = "",
        quiet: bool = False,
    ) -> None:
        super().__init__()
        self.given_workers, self.engine, self.heading, self.note = workers, engine, heading, note
        self.quiet = quiet
        self.names: dict[Path, str] = {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )
        self.lines = not quiet and self.bar.disable
        self.last_line = self.last_move = time.monotonic()

    def begin(self, jobs: Sequence[Job]) -> None:
        """Show how many runs there are to do, and start the bar."""
        super().begin(jobs)
        for line in () if self.quiet else self.heading:
            echo(line)
        self.workers = self.given_workers or default_workers(jobs)
        short = {job.folder: f"{job.config.objective}, seed {job.config.seed}" for job in jobs}
        alike = len(set(short.values())) < len(short)  # they differ in other settings too
        self.names = {job.folder: job.folder.name if alike else short[job.folder] for job in jobs}
        done = self.count(Status.DONE)
        left = len(self.jobs) - done
        if self.note and left:
            self.message(self.note)
            self.note = ""
        if self.lines and left:
            finished = f"; {done} already finished" if done else ""
            known = self.engine == "local" or self.given_workers is not None
            where = f"up to {self.workers} at a time" if known else f"as jobs of {self.engine}"
            echo(f"{left} run{'s' * (left != 1)} to do, {where}{finished}", err=True)
        self.task = self.bar.add_task("runs", total=self.epochs, state="")
        self._move()
        self.bar.start()

    def end(self) -> None:
        """Stop the bar, which stays in the terminal."""
        self.bar.stop()
        for task in self.bar.task_ids:
            self.bar.remove_task(task)

    def message(self, text: str) -> None:
        """Print a sentence."""
        if not self.quiet:
            remark(text)

    def started(self, job: Job) -> None:
        """Move the bar."""
        super().started(job)
        self._move()

    def progress(self, job: Job, row: EpochRow) -> None:
        """Move the bar; print a line into a pipe from time to time."""
        super().progress(job, row)
        if time.monotonic() - self.last_move > REFRESH:  # a large grid may have many short epochs
            self._move()
        if time.monotonic() - self.last_line > EVERY:
            self._print(f"{self.epochs_done:,} of {self.epochs:,} epochs")

    def waiting(self, job: Job) -> None:
        """Print that another process works on a run."""
        super().waiting(job)
        self._move()
        self._print(f"{self.names[job.folder]} is locked by another process")

    def done(self, job: Job) -> None:
        """Print that a run is finished."""
        super().done(job)
        self._move()
        self._print(f"{self.names[job.folder]} done")

    def failed(self, failure: Failure) -> None:
        """Print that a run failed; the reason is printed at the end."""
        super().failed(failure)
        self._move()
        self._print(f"{self.names.get(failure.job.folder, failure.job.folder.name)} failed")

    def _move(self) -> None:
        if self.bar.disable:
            return
        self.last_move = time.monotonic()
        running, failed = self.count(Status.RUNNING), self.count(Status.FAILED)
        state = f"{running} running" + (f", {failed} failed" if failed else "") + _left(self.seconds_left)
        description = f"runs {self.count(Status.DONE)}/{len(self.jobs)}"
        self.bar.update(self.task, completed=self.epochs_done, description=description, state=state)

    def _print(self, text: str) -> None:
        if self.lines:
            over = self.count(Status.DONE, Status.FAILED)
            echo(f"run {over}/{len(self.jobs)}  {text}{_left(self.seconds_left)}", err=True)
            self.last_line = time.monotonic()


@contextmanager
def watching_grid(
    *,
    workers: int | None = None,
    engine: str = "local",
    heading: Sequence[str] = (),
    note: str = "",
    quiet: bool = False,
) -> Iterator[ShownGrid]:
    """Give a :class:`ShownGrid`; SIGINT and SIGTERM end the grid with exit codes 130 and 143."""
    shown = ShownGrid(workers=workers, engine=engine, heading=heading, note=note, quiet=quiet)

    def stopped() -> None:
        if not shown.jobs:
            return
        done = f"{shown.count(Status.DONE)} of {len(shown.jobs)} runs are done"
        left = "; jobs stay in the queue of SLURM (scancel ends them)" if engine == "slurm" else ""
        remark(f"stopped; {done}, and the same command continues{left}")

    with exiting_on_signals(stopped):
        yield shown


def show_failures(failures: Sequence[Failure]) -> None:
    """Print why runs failed, on stderr."""
    for failure in failures:
        remark(f"{failure.job.folder.name} failed: {failure.reason}")
    if failures:
        runs = "run" if len(failures) == 1 else "runs"
        remark(f"{len(failures)} {runs} failed; the same command tries again")


def show_status(jobs: Sequence[Job], *, workers: int | None = None) -> None:
    """Print the status of each run of a grid, and the time left."""
    states = job_states(jobs)
    queued = queued_jobs([state.job for state in states if state.status is not Status.DONE])
    table = Table(box=None, pad_edge=False)
    for name in ("run", "status", "epochs", "s/epoch"):
        table.add_column(name, justify="left" if name in ("run", "status") else "right", overflow="fold")
    for state in states:
        speed = "" if state.seconds is None else f"{state.seconds:.2f}"
        described = state.status.value
        if state.job.folder in queued:
            described += f" ({queued[state.job.folder]})"
        table.add_row(Text(state.job.folder.name), described, f"{state.epochs_done}/{state.epochs}", speed)
    Console(width=None if sys.stdout.isatty() else 1000).print(table)  # in a pipe no name is folded
    counts = [(sum(state.status is each for state in states), each.value) for each in Status]
    listed = ", ".join(f"{count} {name}" for count, name in counts if count)
    echo(f"{len(states)} runs: {listed}{_left(time_left(states, workers or default_workers(jobs)))}")
    for state in states:
        failure = read_failure(state.job) if state.status is Status.FAILED else None
        if failure is not None:
            echo(f"{state.job.folder.name} failed: {failure.reason}")


def show_others(jobs: Sequence[Job], folder: Path) -> None:
    """Print how many runs of a folder are not of this grid."""
    known = {job.folder.name for job in jobs}
    others = [run for run in runs_in(folder) if run.path.name not in known]
    if others:
        runs = "1 run" if len(others) == 1 else f"{len(others)} runs"
        echo(f"{folder} also has {runs} of other settings; give those settings for their status")


def show_ledger(folder: Path) -> None:
    """Print the analyses of a folder, which share one 5%: their alpha, what they tested and what they decided."""
    ledger = read_ledger(folder) if folder.is_dir() else {}
    made = [each for analyses in ledger.values() for each in analyses]
    if not made:
        echo("no analysis yet; the alpha of 5% is unspent")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("analysis", "alpha", "tested", "decided"):
        table.add_column(name, justify="right" if name == "alpha" else "left", overflow="fold")
    for each in made:
        primary = [found for found in each.differences if found.metric == PRIMARY]
        names = ", ".join(dict.fromkeys(found.objective for found in primary)) or ", ".join(each.picked)
        against = f" against {primary[0].baseline}" if primary else ""
        decided = "; ".join(f"{found.objective} {found.words}" for found in primary if found.decided) or "nothing"
        alpha = "exploratory" if each.exploratory else f"{each.level:.2%}"
        claims = "no claim" if each.exploratory else decided
        table.add_row(f"{each.seeds} seeds", alpha, Text(f"{names}{against}"), Text(claims))
    Console(soft_wrap=not sys.stdout.isatty()).print(table)
    spent = sum(each.level for each in made if not each.exploratory)
    left = LEVEL - spent
    echo(
        f"analyses in {folder}: {spent:.2%} of the alpha of {LEVEL:.0%} spent, {max(left, 0.0):.2%} left for all others"
    )


def _left(seconds: float | None) -> str:
    """Format the time left, rounded."""
    if not seconds:
        return ""
    if seconds < 100:
        return f"  {seconds:.0f} s left"
    return f"  {seconds / 60:.0f} min left" if seconds < 6000 else f"  {seconds / 3600:.1f} h left"
