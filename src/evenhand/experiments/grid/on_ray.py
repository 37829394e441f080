"""A grid on a Ray cluster: one task a run, retried and continued from the run's folder when a worker dies."""

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install
from evenhand.experiments.grid.jobs import Failure, Job, write_failure
from evenhand.experiments.grid.local import PATIENCE, POLL, sigterm_interrupts
from evenhand.experiments.grid.locks import is_locked
from evenhand.experiments.grid.one_run import End, do_run
from evenhand.experiments.grid.progress import GridCallback, read_rows
from evenhand.runs.folder import Run

RETRIES = 3
"""How often Ray starts a run again whose worker died."""
OBJECT_STORE = 100 * 2**20
"""Bytes of a local cluster's store: tasks exchange nothing but a few words."""


def run_on_ray(
    jobs: Sequence[Job], *, address: str | None = None, command: str = "", callback: GridCallback | None = None
) -> list[Failure]:
    """Finish all runs of a grid as tasks of Ray, each with one processor, and one GPU if the cluster has any.

    The folder of the runs and the data have to be on storage that all machines share under the same paths, and
    evenhand has to be installed on each. Everything else is as in :func:`~evenhand.experiments.grid.local.run_jobs`.

    Args:
        jobs: the runs.
        address: of a cluster, such as `ray://HOST:10001`, or `auto` for the one this machine belongs to; None starts
            a cluster on this machine for as long as the grid takes.
        command: what was typed, kept on top of each config.
        callback: who looks on.

    Returns:
        The runs that could not be finished, each with its reason in one sentence.
    """
    with _connected(address) as ray, sigterm_interrupts():
        tasks = _Tasks(ray, jobs, command, callback or GridCallback())
        try:
            tasks.run()
        finally:
            tasks.cancel()
    return tasks.failures


class _Tasks:
    """The tasks of one grid."""

    def __init__(self, ray: Any, jobs: Sequence[Job], command: str, callback: GridCallback) -> None:
        self.ray, self.command, self.callback = ray, command, callback
        distinct = {job.folder: job for job in jobs}
        self.pending = [job for job in distinct.values() if not Run(job.folder).finished]
        self.held: list[Job] = []
        self.active: dict[Any, Job] = {}
        self.epochs = {job.folder: len(read_rows(job)) for job in self.pending}
        self.started: set[Path] = set()
        self.failures: list[Failure] = []
        wanted = any(job.config.compute.accelerator != "cpu" for job in jobs)
        gpus = 1 if wanted and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        self.remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(do_run)

    def run(self) -> None:
        """Work until nothing is left to do."""
        while self.pending or self.held or self.active:
            for job in self.pending:
                self.active[self.remote.remote(_anchored(job), command=self.command)] = job
            self.pending = [job for job in self.held if not is_locked(job.lock)]
            self.held = [job for job in self.held if job not in self.pending]
            if self.active:
                ready, _ = self.ray.wait(list(self.active), timeout=POLL)
            else:
                ready = []
                time.sleep(POLL)
            self._look()
            for reference in ready:
                self._settle(self.active.pop(reference), self._end(reference))

    def cancel(self) -> None:
        """End what is still going on; a killed run continues from its last epoch."""
        for reference in self.active:
            with contextlib.suppress(Exception):  # the cluster may be gone as well
                self.ray.cancel(reference, force=True)
        self.active.clear()

    def _look(self) -> None:
        """Tell of epochs that have come to the folders, which is simpler than a channel and survives lost workers."""
        for job in self.active.values():
            rows = read_rows(job)[self.epochs[job.folder] :]
            if job.folder not in self.started and (rows or is_locked(job.lock)):
                self.started.add(job.folder)
                self.callback.started(job)
            for row in rows:
                self.callback.progress(job, row)
            self.epochs[job.folder] += len(rows)

    def _end(self, reference: Any) -> End:
        try:
            end: End = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            said = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
            return End("failed", f"Ray gave it up: {said}.")
        return end

    def _settle(self, job: Job, end: End) -> None:
        if end.kind == "busy":
            self.held.append(job)
            self.callback.waiting(job)
        elif end.kind == "done":
            self.callback.done(job)
        else:
            failure = Failure(job, end.reason)
            if not job.failure.is_file():  # the worker had no time to say why
                with contextlib.suppress(EvenhandError):
                    write_failure(failure)
            self.failures.append(failure)
            self.callback.failed(failure)


def _anchored(job: Job) -> Job:
    """Return a run whose paths mean the same in another process on another machine."""
    root = job.config.data.root or os.environ.get("EVENHAND_DATA")
    data = job.config.data.model_copy(update={"root": root and str(Path(root).expanduser().absolute())})
    return Job(job.config.model_copy(update={"data": data}), job.folder.absolute())


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Join a cluster, or start one; a connection that the caller made is used and left."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    local = {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _knock(address)
        ray.init(**({"address": address} if address else local), logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        said = " ".join(str(error).split())[:300].rstrip(".")
        raise EvenhandError(f"Cannot reach a Ray cluster at {address or 'this machine'}: {said}.") from error
    if main:
        signal.signal(signal.SIGTERM, handler)  # Ray has put its own in place, which would end us without a word
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str | None) -> None:
    """Raise OSError if nobody listens at an address with a port; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it would announce a change at length
    try:
        return import_module("ray")
    except ImportError as error:
        raise EvenhandError(f"A grid on Ray needs one more package: {how_to_install('ray')}.") from error
