"""The data of a report: runs and comparisons, read from their folders."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.runs.comparison import Comparison, comparison_file, is_comparison
from evenhand.runs.filenames import EXPLORATORY
from evenhand.runs.run import Run
from evenhand.runs.schemas import Summary


@dataclass(frozen=True, eq=False)
class ReportData:
    """The runs and the comparison that a report shows."""

    finished: dict[str, list[Run]]
    """By name, the seeds; in a comparison the name is the objective."""
    unfinished: list[Run]
    comparison: Comparison | None
    folder: Path | None = None
    """Of the comparison, or an exploratory one's file: what predict is given."""

    def predictions(self) -> dict[str, list[Predictions]]:
        """Return the predictions of each name, one per seed."""
        return {name: [run.predictions for run in runs] for name, runs in self.finished.items()}

    def summaries(self) -> dict[str, Summary]:
        """Return the summary of the first seed of each name."""
        return {name: runs[0].summary for name, runs in self.finished.items()}

    def runs(self) -> list[Run]:
        """Return all runs, finished ones first."""
        return [*(run for runs in self.finished.values() for run in runs), *self.unfinished]

    def trained(self) -> dict[str, list[Run]]:
        """Return the finished runs by name, or the unfinished ones if none is finished."""
        named = zip(different_names(self.unfinished), self.unfinished, strict=True)
        return self.finished or {name: [run] for name, run in named}

    def several_seeds(self) -> bool:
        """Return whether there is more than one seed."""
        return self.comparison is not None and len(self.comparison.seeds) > 1

    def comparable(self) -> bool:
        """Return whether there are finished runs, and all have the same classes."""
        return bool(self.finished) and self.same_classes()

    def same_classes(self) -> bool:
        """Return whether all finished runs have the same classes."""
        return len({each.class_names for seeds in self.predictions().values() for each in seeds}) == 1

    def same_images(self) -> bool:
        """Return whether all finished runs were tested on the same images."""
        tested = [np.sort(each.ids) for seeds in self.predictions().values() for each in seeds]
        return all(np.array_equal(tested[0], ids) for ids in tested[1:])


def read_report_data(folders: Sequence[Path]) -> ReportData:
    """Read the folders of runs, or that of one comparison.

    Raises:
        EvenhandError: a folder is neither, a file of it is damaged, or a comparison is mixed with others.
    """
    if not folders:
        raise EvenhandError("There is nothing to report on; give folders of runs, or of one comparison.")
    compared = [folder for folder in folders if is_comparison(folder)]
    if compared and len(folders) > 1:
        raise EvenhandError(f"{compared[0]} is a comparison; give it alone, or give runs only.")
    if compared:
        return _read_comparison(compared[0])
    runs = [_read_run(folder) for folder in folders]
    twice = [path for path, times in Counter(run.path.resolve() for run in runs).items() if times > 1]
    if twice:
        raise EvenhandError(f"{twice[0]} is given twice; give each run once.")
    done = [run for run in runs if run.finished]
    finished = {name: [run] for name, run in zip(different_names(done), done, strict=True)}
    return ReportData(finished, [run for run in runs if not run.finished], None)


def _read_run(folder: Path) -> Run:
    """Read the required files, so that damage is reported before anything is drawn."""
    run = Run(folder)
    if not run.begun:
        found = "has no config and no comparison" if folder.is_dir() else "is not a folder"
        raise EvenhandError(f"{folder} is neither a run nor a comparison: it {found}.")
    _ = run.config, run.history
    if run.finished:
        _ = run.predictions, run.summary
    return run


def _read_comparison(path: Path) -> ReportData:
    comparison = Comparison.read(path)
    folders = {(run.objective, run.seed): run.folder for run in comparison.runs}
    finished = {
        objective: [_member(path, folders.get((objective, seed)), objective, seed) for seed in comparison.seeds]
        for objective in comparison.objectives
    }
    file = comparison_file(path)
    # The folder of an exploratory comparison names another one, which predict would use.
    return ReportData(finished, [], comparison, file if file.name == EXPLORATORY else file.parent)


def _member(comparison: Path, folder: Path | None, objective: str, seed: int) -> Run:
    """Read a run that a comparison names."""
    file = comparison_file(comparison)
    if folder is None:
        raise EvenhandError(f"{file} names no run of {objective} with seed {seed}; compare again.")
    if not folder.is_dir():
        raise EvenhandError(
            f"The run {folder} of the comparison in {file.parent} is missing; restore it, or compare again without it."
        )
    run = _read_run(folder)
    if not run.finished:
        raise EvenhandError(f"{folder} is not finished; continue it with {run.resume_command}, then compare again.")
    return run


def different_names(runs: Sequence[Run]) -> list[str]:
    """Return the shortest names that distinguish the runs."""
    candidates = (
        [str(run.config.objective) for run in runs],
        [f"{run.config.objective}, seed {run.config.seed}" for run in runs],
        [f"{run.config.objective}, {run.path.resolve().name}" for run in runs],
        [f"{run.config.objective}, {run.path}" for run in runs],
    )
    return next((names for names in candidates if len(set(names)) == len(names)), candidates[-1])
