"""A grid on a Ray cluster: one task per run, continued from the run's folder when a worker dies."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.experiments.grid._engine import POLL, End, Event, finish_jobs
from evenhand.experiments.grid._shared_storage import FolderProgress, with_absolute_paths
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.local import TERMINATION_TIMEOUT
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.threads import grid_threads, recorded_threads

RETRIES = 3
"""How often a run whose worker died is restarted; machines of a cluster come and go."""
OBJECT_STORE = 100 * 2**20
"""Bytes of the object store of a local cluster: tasks exchange only their results' status."""


def run_on_ray(
    jobs: Sequence[Job], *, address: str | None = None, command: str = "", callback: GridCallback | None = None
) -> list[Failure]:
    """Finish all runs of a grid as tasks of Ray, each with one processor, and one GPU if the cluster has any.

    The folder of the runs and the data must be on storage that all machines share under the same paths, and evenhand
    must be installed on each. Everything else is as in :func:`~evenhand.experiments.grid.local.run_jobs`.

    Args:
        jobs: the runs.
        address: of a cluster, such as `ray://HOST:10001`, or `auto` for the one this machine belongs to; None starts
            a temporary cluster on this machine.
        command: the command line, kept at the top of each config.
        callback: progress callback.

    Returns:
        The runs that could not be finished, each with its reason in one sentence.
    """
    with _connected(address) as ray:
        return finish_jobs(jobs, RayEngine(ray, jobs, command), callback or GridCallback())


class RayEngine:
    """Tasks of a Ray cluster, one per run; the cluster decides how many run at a time.

    Args:
        ray: the package, connected.
        jobs: the whole grid.
        command: the command line, kept at the top of each config.
    """

    retries = RETRIES
    has_room = True

    def __init__(self, ray: Any, jobs: Sequence[Job], command: str = "") -> None:
        self.ray, self.command = ray, command
        self.active: dict[Any, Job] = {}
        self.progress = FolderProgress()
        wanted = any(job.config.compute.accelerator != "cpu" for job in jobs)
        gpus = 1 if wanted and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        self.threads = grid_threads(jobs)
        self.remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(do_run)

    def submit(self, job: Job) -> None:
        """Start a task."""
        self.progress.watch(job)
        threads = recorded_threads(job.folder) or self.threads
        self.active[self.remote.remote(with_absolute_paths(job), command=self.command, threads=threads)] = job

    def wait(self, seconds: float | None) -> list[Event]:
        """Wait for tasks that end, and read new epochs from the folders."""
        ready, _ = self.ray.wait(list(self.active), timeout=POLL if seconds is None else min(seconds, POLL))
        events = [each for job in self.active.values() for each in self.progress.events(job)]
        return events + [Event(self.active.pop(reference), self._end(reference)) for reference in ready]

    def cancel(self) -> None:
        """End all tasks; a killed run continues from its last epoch."""
        for reference in self.active:
            with contextlib.suppress(Exception):  # the cluster may be gone as well
                self.ray.cancel(reference, force=True)
        self.active.clear()

    def _end(self, reference: Any) -> End:
        try:
            end: End = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return End("lost", "was lost by Ray", f": {reason(error, 300)}")
        return end


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one; a connection of the caller is used and left open."""
    ray = _import_ray()
    if ray.is_initialized():
        yield ray
        return
    local = {"address": "local", "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _check_reachable(address)
        ray.init(**({"address": address} if address else local), logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise EvenhandError(
            f"Cannot reach a Ray cluster at {address or 'this machine'}: {reason(error, 300)}."
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)  # Ray has installed its own, which would end this process silently
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raise OSError if nothing listens at an address with a port; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=TERMINATION_TIMEOUT).close()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # silences a long warning
    try:
        return import_module("ray")
    except ImportError as error:
        raise EvenhandError(f"A grid on Ray needs the package ray: {how_to_install('ray')}.") from error
