"""What engines share whose runs execute on other machines: absolute paths, and progress read from the folders."""

import os
from collections.abc import Iterator
from pathlib import Path

from evenhand.core.locks import is_locked
from evenhand.experiments.grid._engine import Event
from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.progress import read_rows


def with_absolute_paths(job: Job) -> Job:
    """Return a run whose paths are the same in a process on another machine."""
    root = job.config.data.root or os.environ.get("EVENHAND_DATA")
    data = job.config.data.model_copy(update={"root": root and str(Path(root).expanduser().absolute())})
    weights = job.config.start.weights
    start = job.config.start.model_copy(update={"weights": weights and str(Path(weights).expanduser().absolute())})
    after = None if job.after is None else with_absolute_paths(job.after)
    return Job(job.config.model_copy(update={"data": data, "start": start}), job.folder.absolute(), after)


class FolderProgress:
    """Reads new epochs from the folders of runs, which is simpler than a channel and survives lost workers."""

    def __init__(self) -> None:
        self._epochs: dict[Path, int] = {}
        self._started: set[Path] = set()

    def watch(self, job: Job) -> None:
        """Note the epochs that a run has before it begins or continues."""
        self._epochs.setdefault(job.folder, len(read_rows(job)))

    def events(self, job: Job) -> Iterator[Event]:
        """Yield the start of a run once, and its epochs since the last call."""
        rows = read_rows(job)[self._epochs[job.folder] :]
        if job.folder not in self._started and (rows or is_locked(job.lock)):
            self._started.add(job.folder)
            yield Event(job, "started")
        for row in rows:
            yield Event(job, row)
        self._epochs[job.folder] += len(rows)
