"""How a grid is worked through, whatever runs its jobs: pending, active, held by others, lost, failed, done."""

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import is_locked
from evenhand.experiments.grid.jobs import Failure, Job, with_firsts, write_failure
from evenhand.experiments.grid.progress import GridCallback
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow

POLL = 0.5
"""Seconds between two looks at runs that another process works on."""


@dataclass(frozen=True)
class End:
    """How one attempt at a run ended."""

    kind: Literal["done", "failed", "busy", "lost"]
    """`busy`: another process works on it. `lost`: its process ended without a word."""
    reason: str = ""
    """One sentence; of a lost one what its process did, such as `was ended by SIGKILL`."""
    hint: str = ""
    """What to do about a loss."""


@dataclass(frozen=True)
class News:
    """What an engine says of a run: that it was begun, an epoch of it, or its end."""

    job: Job
    what: Literal["started"] | EpochRow | End


class Engine(Protocol):
    """What runs jobs, several at once, each as :func:`~evenhand.experiments.grid._worker.do_run` does."""

    @property
    def retries(self) -> int:
        """How often a run whose process was lost is begun again."""

    @property
    def has_room(self) -> bool:
        """Whether it takes one more job now."""

    def submit(self, job: Job) -> None:
        """Begin or continue a run."""

    def wait(self, seconds: float | None) -> Sequence[News]:
        """Return the news of the jobs it has; the first, or none after so many seconds."""

    def cancel(self) -> None:
        """End all jobs it has, gently if they let it."""


def finish_jobs(jobs: Sequence[Job], engine: Engine, callback: GridCallback) -> list[Failure]:
    """Work until no run is left to do; return those that could not be finished.

    On KeyboardInterrupt, and on SIGTERM, which becomes one, the jobs of the engine are ended first.
    """
    grid = _Grid(jobs, engine, callback)
    with _sigterm_interrupts():
        try:
            grid.run()
        finally:
            engine.cancel()
    return grid.failures


class _Grid:
    """Where each run of a grid stands."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, callback: GridCallback) -> None:
        self.engine, self.callback = engine, callback
        self.pending = [job for job in with_firsts(jobs) if not Run(job.folder).finished]
        self.active: list[Job] = []
        self.held: list[Job] = []
        self.losses: Counter[Path] = Counter()
        self.failures: list[Failure] = []

    def run(self) -> None:
        """Work until nothing is left to do."""
        while self.pending or self.held or self.active:
            self._recall()
            self._submit()
            if self.active:
                for news in self.engine.wait(POLL if self.held else None):
                    self._hear(news)
            elif self.held:
                time.sleep(POLL)

    def _recall(self) -> None:
        """Take up runs that another process worked on, once it does so no longer."""
        for job in [job for job in self.held if not is_locked(job.lock)]:
            self.held.remove(job)
            if Run(job.folder).finished:
                self.callback.done(job)
            else:
                self.pending.append(job)

    def _submit(self) -> None:
        """Hand over what can be begun; a run that starts from another one waits for it."""
        for job in list(self.pending):
            waits = self._waits_for(job)
            if waits == "nothing" and self.engine.has_room:
                self.pending.remove(job)
                self.active.append(job)
                self.engine.submit(job)
            elif waits not in ("nothing", "a run"):
                self.pending.remove(job)
                self._fail(job, waits, note=True)

    def _waits_for(self, job: Job) -> str:
        """Return `nothing`, `a run`, or a sentence why it can never begin."""
        first = job.after
        if first is None or Run(first.folder).finished:
            return "nothing"
        if any(first.folder == other.folder for other in (*self.pending, *self.active, *self.held)):
            return "a run"
        failed = any(first.folder == failure.job.folder for failure in self.failures)
        return f"It starts from {first.folder.name}, which {'failed' if failed else 'is not finished'}."

    def _hear(self, news: News) -> None:
        job, what = news.job, news.what
        if what == "started":
            self.callback.started(job)
        elif not isinstance(what, End):
            self.callback.progress(job, what)
        else:
            self.active.remove(job)
            self._settle(job, what)

    def _settle(self, job: Job, end: End) -> None:
        if end.kind == "done":
            self.callback.done(job)
        elif end.kind == "busy":
            self.held.append(job)
            self.callback.waiting(job)
        elif end.kind == "failed":
            self._fail(job, end.reason)
        else:
            self.losses[job.folder] += 1
            if self.losses[job.folder] <= self.engine.retries:
                self.pending.insert(0, job)
                return
            times = {1: "once", 2: "twice"}.get(self.losses[job.folder], f"{self.losses[job.folder]} times")
            self._fail(job, f"Its process {end.reason} {times}{end.hint}.", note=True)

    def _fail(self, job: Job, reason: str, *, note: bool = False) -> None:
        failure = Failure(job, reason)
        if note:  # else the run has written it down itself
            with contextlib.suppress(EvenhandError):
                write_failure(failure)
        self.failures.append(failure)
        self.callback.failed(failure)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Make SIGTERM a KeyboardInterrupt, unless the caller has its own way with it or this is no main thread."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
