"""A grid on a Ray cluster: one task a run, retried and continued from the run's folder when a worker dies."""

import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.core.locks import is_locked
from evenhand.experiments.grid._engine import POLL, End, News, finish_jobs
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.local import PATIENCE
from evenhand.experiments.grid.progress import GridCallback, read_rows

RETRIES = 3
"""How often a run is begun again whose worker died; machines of a cluster come and go."""
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
    with _connected(address) as ray:
        return finish_jobs(jobs, RayEngine(ray, jobs, command), callback or GridCallback())


class RayEngine:
    """Tasks of a Ray cluster, one a run; the cluster decides how many go on at once.

    Args:
        ray: the package, connected.
        jobs: the whole grid.
        command: what was typed, kept on top of each config.
    """

    retries = RETRIES
    has_room = True

    def __init__(self, ray: Any, jobs: Sequence[Job], command: str = "") -> None:
        self.ray, self.command = ray, command
        self.active: dict[Any, Job] = {}
        self.epochs: dict[Path, int] = {}
        self.started: set[Path] = set()
        wanted = any(job.config.compute.accelerator != "cpu" for job in jobs)
        gpus = 1 if wanted and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        self.remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(do_run)

    def submit(self, job: Job) -> None:
        """Make a task."""
        self.epochs.setdefault(job.folder, len(read_rows(job)))
        self.active[self.remote.remote(_anchored(job), command=self.command)] = job

    def wait(self, seconds: float | None) -> list[News]:
        """Hear of tasks that end, and look at the folders of the others."""
        ready, _ = self.ray.wait(list(self.active), timeout=POLL if seconds is None else min(seconds, POLL))
        news = [each for job in self.active.values() for each in self._look(job)]
        return news + [News(self.active.pop(reference), self._end(reference)) for reference in ready]

    def cancel(self) -> None:
        """End what is still going on; a killed run continues from its last epoch."""
        for reference in self.active:
            with contextlib.suppress(Exception):  # the cluster may be gone as well
                self.ray.cancel(reference, force=True)
        self.active.clear()

    def _look(self, job: Job) -> Iterator[News]:
        """Tell of epochs that have come to a folder, which is simpler than a channel and survives lost workers."""
        rows = read_rows(job)[self.epochs[job.folder] :]
        if job.folder not in self.started and (rows or is_locked(job.lock)):
            self.started.add(job.folder)
            yield News(job, "started")
        for row in rows:
            yield News(job, row)
        self.epochs[job.folder] += len(rows)

    def _end(self, reference: Any) -> End:
        try:
            end: End = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            return End("lost", "was lost by Ray", f": {reason(error, 300)}")
        return end


def _anchored(job: Job) -> Job:
    """Return a run whose paths mean the same in another process on another machine."""
    root = job.config.data.root or os.environ.get("EVENHAND_DATA")
    data = job.config.data.model_copy(update={"root": root and str(Path(root).expanduser().absolute())})
    weights = job.config.start.weights
    start = job.config.start.model_copy(update={"weights": weights and str(Path(weights).expanduser().absolute())})
    return Job(job.config.model_copy(update={"data": data, "start": start}), job.folder.absolute())


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
        told = f"Cannot reach a Ray cluster at {address or 'this machine'}: {reason(error, 300)}."
        raise EvenhandError(told) from error
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
