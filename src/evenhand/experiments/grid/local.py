"""A grid on one machine: each run in its own process, several at a time, continued where they stopped."""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import make_folder, open_log
from evenhand.experiments.grid._engine import End, Event, finish_jobs
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.threads import MOST_WORKERS, count_processors, grid_threads, recorded_threads
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback

TERMINATION_TIMEOUT = 10.0
"""Seconds between SIGTERM and SIGKILL."""


def run_jobs(
    jobs: Sequence[Job], *, workers: int | None = None, command: str = "", callback: GridCallback | None = None
) -> list[Failure]:
    """Finish all runs of a grid, several at a time, each in its own process.

    Finished runs are not touched, interrupted ones continue, and failed ones are tried again. Several grids may use a
    folder at the same time: no run is done twice. Workers end with this process, however it ends. On KeyboardInterrupt,
    and on SIGTERM, which becomes one, they are stopped first; a second call continues.

    In a script, call it under `if __name__ == "__main__":`.

    Args:
        jobs: the runs.
        workers: runs at a time; None: one per GPU, else one per processor, at most 8. Each has
            :func:`~evenhand.experiments.grid.threads.grid_threads` threads, whatever this number is.
        command: the command line, kept at the top of each config.
        callback: progress callback.

    Returns:
        The runs that could not be finished, each with its reason in one sentence.

    Example:
        >>> import tempfile
        >>> from evenhand.experiments.grid.jobs import make_grid
        >>> from evenhand.experiments.grid.local import run_jobs
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.runs.run import Run
        >>> jobs = make_grid(tempfile.mkdtemp(), make_config(epochs=1), objectives=["ce", "cce"], seeds=[0])
        >>> run_jobs(jobs)
        []
        >>> Run(jobs[0].folder).finished
        True
    """
    if workers is not None and workers < 1:
        raise EvenhandError(f"At least 1 run at a time is needed, got {workers}.")
    engine = LocalEngine(jobs, workers or default_workers(jobs), command)
    return finish_jobs(jobs, engine, callback or GridCallback())


def default_workers(jobs: Sequence[Job]) -> int:
    """Return the default number of runs at a time."""
    devices = count_gpus(jobs) or (1 if torch.backends.mps.is_available() else count_processors())
    return max(1, min(devices, len(jobs), MOST_WORKERS))


def count_gpus(jobs: Sequence[Job]) -> int:
    """Return how many GPUs these runs could use."""
    wanted = any(job.config.compute.accelerator != "cpu" for job in jobs)
    return torch.cuda.device_count() if wanted else 0


@dataclass
class _Worker:
    """One attempt at a run, in the parent process."""

    job: Job
    slot: int
    process: Any
    connection: Connection
    end: End | None = None

    def messages(self) -> Iterator[Any]:
        """Yield what it sent since the last call."""
        try:
            while self.connection.poll():
                yield self.connection.recv()
        except (EOFError, OSError):  # it ended, perhaps in the middle of a message
            return


class LocalEngine:
    """Processes of this machine, one per run.

    Args:
        jobs: the whole grid, including finished runs.
        workers: runs at a time.
        command: the command line, kept at the top of each config.
    """

    retries = 1

    def __init__(self, jobs: Sequence[Job], workers: int, command: str = "") -> None:
        workers = max(1, min(workers, len({job.folder for job in jobs})))
        self.slots = list(range(workers - 1, -1, -1))
        self.active: list[_Worker] = []
        self.events: list[Event] = []
        self.command = command
        self.threads = grid_threads(jobs)
        gpus = count_gpus(jobs)
        listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        self.gpus = (listed or [str(number) for number in range(gpus)])[:gpus]
        self.context = _context()

    @property
    def has_room(self) -> bool:
        """Whether one more process may start."""
        return bool(self.slots)

    def submit(self, job: Job) -> None:
        """Start a process."""
        slot = self.slots.pop()
        environment = dict(os.environ)
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        ours, theirs = self.context.Pipe(duplex=False)
        threads = (
            recorded_threads(job.folder) or self.threads
        )  # a continued run gives the same result only with its own
        arguments = (job, self.command, threads, environment, theirs)
        process = self.context.Process(target=_work, args=arguments, name=job.folder.name)
        worker = _Worker(job, slot, process, ours)
        self.active.append(worker)  # first, so that an interrupt finds it
        try:
            process.start()
            self.events.append(Event(job, "started"))
        except (OSError, EOFError):  # no process can be made, or the server that makes them has ended
            self._remove(worker)
            self.events.append(
                Event(job, End("lost", "could not be started", "; it may be out of memory: lower --jobs"))
            )
        finally:
            theirs.close()

    def wait(self, seconds: float | None) -> list[Event]:
        """Wait for messages and ends of the processes."""
        if not self.events:
            wait([each for worker in self.active for each in (worker.connection, worker.process.sentinel)], seconds)
        for worker in list(self.active):
            ended = not worker.process.is_alive()  # checked first, so that its last message is not missed
            for message in worker.messages():
                if isinstance(message, End):
                    worker.end = message
                else:
                    self.events.append(Event(worker.job, message))
            if ended:
                worker.process.join()
                self._remove(worker)
                self.events.append(Event(worker.job, worker.end or _lost(worker.job, worker.process.exitcode)))
        events, self.events = self.events, []
        return events

    def cancel(self) -> None:
        """End all processes, by SIGTERM first."""
        self.active = [worker for worker in self.active if worker.process.pid is not None]
        for worker in self.active:
            worker.process.terminate()
        deadline = time.monotonic() + TERMINATION_TIMEOUT
        for worker in list(self.active):
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            self._remove(worker)

    def _remove(self, worker: _Worker) -> None:
        worker.connection.close()
        self.active.remove(worker)
        self.slots.append(worker.slot)


def _lost(job: Job, code: int) -> End:
    """Describe the end of a process that sent no result."""
    name = _signal_name(-code) if code < 0 else ""
    hints = {
        "SIGKILL": "; if it was out of memory, lower --jobs",
        "SIGABRT": f"; it may be out of memory: lower --jobs, or see {job.log}",  # what some libraries do then
    }
    how = f"was ended by {name}" if name else f"ended with code {code}"
    hint = hints.get(name, f"; see {job.log}")
    return End("lost", how, hint)


def _work(job: Job, command: str, threads: int, environment: Mapping[str, str], connection: Connection) -> None:
    """Do one run in a new process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the whole group; the parent decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)  # a fork server has the environment of its start
    with contextlib.suppress(OSError):
        _redirect_output(job.log)
    torch.set_num_threads(threads)
    connection.send(do_run(job, command=command, callback=_SendEpochs(connection)))


class _SendEpochs(Callback):
    """Sends each epoch to the parent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def epoch(self, row: EpochRow) -> None:
        self.connection.send(row)


def _end_with_parent() -> None:
    """End with the parent: a run whose grid was killed would keep its lock and let the next grid wait."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _redirect_output(path: Path) -> None:
    """Redirect output to a log: progress bars and warnings of many processes would mix in one terminal."""
    make_folder(path.parent, within=path.parent.parent)
    with open_log(path, within=path.parent.parent) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.enable()


def _context() -> Any:
    """Return how processes are started: from a fork server that has imported torch once, where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["evenhand.experiments.grid._preload"])
    return context


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
