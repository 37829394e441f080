"""Progress of a grid: the callback that engines report to, the state on disk, and the time left."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Failure, Job, Status, status, with_dependencies
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow


class GridCallback:
    """Progress callback of a grid, called in the process that started the engine. This one does nothing."""

    def begin(self, jobs: Sequence[Job]) -> None:
        """The engine starts on these runs, of which some may be finished. A comparison may begin several times."""

    def started(self, job: Job) -> None:
        """A process begins or continues this run; this may happen again if the process is lost."""

    def progress(self, job: Job, row: EpochRow) -> None:
        """An epoch of this run is on disk: its row of the history."""

    def waiting(self, job: Job) -> None:
        """Another process, not of this grid, works on this run; it is checked again later."""

    def done(self, job: Job) -> None:
        """This run is finished now; runs that were finished before are not reported."""

    def failed(self, failure: Failure) -> None:
        """This run cannot be finished; the others go on."""

    def end(self) -> None:
        """The engine stops, whether all runs are finished or not."""

    def message(self, text: str) -> None:
        """A sentence for the user, such as a warning before the runs."""


@dataclass(frozen=True)
class JobState:
    """The progress of one run."""

    job: Job
    status: Status
    epochs_done: int
    epochs: int
    seconds: float | None
    """Mean time of the training steps of an epoch; None before the first."""


def job_states(jobs: Sequence[Job]) -> list[JobState]:
    """Read the progress of each run from disk."""
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
    except EvenhandError:  # none yet, or damaged, which the run itself will report
        return []


def time_left(states: Sequence[JobState], workers: int = 1) -> float | None:
    """Estimate the seconds until all runs but the failed ones are done, from the speed of epochs so far.

    A run without an epoch is assumed to be as fast as the most similar ones: with the same data, network and
    objective, else the same data and network, else the same network, else any. Loading, validation and the final
    evaluation are not included.

    Args:
        states: of the whole grid, from :func:`job_states`.
        workers: runs at a time.

    Returns:
        Seconds, or None if nothing was measured yet.
    """
    measured: dict[tuple[str, ...], list[float]] = {}
    for state in states:
        if state.seconds is not None:
            for key in _similarity_keys(state.job):
                measured.setdefault(key, []).append(state.seconds)
    if not measured:
        return None if any(_is_open(state) for state in states) else 0.0
    left = []
    for state in filter(_is_open, states):
        alike = next(measured[key] for key in _similarity_keys(state.job) if key in measured)
        seconds = fmean(alike) if state.seconds is None else state.seconds
        left.append(seconds * (state.epochs - state.epochs_done))
    return max(sum(left) / max(workers, 1), max(left, default=0.0))


def _is_open(state: JobState) -> bool:
    return state.status not in (Status.DONE, Status.FAILED)


def _similarity_keys(job: Job) -> Iterator[tuple[str, ...]]:
    """Yield what equally fast runs have in common, from the narrowest to the widest."""
    config = job.config
    data = config.data.model_dump_json(exclude={"root", "split_seed"})
    key = (config.model.name, data, str(config.batch_size), config.objective)
    yield from (key[:length] for length in (4, 3, 1, 0))


def _mean_seconds(rows: Sequence[EpochRow]) -> float | None:
    return fmean(row["seconds"] for row in rows) if rows else None


@dataclass
class GridProgress(GridCallback):
    """Counts and the time left, updated by the calls of an engine.

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

    jobs: Sequence[Job] = ()
    workers: int = 1
    failures: list[Failure] = field(default_factory=list)
    _states: dict[Path, Status] = field(default_factory=dict)
    _rows: dict[Path, list[EpochRow]] = field(default_factory=dict)
    _last_event: dict[Path, tuple[float, bool]] = field(default_factory=dict)
    """Time of the last event of each run, and whether it was an epoch."""
    _trained: float = 0.0
    """Seconds of training steps, of epochs that followed another one."""
    _passed: float = 0.0
    """Seconds of wall time for the same epochs: they include validation and saving."""
    _startup: float = 0.0
    """Seconds that the last run took before its first epoch: a process, its imports, its data."""

    def __post_init__(self) -> None:
        GridProgress.begin(self, self.jobs)

    def begin(self, jobs: Sequence[Job]) -> None:
        """Read the state of these runs from disk."""
        self.jobs = with_dependencies(jobs)
        folders = {job.folder for job in self.jobs}
        self.failures[:] = [each for each in self.failures if each.job.folder not in folders]  # they are tried again
        for job in self.jobs:
            found = status(job)
            self._states[job.folder] = Status.INTERRUPTED if found is Status.FAILED else found
            self._rows[job.folder] = read_rows(job)

    def count(self, *wanted: Status) -> int:
        """Return how many runs are in one of these states."""
        return sum(self._states[job.folder] in wanted for job in self.jobs)

    @property
    def epochs(self) -> int:
        """Epochs of the whole grid."""
        return sum(job.config.epochs for job in self.jobs)

    @property
    def epochs_done(self) -> int:
        """Epochs that are finished, or given up with a failed run."""
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
        startup = self._startup * self.count(Status.MISSING, Status.INTERRUPTED) / max(self.workers, 1)
        return left * (max(self._passed / self._trained, 1.0) if self._trained else 1.0) + startup

    def started(self, job: Job) -> None:
        """Count a run as running."""
        self._states[job.folder] = Status.RUNNING
        self._last_event[job.folder] = time.monotonic(), False

    def progress(self, job: Job, row: EpochRow) -> None:
        """Count an epoch."""
        rows = self._rows[job.folder]
        del rows[int(row["epoch"]) - 1 :]  # epochs of a lost attempt that are repeated
        rows.append(row)
        now = time.monotonic()
        before, by_epoch = self._last_event.get(job.folder, (now, False))
        if by_epoch:
            self._trained += row["seconds"]
            self._passed += now - before
        else:
            self._startup = max(now - before - row["seconds"], 0.0)
        self._last_event[job.folder] = now, True

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
