"""Schedule the jobs of a grid on any engine: pending, active, locked by others, lost, failed, done."""

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
from evenhand.experiments.grid.jobs import Failure, Job, with_dependencies, write_failure
from evenhand.experiments.grid.progress import GridCallback
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow

POLL = 0.5
"""Seconds between two checks of runs that another process works on."""


@dataclass(frozen=True)
class End:
    """How one attempt at a run ended."""

    kind: Literal["done", "failed", "busy", "lost"]
    """`busy`: another process works on it. `lost`: its process ended without a result."""
    reason: str = ""
    """One sentence; of a lost one what happened to its process, such as `was ended by SIGKILL`."""
    hint: str = ""
    """What to do about a lost process."""


@dataclass(frozen=True)
class Event:
    """What an engine reports of a run: its start, an epoch, or its end."""

    job: Job
    content: Literal["started"] | EpochRow | End


class Engine(Protocol):
    """Runs several jobs at once, each with :func:`~evenhand.experiments.grid._worker.do_run`."""

    @property
    def retries(self) -> int:
        """How often a run whose process was lost is restarted."""

    @property
    def has_room(self) -> bool:
        """Whether it takes one more job now."""

    def submit(self, job: Job) -> None:
        """Begin or continue a run."""

    def wait(self, seconds: float | None) -> Sequence[Event]:
        """Wait for events of its jobs, at most this long, and return them."""

    def cancel(self) -> None:
        """End all its jobs, by SIGTERM first, or leave them where they do not depend on this process."""


def finish_jobs(jobs: Sequence[Job], engine: Engine, callback: GridCallback) -> list[Failure]:
    """Work until no run is left to do; return those that could not be finished.

    On KeyboardInterrupt, and on SIGTERM, which becomes one, the engine cancels its jobs first.
    """
    callback.begin(jobs)
    scheduler = _Scheduler(jobs, engine, callback)
    with _sigterm_interrupts():
        try:
            scheduler.run()
        finally:
            engine.cancel()
            callback.end()
    return scheduler.failures


class _Scheduler:
    """The queues of a grid's runs."""

    def __init__(self, jobs: Sequence[Job], engine: Engine, callback: GridCallback) -> None:
        self.engine, self.callback = engine, callback
        self.pending = [job for job in with_dependencies(jobs) if not Run(job.folder).finished]
        self.active: list[Job] = []
        self.locked: list[Job] = []
        self.losses: Counter[Path] = Counter()
        self.failures: list[Failure] = []

    def run(self) -> None:
        """Work until nothing is left to do."""
        while self.pending or self.locked or self.active:
            self._requeue_unlocked()
            self._submit()
            if self.active:
                for event in self.engine.wait(POLL if self.locked else None):
                    self._handle(event)
            elif self.locked:
                time.sleep(POLL)

    def _requeue_unlocked(self) -> None:
        """Requeue runs that another process worked on, once it has released them."""
        for job in [job for job in self.locked if not is_locked(job.lock)]:
            self.locked.remove(job)
            if Run(job.folder).finished:
                self.callback.done(job)
            else:
                self.pending.append(job)

    def _submit(self) -> None:
        """Submit what can begin; a run that starts from another one waits for it."""
        for job in list(self.pending):
            waits = self._waits_for(job)
            if waits == "nothing" and self.engine.has_room:
                self.pending.remove(job)
                self.active.append(job)
                self.engine.submit(job)
            elif waits not in ("nothing", "a run"):
                self.pending.remove(job)
                self._fail(job, waits, write=True)

    def _waits_for(self, job: Job) -> str:
        """Return `nothing`, `a run`, or a sentence why it can never begin."""
        first = job.after
        if first is None or Run(first.folder).finished:
            return "nothing"
        if any(first.folder == other.folder for other in (*self.pending, *self.active, *self.locked)):
            return "a run"
        failed = any(first.folder == failure.job.folder for failure in self.failures)
        return f"It starts from {first.folder.name}, which {'failed' if failed else 'is not finished'}."

    def _handle(self, event: Event) -> None:
        job, end = event.job, event.content
        if end == "started":
            self.callback.started(job)
            return
        if not isinstance(end, End):
            self.callback.progress(job, end)
            return
        self.active.remove(job)
        if end.kind == "done":
            self.callback.done(job)
        elif end.kind == "busy":
            self.locked.append(job)
            self.callback.waiting(job)
        elif end.kind == "failed":
            self._fail(job, end.reason)
        else:
            self.losses[job.folder] += 1
            if self.losses[job.folder] <= self.engine.retries:
                self.pending.insert(0, job)
                return
            times = {1: "once", 2: "twice"}.get(self.losses[job.folder], f"{self.losses[job.folder]} times")
            self._fail(job, f"Its process {end.reason} {times}{end.hint}.", write=True)

    def _fail(self, job: Job, reason: str, *, write: bool = False) -> None:
        failure = Failure(job, reason)
        if write:  # otherwise the run has written it
            with contextlib.suppress(EvenhandError):
                write_failure(failure)
        self.failures.append(failure)
        self.callback.failed(failure)


@contextlib.contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Make SIGTERM a KeyboardInterrupt, unless the caller has a handler for it or this is not the main thread."""
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
