"""The number of threads of a grid's runs: one for all of them, since another number gives other results."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid.jobs import Job
from evenhand.runs.run import Run

MOST_WORKERS = 8
"""Runs at a time by default: each holds the data in memory."""


def grid_threads(jobs: Sequence[Job], wanted: int | None = None) -> int:
    """Return the number of threads of each run of a grid.

    It is that of the runs which the folder of the grid has already; else the wanted one, else `OMP_NUM_THREADS`, else
    an eighth of the processors and at least 1. It depends neither on how many runs go on at a time nor on how many are
    left.

    Example:
        >>> import tempfile
        >>> from evenhand.experiments.grid.jobs import make_grid
        >>> from evenhand.experiments.grid.threads import grid_threads
        >>> from evenhand.runs.config import Config
        >>> grid_threads(make_grid(tempfile.mkdtemp(), Config(), objectives=["ce"], seeds=[0])) >= 1
        True
    """
    used: Counter[int] = Counter()
    for folder in sorted({job.folder.parent for job in jobs}):
        runs = sorted(folder.iterdir()) if folder.is_dir() else []
        used.update(threads for run in runs if (threads := recorded_threads(run)))
    if used:
        return min(used, key=lambda threads: (-used[threads], threads))
    if wanted is not None:
        return wanted
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return max(1, count_processors() // MOST_WORKERS)


def recorded_threads(folder: Path) -> int | None:
    """Return with how many threads a run was begun; None where it was not, or nothing is recorded."""
    try:
        run = Run(folder)
        return run.environment.threads if run.begun else None
    except (EvenhandError, OSError):
        return None


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
