"""SLURM as the submitting process sees it, and what a job calls."""

import getpass
import shutil
import subprocess
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from evenhand.core.errors import EvenhandError
from evenhand.core.extras import how_to_install
from evenhand.experiments.grid._engine import End
from evenhand.experiments.grid._slurm_options import SlurmOptions
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.progress import read_rows

IDLE_ATTEMPTS = 3
"""How often in a row a job may be stopped before it has finished an epoch."""
MOST_REQUEUES = 10_000
"""After time limits; `IDLE_ATTEMPTS` ends a run that makes no progress."""


class Cluster(Protocol):
    """Where submitit submits to."""

    def executor(self, folder: Path) -> Any:
        """Return a submitit executor with its files in a folder."""

    def states(self) -> Mapping[str, str] | None:
        """Return the states of this user's jobs, by job id; None: the cluster does not answer now."""


class SlurmCluster:
    """The cluster that this machine submits to.

    Args:
        options: what each job asks for.
        threads: of each run.
    """

    def __init__(self, options: SlurmOptions, threads: int) -> None:
        require_slurm()
        self.submitit = import_submitit()
        self.parameters = options.to_sbatch(threads)
        if self.states() is None:
            raise EvenhandError("SLURM does not answer squeue; see `squeue --me`, and try again.")

    def executor(self, folder: Path) -> Any:
        """Return an executor that calls sbatch."""
        executor = self.submitit.SlurmExecutor(folder=folder, max_num_timeout=MOST_REQUEUES)
        executor.update_parameters(**self.parameters)
        return executor

    def states(self) -> Mapping[str, str] | None:
        """Ask squeue."""
        return queue_states()


def queue_states() -> Mapping[str, str] | None:
    """Ask squeue, which needs no accounting, unlike sacct, for the states of this user's jobs; None: no answer."""
    asked = ["squeue", "--noheader", "--states=all", f"--user={getpass.getuser()}", "--format=%i %T"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return dict(line.split(maxsplit=1) for line in found.stdout.splitlines() if len(line.split()) == 2)


def import_submitit() -> Any:
    """Import submitit, an extra."""
    try:
        return import_module("submitit")
    except ImportError as error:
        raise EvenhandError(f"A grid on SLURM needs the package submitit: {how_to_install('slurm')}.") from error


def require_slurm() -> None:
    """Refuse where submitit or a command of SLURM is missing."""
    import_submitit()
    missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
    if missing:
        raise EvenhandError(
            f"--engine slurm needs the command {missing[0]}, which is not found; use a login node of SLURM."
        )


class Attempt:
    """What submitit calls on a machine of the cluster: a run, begun or continued from its folder.

    Args:
        job: the run, with absolute paths.
        command: the command line, kept at the top of the config.
        threads: of the run.
    """

    def __init__(self, job: Job, command: str, threads: int) -> None:
        self.job, self.command, self.threads = job, command, threads
        self.epochs, self.idle = len(read_rows(job)), 0

    def __call__(self) -> End:
        """Do the run."""
        return do_run(self.job, command=self.command, threads=self.threads)

    def checkpoint(self) -> Any:
        """Return what to do after a requeue: the same, since finished epochs are on disk.

        Called by submitit in the middle of the run, at the time limit or on preemption.

        Raises:
            EvenhandError: several attempts in a row finished no epoch; this ends the run as a failure.
        """
        epochs = len(read_rows(self.job))
        self.idle = 0 if epochs > self.epochs else self.idle + 1
        self.epochs = epochs
        if self.idle >= IDLE_ATTEMPTS:
            raise EvenhandError(
                f"It was stopped {self.idle} times in a row before an epoch was finished; give it more time, such as "
                "--slurm time=4:00:00."
            )
        return import_submitit().helpers.DelayedSubmission(self)
