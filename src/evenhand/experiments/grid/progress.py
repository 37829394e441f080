"""How far a grid is: what its engines tell, what lies on disk, and how long the rest will take."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Failure, Job, Status, status, with_firsts
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow


class GridCallback:
    """Who looks on, told in the process that called the engine. This one says nothing."""

    def started(self, job: Job) -> None:
        """A process begins or continues this run; this may happen again if the process is lost."""

    def progress(self, job: Job, row: EpochRow) -> None:
        """An epoch of this run is on disk: its row of the history."""

    def waiting(self, job: Job) -> None:
        """Another process, not of this grid, works on this run; it is looked after again later."""

    def done(self, job: Job) -> None:
        """This run is finished now; runs that were finished before are not told."""

    def failed(self, failure: Failure) -> None:
        """This run cannot be finished; the others go on."""


@dataclass(frozen=True)
class JobState:
    """How far one run is."""

    job: Job
    status: Status
    epochs_done: int
    epochs: int
    seconds: float | None
    """Mean time of an epoch's training steps; None before the first."""


def describe(jobs: Sequence[Job]) -> list[JobState]:
    """Look on disk how far each run is."""
    states = []
    for job in jobs:
        found, rows = status(job), read_rows(job)
        epochs = len(rows) if found is Status.DONE else job.config.epochs
        states.append(JobState(job, found, len(rows), epochs, _mean_seconds(rows)))
    return states


def read_rows(job: Job) -> list[EpochRow]:
    """Return the epochs of a run that are on disk."""
    try:
        return Run(job.folder).history
    except EvenhandError:  # none yet, or damaged, which the run itself will tell
        return []


def time_left(states: Sequence[JobState], workers: int = 1) -> float | None:
    """Estimate the seconds until all runs but the failed ones are done, from the speed of epochs so far.

    A run that has no epoch yet is taken to be as fast as those most like it: with the same data, network and
    objective, else the same data and network, else the same network, else any. Loading, validation and the final
    judgement are not in it.

    Args:
        states: of the whole grid, from :func:`describe`.
        workers: how many runs go on at once.

    Returns:
        Seconds, or None if nothing was measured yet.
    """
    measured: dict[tuple[str, ...], list[float]] = {}
    for state in states:
        if state.seconds is not None:
            for key in _likeness(state.job):
                measured.setdefault(key, []).append(state.seconds)
    if not measured:
        return None if any(_is_open(state) for state in states) else 0.0
    left = []
    for state in filter(_is_open, states):
        alike = next(measured[key] for key in _likeness(state.job) if key in measured)
        seconds = fmean(alike) if state.seconds is None else state.seconds
        left.append(seconds * (state.epochs - state.epochs_done))
    return max(sum(left) / max(workers, 1), max(left, default=0.0))


def _is_open(state: JobState) -> bool:
    return state.status not in (Status.DONE, Status.FAILED)


def _likeness(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield what makes runs equally fast, from the narrowest to the widest."""
    config = job.config
    data = config.data.model_dump_json(exclude={"root", "split_seed"})
    key = (config.model.name, data, str(config.batch_size), config.objective)
    yield from (key[:length] for length in (4, 3, 1, 0))


def _mean_seconds(rows: Sequence[EpochRow]) -> float | None:
    return fmean(row["seconds"] for row in rows) if rows else None


@dataclass
class GridProgress(GridCallback):
    """Counts and the time left, kept up to date by what an engine tells.

    Example:
        >>> import tempfile
        >>> from evenhand.experiments.grid.jobs import make_grid
        >>> from evenhand.experiments.grid.progress import GridProgress
        >>> from evenhand.runs.config import Config
        >>> progress = GridProgress(make_grid(tempfile.mkdtemp(), Config(), objectives=["ce", "cce"], seeds=[0]))
        >>> progress.started(progress.jobs[0])
        >>> progress.count(Status.RUNNING), progress.count(Status.MISSING), progress.epochs
        (1, 1, 60)
    """

    jobs: Sequence[Job]
    workers: int = 1
    failures: list[Failure] = field(default_factory=list)
    _states: dict[Path, Status] = field(default_factory=dict)
    _rows: dict[Path, list[EpochRow]] = field(default_factory=dict)
    _heard: dict[Path, tuple[float, bool]] = field(default_factory=dict)
    """When a run of this grid was last heard of, and whether an epoch was."""
    _trained: float = 0.0
    """Seconds of training steps, of epochs that came after another one."""
    _passed: float = 0.0
    """Seconds that passed meanwhile: validation and saving take their part."""
    _beginning: float = 0.0
    """Seconds that the last run took before its first epoch: a process, its imports, its data."""

    def __post_init__(self) -> None:
        self.jobs = with_firsts(self.jobs)
        for job in self.jobs:
            found = status(job)
            # A failed run is tried again, so for this grid it is one that waits.
            self._states[job.folder] = Status.INTERRUPTED if found is Status.FAILED else found
            self._rows[job.folder] = read_rows(job)

    def count(self, *wanted: Status) -> int:
        """Return how many runs are in one of these states."""
        return sum(found in wanted for found in self._states.values())

    @property
    def epochs(self) -> int:
        """Epochs of the whole grid."""
        return sum(job.config.epochs for job in self.jobs)

    @property
    def epochs_done(self) -> int:
        """Epochs that need not be done any more."""
        over = (Status.DONE, Status.FAILED)
        return sum(
            job.config.epochs if self._states[job.folder] in over else len(self._rows[job.folder]) for job in self.jobs
        )

    @property
    def seconds_left(self) -> float | None:
        """Time until the grid is done; None before the first epoch."""
        states = [
            JobState(
                job,
                self._states[job.folder],
                len(self._rows[job.folder]),
                job.config.epochs,
                _mean_seconds(self._rows[job.folder]),
            )
            for job in self.jobs
        ]
        left = time_left(states, self.workers)
        if left is None:
            return None
        begin = self._beginning * self.count(Status.MISSING, Status.INTERRUPTED) / max(self.workers, 1)
        return left * (max(self._passed / self._trained, 1.0) if self._trained else 1.0) + begin

    def started(self, job: Job) -> None:
        """Count a run as running."""
        self._states[job.folder] = Status.RUNNING
        self._heard[job.folder] = time.monotonic(), False

    def progress(self, job: Job, row: EpochRow) -> None:
        """Take note of an epoch."""
        rows = self._rows[job.folder]
        del rows[int(row["epoch"]) - 1 :]  # of an attempt that did not get as far as its state
        rows.append(row)
        now = time.monotonic()
        before, by_epoch = self._heard.get(job.folder, (now, False))
        if by_epoch:
            self._trained += row["seconds"]
            self._passed += now - before
        else:
            self._beginning = max(now - before - row["seconds"], 0.0)
        self._heard[job.folder] = now, True

    def waiting(self, job: Job) -> None:
        """Count a run as running, elsewhere."""
        self._states[job.folder] = Status.RUNNING

    def done(self, job: Job) -> None:
        """Count a run as done."""
        self._states[job.folder] = Status.DONE

    def failed(self, failure: Failure) -> None:
        """Count a run as failed."""
        self.failures.append(failure)
        self._states[failure.job.folder] = Status.FAILED
