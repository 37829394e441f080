"""One run of a grid: started or continued by one process at a time; a failure is written to disk."""

import contextlib
import hashlib
import traceback
from collections.abc import Iterator
from typing import Any

import torch

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import Busy, Lock, claimed, take_lock
from evenhand.core.opening import make_folder, remove_file
from evenhand.experiments.grid._engine import End
from evenhand.experiments.grid.jobs import Failure, Job, write_failure
from evenhand.experiments.grid.naming import run_name
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.derived_run import derive_run, shares_training
from evenhand.training.loop import Callback
from evenhand.training.run import begin_run, continue_run


def do_run(job: Job, *, command: str = "", callback: Callback | None = None, threads: int | None = None) -> End:
    """Start or continue a run in this process, unless another process works on it; write a failure to disk."""
    if threads is not None:
        torch.set_num_threads(threads)
    if Run(job.folder).finished:
        return End("done")
    try:
        with claimed(job.folder):
            return _do_claimed(job, command, callback or Callback())
    except Busy:
        return End("busy")
    except EvenhandError as error:
        return End("failed", str(error))


def _do_claimed(job: Job, command: str, callback: Callback) -> End:
    if Run(job.folder).finished:
        return End("done")
    try:
        remove_file(job.failure, within=job.folder.parent)
        with _data_lock(job) as data:
            _start_or_continue(job, command, _ReleaseData(callback, data))
        return End("done")
    except EvenhandError as error:
        reason, trace = str(error), ""
    except MemoryError:
        reason, trace = "Out of memory; lower --jobs.", traceback.format_exc()
    except Exception as error:  # whatever it was, the other runs go on
        text = " ".join(str(error).split())[:500] or "no more is known"
        reason, trace = f"{type(error).__name__}: {text}", traceback.format_exc()
    with contextlib.suppress(EvenhandError):  # on a full disk the reason is still reported
        write_failure(Failure(job, reason), trace)
    return End("failed", reason)


def _start_or_continue(job: Job, command: str, callback: Callback) -> None:
    run = Run(job.folder)
    if job.after is not None and shares_training(job.config) is not None:
        derive_run(job.after.folder, job.config, job.folder, command=command)
        return
    if not run.begun:
        for leftover in job.folder.glob(".*.part"):  # of a process that was killed before it had written the config
            leftover.unlink(missing_ok=True)
        begin_run(job.config, job.folder, command=command, callback=callback)
        return
    if run_name(run.config) != run_name(job.config):
        raise EvenhandError(
            f"The config in {run.path} was changed after the run began; remove that folder to start again."
        )
    wanted = job.config.model_copy(update={"start": run.config.start})  # which names the weights of the first attempt
    if run.config != wanted:
        run.write_config(wanted, command)  # the data were moved, or the devices changed
    continue_run(job.folder, callback=callback)


@contextlib.contextmanager
def _data_lock(job: Job) -> Iterator[Lock]:
    """Wait until no other run of this grid loads the same data, so that they are downloaded and decoded once."""
    data = job.config.data
    digest = hashlib.sha256(repr((data.source, data.root, data.image_size)).encode()).hexdigest()[:10]
    make_folder(job.log.parent, within=job.folder.parent)
    lock = take_lock(job.log.parent / f"data-{digest}.lock", wait=True)
    assert lock is not None
    try:
        yield lock
    finally:
        lock.release()


class _ReleaseData(Callback):
    """Releases the lock of the data at the first training step, and forwards all calls."""

    def __init__(self, callback: Callback, data: Lock) -> None:
        self.callback, self.data = callback, data

    def prepared(self, resolved: dict[str, Any]) -> None:
        self.callback.prepared(resolved)

    def begin(self, parts: list[dict[str, Any]]) -> None:
        self.callback.begin(parts)

    def step(self, epoch: int, done: int, total: int) -> None:
        self.data.release()
        self.callback.step(epoch, done, total)

    def epoch(self, row: EpochRow) -> None:
        self.callback.epoch(row)
