"""A grid on a SLURM cluster: one job per run, submitted by submitit, which requeues it at its time limit."""

import contextlib
import io
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_json, write_json
from evenhand.core.locks import is_locked
from evenhand.core.opening import make_folder, remove_file
from evenhand.experiments.grid._engine import End, Event, finish_jobs
from evenhand.experiments.grid._shared_storage import FolderProgress, with_absolute_paths
from evenhand.experiments.grid._slurm_cluster import Attempt, Cluster, SlurmCluster, queue_states
from evenhand.experiments.grid._slurm_options import SlurmOptions
from evenhand.experiments.grid.jobs import Failure, Job, read_failure, write_failure
from evenhand.experiments.grid.progress import GridCallback
from evenhand.experiments.grid.threads import grid_threads, recorded_threads
from evenhand.runs.run import Run

RETRIES = 3
"""How often a job that the cluster killed is submitted again."""
POLL = 1.0
"""Seconds between two looks into the folders of the runs."""
QUEUE_SECONDS = 10.0
"""Seconds between two calls of squeue, which loads the cluster's controller."""
ENDED = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
        "LAUNCH_FAILED",
    ]
)
"""States of jobs that neither run nor wait. One that SLURM requeues has them for a moment only."""


def run_on_slurm(
    jobs: Sequence[Job],
    *,
    options: SlurmOptions | None = None,
    workers: int | None = None,
    command: str = "",
    callback: GridCallback | None = None,
) -> list[Failure]:
    """Finish all runs of a grid as jobs of SLURM.

    The folder of the runs and the data must be on storage that all machines share under the same paths, and evenhand
    must be installed on each. A job that reaches its time limit or is preempted is requeued, and its run continues
    after its last epoch. Jobs do not end with this process: a later call finds them in the queue.

    Args:
        jobs: the runs.
        options: what each job asks for.
        workers: jobs in the queue at a time; None: all.
        command: the command line, kept at the top of each config.
        callback: progress callback.

    Returns:
        The runs that could not be finished, each with its reason in one sentence.
    """
    options = options or SlurmOptions()
    threads = grid_threads(jobs, options.cpus)
    cluster = SlurmCluster(options, threads)
    engine = SlurmEngine(cluster, threads=threads, workers=workers, command=command)
    return finish_jobs(jobs, engine, callback or GridCallback())


def queued_jobs(jobs: Sequence[Job]) -> dict[Path, str]:
    """Return what squeue says of the jobs of runs, by the folder of the run; runs whose job has ended are left out.

    squeue is only asked if a job was submitted.
    """
    ids = {job.folder: job_id for job in jobs if (job_id := _job_id(job)) is not None}
    if not ids:
        return {}
    states = queue_states()
    if states is None:
        return {folder: f"SLURM job {job_id}, but squeue does not answer" for folder, job_id in ids.items()}
    return {
        folder: f"SLURM job {job_id} {states[job_id].lower()}"
        for folder, job_id in ids.items()
        if states.get(job_id, "COMPLETED") not in ENDED
    }


def _job_id(job: Job) -> str | None:
    """Return the id of the job that was submitted last for a run; None: there is none."""
    try:
        return str(read_json(job.submission, within=job.folder.parent)["job_id"])
    except (EvenhandError, OSError, LookupError, TypeError):
        return None


@dataclass
class _Submission:
    """A job in the queue of the cluster."""

    job: Job
    paths: Any
    """submitit's files of it."""
    ended: int = 0
    """How many times in a row it was found to have ended, without a result."""


