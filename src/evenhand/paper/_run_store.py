"""Finished runs from two places: run folders, and compact records of runs whose folders are gone."""

from collections.abc import Collection, Iterable
from pathlib import Path

from evenhand.experiments.grid.jobs import Job
from evenhand.experiments.grid.naming import run_name
from evenhand.runs.record import FinishedRun, RunRecord
from evenhand.runs.run import Run, runs_in


class RunStore:
    """Finished runs by name; a run folder takes precedence over a record of the same run.

    Args:
        root: the folder of the run folders; it need not exist.
        records: of further runs.
    """

    def __init__(self, root: Path, records: Iterable[RunRecord] = ()) -> None:
        self.root = root
        # By the name that the config has today: a record may be older than the way runs are named.
        self.records = {run_name(record.config): record for record in records}

    def find(self, job: Job) -> FinishedRun | None:
        """Return the finished run of a job, None if there is none."""
        run = Run(job.folder)
        return run if run.finished else self.records.get(run_name(job.config))

    def runs(self) -> list[FinishedRun]:
        """Return all finished runs."""
        folders = [run for run in runs_in(self.root) if run.finished]
        found = {run_name(run.config) for run in folders}
        return [*folders, *(record for name, record in self.records.items() if name not in found)]


def half_learned_nothing(runs: Collection[FinishedRun]) -> bool:
    """Return whether half of the runs or more learned nothing, so that nothing is concluded from them."""
    nothing = sum(run.summary.learned_nothing for run in runs)
    return nothing > 0 and 2 * nothing >= len(runs)
