"""Clusters for tests: submitit's own executor on this machine, with real processes, time limits and requeues."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evenhand.experiments.grid import _on_slurm as on_slurm
from evenhand.experiments.grid._engine import End, finish_jobs
from evenhand.experiments.grid._on_slurm import SlurmEngine
from evenhand.experiments.grid._slurm_cluster import MOST_REQUEUES, Attempt
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.experiments.grid.progress import GridCallback
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback
from tests.experiments.grids import Heard, small_grid


class LocalCluster:
    """Processes of this machine; the id of a job is that of the process that looks after it."""

    def executor(self, folder: Path) -> Any:
        import submitit

        executor = submitit.LocalExecutor(folder, max_num_timeout=MOST_REQUEUES)
        executor.update_parameters(timeout_min=5, signal_delay_s=1)
        return executor

    def states(self) -> Mapping[str, str]:
        return {str(pid): "RUNNING" for pid in processes("submitit.local._local")}


def processes(module: str, near: Path | None = None) -> Iterator[int]:
    """Yield the processes that run a module, with a folder among their arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if module in words and (near is None or str(near) in words):
            yield int(path.parent.name)


def kill(folder: Path) -> list[int]:
    """Kill the jobs of a grid's folder, as a machine that goes down does."""
    found = [pid for part in ("_local", "_submit") for pid in processes(f"submitit.{PARTS[part]}", submitted(folder))]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


PARTS = {"_local": "local._local", "_submit": "core._submit"}


def submitted(folder: Path) -> Path:
    """Where submitit keeps its files of a grid."""
    return folder.absolute() / ".grid" / "submitted"


class Pause(Callback):
    """Slows a run down: a second per epoch, so that it can be stopped in the middle."""

    def epoch(self, row: EpochRow) -> None:
        del row
        time.sleep(1.0)


class SlowAttempt(Attempt):
    """An attempt whose epochs take a second."""

    def __call__(self) -> End:
        return do_run(self.job, command=self.command, threads=self.threads, callback=Pause())


def run_locally(
    jobs: list[Job],
    cluster: LocalCluster | None = None,
    *,
    workers: int | None = None,
    heard: GridCallback | None = None,
) -> list[Failure]:
    """Do the runs as jobs of this machine."""
    engine = SlurmEngine(cluster or LocalCluster(), threads=1, workers=workers)
    return finish_jobs(jobs, engine, heard or Heard())


class Tell(Heard):
    """Prints each epoch."""

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        print(job.folder.name, int(row["epoch"]), flush=True)  # noqa: T201


def main() -> None:
    """Submit a slow run, as a person would who then presses Ctrl-C."""
    on_slurm.Attempt = SlowAttempt  # type: ignore[misc]
    on_slurm.POLL = on_slurm.QUEUE_SECONDS = 0.1
    run_locally(small_grid(Path(sys.argv[1]), epochs=int(sys.argv[2]))[:1], heard=Tell())


if __name__ == "__main__":
    main()
