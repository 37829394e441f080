"""Small grids on digits, and a callback that records their events."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evenhand.experiments.grid.jobs import Failure, Job, make_grid
from evenhand.experiments.grid.progress import GridCallback
from evenhand.runs.schemas import EpochRow
from evenhand.training.run import train_run
from tests.training.runs import files_of, tiny

OBJECTIVES, SEEDS, EPOCHS = ("ce", "cce"), (0, 1), 5

# What a person would write, which tells the epochs and the processes that work on them.
SCRIPT = """
import json
import multiprocessing
import sys
from pathlib import Path

from evenhand.experiments.grid.local import run_jobs
from evenhand.experiments.grid.progress import GridCallback
from tests.experiments.grids import small_grid


class Tell(GridCallback):
    def progress(self, job, row):
        print(json.dumps([process.pid for process in multiprocessing.active_children()]), flush=True)


if __name__ == "__main__":
    try:
        failures = run_jobs(small_grid(Path(sys.argv[1]), epochs=int(sys.argv[2])), workers=2, callback=Tell())
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(len(failures))
"""


def small_grid(root: Path, *, epochs: int = EPOCHS, **flags: Any) -> list[Job]:
    """2 objectives x 2 seeds, a second or so each."""
    return make_grid(root, tiny(epochs=epochs, **flags), objectives=OBJECTIVES, seeds=SEEDS)


def undisturbed(root: Path, *, epochs: int = EPOCHS) -> list[Job]:
    """The same grid, one run after the other in this process."""
    jobs = small_grid(root, epochs=epochs)
    for job in jobs:
        train_run(job.config, job.folder)
    return jobs


def start(root: Path, *, epochs: int = EPOCHS) -> "subprocess.Popen[str]":
    """Start the grid in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(root), str(epochs)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def times_of(folder: Path) -> dict[str, int]:
    """When each file of a run was written."""
    return {name: (folder / name).stat().st_mtime_ns for name in files_of(folder)}


def is_alive(pid: int) -> bool:
    """Return whether a process still works; one that only waits to be buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def becomes(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


class Heard(GridCallback):
    """Records all events."""

    def __init__(self) -> None:
        self.starts: list[Path] = []
        self.epochs: list[tuple[Path, int]] = []
        self.waits: list[Path] = []
        self.ends: list[Path] = []
        self.failures: list[Failure] = []

    def started(self, job: Job) -> None:
        self.starts.append(job.folder)

    def progress(self, job: Job, row: EpochRow) -> None:
        self.epochs.append((job.folder, int(row["epoch"])))

    def waiting(self, job: Job) -> None:
        self.waits.append(job.folder)

    def done(self, job: Job) -> None:
        self.ends.append(job.folder)

    def failed(self, failure: Failure) -> None:
        self.failures.append(failure)