class SlurmEngine:
    """Jobs of a cluster, one per run; the cluster decides how many run at a time.

    Args:
        cluster: where to submit to.
        threads: of each run that has not begun.
        workers: jobs in the queue at a time; None: all.
        command: the command line, kept at the top of each config.
    """

    retries = RETRIES

    def __init__(self, cluster: Cluster, *, threads: int, workers: int | None = None, command: str = "") -> None:
        self.cluster, self.threads, self.workers, self.command = cluster, threads, workers, command
        self.active: list[_Submission] = []
        self.refused: list[Job] = []
        self.events: list[Event] = []
        self.progress = FolderProgress()
        self.executors: dict[Path, Any] = {}
        self.states = cluster.states() or {}
        self.asked = time.monotonic()

    @property
    def has_room(self) -> bool:
        """Whether one more job may be submitted."""
        return not self.refused and (self.workers is None or len(self.active) < self.workers)

    def submit(self, job: Job) -> None:
        """Submit a job, unless an earlier call has submitted one that is still in the queue."""
        self.progress.watch(job)
        paths = self._find_queued(job) or self._submit(job)
        if paths is None:
            self.refused.append(job)
        else:
            self.active.append(_Submission(job, paths))

    def wait(self, seconds: float | None) -> list[Event]:
        """Read new epochs from the folders, and look for jobs that ended."""
        time.sleep(POLL if seconds is None else min(seconds, POLL))
        new_states = self._ask()
        events, self.events = self.events, []
        for each in list(self.active):
            end = self._end(each, new_states=new_states)
            events += self.progress.events(each.job)
            if end is not None:
                self.active.remove(each)
                events.append(Event(each.job, end))
        refused, self.refused = self.refused, []
        for job in refused:  # the limit of jobs in the queue may not be reached any more
            self.submit(job)
        return events

    def cancel(self) -> None:
        """Leave all jobs in the queue: they need this process for nothing, and a later call finds them."""
        self.active.clear()

    def _executor(self, job: Job) -> Any:
        root = job.folder.parent
        if root not in self.executors:
            make_folder(job.submissions, within=root)
            self.executors[root] = self.cluster.executor(job.submissions)
        return self.executors[root]

    def _submit(self, job: Job) -> Any:
        """Submit a job and note its id; None: no more jobs may be in the queue now."""
        with contextlib.suppress(EvenhandError):
            remove_file(job.failure, within=job.folder.parent)  # of an earlier attempt: it would seem to be of this one
        executor, threads = self._executor(job), recorded_threads(job.folder) or self.threads
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # submitit prints what it also raises
                submitted = executor.submit(Attempt(with_absolute_paths(job), self.command, threads))
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            why = reason(error, 500)
            if self.active and "limit" in why.lower():
                return None
            raise EvenhandError(
                f"SLURM refused a job: {_refusal(why)}; jobs that are in the queue stay there, and the same command "
                "finds them."
            ) from error
        write_json(job.submission, {"job_id": submitted.job_id}, within=job.folder.parent)
        return submitted.paths

    def _find_queued(self, job: Job) -> Any:
        """Return the files of a job that is in the queue already; None: there is none."""
        job_id = _job_id(job)
        if job_id is None or self.states.get(job_id, "COMPLETED") in ENDED:
            return None
        paths = import_module("submitit.core.utils").JobPaths(self._executor(job).folder, job_id)
        return None if paths.result_pickle.exists() else paths

    def _ask(self) -> bool:
        """Ask for the states of the jobs from time to time; return whether there is an answer."""
        if time.monotonic() - self.asked < QUEUE_SECONDS:
            return False
        found, self.asked = self.cluster.states(), time.monotonic()
        self.states = self.states if found is None else found
        return found is not None

    def _end(self, submission: _Submission, *, new_states: bool) -> End | None:
        """Return how a job ended, from its run's files; None: it has not ended."""
        job, paths = submission.job, submission.paths
        returned = paths.result_pickle.exists()  # checked first: the run's files are written before it
        if Run(job.folder).finished:
            return End("done")
        state = self.states.get(paths.job_id, "")
        if new_states:
            submission.ended = submission.ended + 1 if not state or state in ENDED else 0
        if not returned and submission.ended < 2:  # files may arrive late, and a job may be requeued
            return None
        failure = read_failure(job)
        if failure is not None:
            return End("failed", failure.reason)
        if returned and is_locked(job.lock):
            return End("busy")
        if state in _FINAL:
            final = Failure(job, f"Its SLURM job {paths.job_id} {_FINAL[state]}.")
            with contextlib.suppress(EvenhandError):
                write_failure(final)
            return End("failed", final.reason)
        how = f"was ended by SLURM ({state})" if state else "ended without a result"
        return End("lost", how, f"; see {paths.stderr}")


_FINAL = {
    "CANCELLED": "was cancelled; the same command submits it again",
    "OUT_OF_MEMORY": "ran out of memory; raise mem in --slurm",
    "DEADLINE": "reached its deadline",
}
"""States after which the same job would end in the same way."""


def _refusal(why: str) -> str:
    """Return sbatch's reason, without what submitit prints around it."""
    lines = [line for line in why.replace("sbatch: error: ", "\n").split("\n") if line.strip()]
    return lines[-1].strip().rstrip(".")
