"""The data of a report: runs and comparisons, read from their folders."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json
from evenhand.metrics.predictions import Predictions
from evenhand.runs.run import Run
from evenhand.runs.schemas import Summary


class _Content(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Entry(_Content):
    """A run of a comparison."""

    objective: str
    seed: int
    folder: str


class ObjectiveRow(_Content):
    """An objective of a comparison: means over seeds, as shares."""

    objective: str
    picked: bool
    seconds_per_epoch: float
    val_balanced_accuracy: float | None
    balanced_accuracy: float | None
    balanced_accuracy_spread: float | None
    accuracy: float | None
    many: float | None
    medium: float | None
    few: float | None
    worst_class: str | None
    worst_recall: float | None
    macro_f1: float | None
    ece: float | None
    tried: int = 1


class DifferenceRow(_Content):
    """An objective against the baseline in one metric, as shares."""

    objective: str
    metric: str
    mean: float
    low: float | None
    high: float | None
    p: float | None
    level: float = 0.0
    margin: float = 0.01
    outcome: str
    words: str = ""
    """The outcome as tables show it."""


class ComparisonFile(_Content):
    """What the page needs of a `comparison.json`."""

    source: str
    imbalance: str
    model: str
    baseline: str
    objectives: list[str] = Field(min_length=1)
    seeds: list[int] = Field(min_length=1)
    shot_rule: str
    runs: list[Entry]
    table: list[ObjectiveRow]
    differences: list[DifferenceRow]
    failures: list[str] = []
    verdicts: list[str] = Field(min_length=1)
    method: str
    notes: list[str]


@dataclass(frozen=True, eq=False)
class ReportData:
    """The runs and the comparison that a report shows."""

    finished: dict[str, list[Run]]
    """By name, the seeds; in a comparison the name is the objective."""
    unfinished: list[Run]
    comparison: ComparisonFile | None

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
    names = different_names(done)
    return ReportData(
        {name: [run] for name, run in zip(names, done, strict=True)},
        [run for run in runs if not run.finished],
        None,
    )


def is_comparison(folder: Path) -> bool:
    """Whether a path is a comparison's folder or its `comparison.json`."""
    return folder.name == "comparison.json" or (folder / "comparison.json").is_file()


def _read_run(folder: Path) -> Run:
    """Read the required files, so that damage is reported before anything is drawn."""
    run = Run(folder)
    if not run.begun:
        found = "has no config and no comparison" if folder.is_dir() else "is no folder"
        raise EvenhandError(f"{folder} is neither a run nor a comparison: it {found}.")
    _ = run.config, run.history
    if run.finished:
        _ = run.predictions, run.summary
    return run


def _read_comparison(folder: Path) -> ReportData:
    path = folder if folder.name == "comparison.json" else folder / "comparison.json"
    comparison = _read_comparison_file(path)
    finished: dict[str, list[Run]] = {}
    for objective in comparison.objectives:
        folders = {entry.seed: entry.folder for entry in comparison.runs if entry.objective == objective}
        finished[objective] = [_member(path.parent, folders.get(seed), objective, seed) for seed in comparison.seeds]
    return ReportData(finished, [], comparison)


def _member(root: Path, folder: str | None, objective: str, seed: int) -> Run:
    """Read a run that a comparison names."""
    if folder is None:
        raise EvenhandError(f"{root / 'comparison.json'} names no run of {objective} with seed {seed}; compare again.")
    # Without the `..` that a relative name may hold, so that a message shows a path as a person would write it.
    path = Path(os.path.normpath(root / folder))
    if not path.is_dir():
        raise EvenhandError(
            f"The run {path} of the comparison in {root} is gone; put it back, or compare without it again."
        )
    run = _read_run(path)
    if not run.finished:
        raise EvenhandError(f"{path} is not finished; continue it with {run.resume_command}, then compare again.")
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


def _read_comparison_file(path: Path) -> ComparisonFile:
    try:
        return ComparisonFile.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise EvenhandError(f"Cannot read {path}: {where}: {first['msg'].lower()}; compare the runs again.") from error
