"""What a page is made from: runs and comparisons, read back from their folders."""

import json
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.runs.config import Config, load_config
from evenhand.runs.history import read_history


@dataclass(frozen=True, eq=False)
class RunFiles:
    """One run, as far as it has come."""

    path: Path
    config: Config
    config_text: str
    command: str
    """What was typed to make it, or what repeats it."""
    environment: dict[str, Any]
    history: list[dict[str, float]]
    summary: "Summary | None"
    """None: not finished."""
    predictions: Predictions | None
    """None: not finished."""

    @property
    def resume(self) -> str:
        """The command that continues it."""
        return shlex.join(["evenhand", "train", "--resume", str(self.path)])


class _Content(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Recall(_Content):
    """The recall of a class, or the mean of a group of classes."""

    name: str = ""
    recall: float


class Summary(_Content):
    """What the page needs of a `summary.json`; shares."""

    source: str
    seconds_per_epoch: float
    notes: list[str]
    accuracy: float
    accuracy_interval: tuple[float, float] | None
    balanced_accuracy: float
    balanced_accuracy_interval: tuple[float, float] | None
    macro_f1: float
    ece: float
    worst_class: Recall
    groups: dict[str, Recall | None]
    shot_rule: str


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
    verdicts: list[str] = Field(min_length=1)
    method: str
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Material:
    """Everything a page shows."""

    finished: dict[str, list[RunFiles]]
    """By name, for a comparison the objective, its seeds."""
    unfinished: list[RunFiles]
    comparison: ComparisonFile | None

    def predictions(self) -> dict[str, list[Predictions]]:
        """Return the predictions of each name, one for each seed."""
        return {
            name: [run.predictions for run in runs if run.predictions is not None]
            for name, runs in self.finished.items()
        }

    def summaries(self) -> dict[str, Summary]:
        """Return the judgement of the first seed of each name."""
        return {name: runs[0].summary for name, runs in self.finished.items() if runs[0].summary is not None}

    def runs(self) -> list[RunFiles]:
        """Return all runs, finished ones first."""
        return [*(run for runs in self.finished.values() for run in runs), *self.unfinished]

    def trained(self) -> dict[str, list[RunFiles]]:
        """Return the finished runs by name, or the unfinished ones where none is finished."""
        named = zip(different_names(self.unfinished), self.unfinished, strict=True)
        return self.finished or {name: [run] for name, run in named}

    def several_seeds(self) -> bool:
        """Whether means are over more than one seed."""
        return self.comparison is not None and len(self.comparison.seeds) > 1

    def comparable(self) -> bool:
        """Whether there are finished runs, and all know the same classes, so that they can be drawn side by side."""
        return bool(self.finished) and self.same_classes()

    def same_classes(self) -> bool:
        """Whether all finished runs know the same classes."""
        return len({each.class_names for seeds in self.predictions().values() for each in seeds}) == 1

    def same_images(self) -> bool:
        """Whether all finished runs were tested on the same images."""
        tested = [np.sort(each.ids) for seeds in self.predictions().values() for each in seeds]
        return all(np.array_equal(tested[0], ids) for ids in tested[1:])


def read_material(folders: Sequence[Path]) -> Material:
    """Read the folders of runs, or that of one comparison.

    Raises:
        EvenhandError: a folder is neither, a file of it is damaged, or a comparison is mixed with others.
    """
    if not folders:
        raise EvenhandError("There is nothing to report on; give the folders of runs, or that of a comparison.")
    compared = [folder for folder in folders if is_comparison(folder)]
    if compared and len(folders) > 1:
        raise EvenhandError(f"{compared[0]} is a comparison; give it alone, or give runs only.")
    if compared:
        return _read_comparison(compared[0])
    runs = [read_run_files(folder) for folder in folders]
    twice = [path for path, times in Counter(run.path.resolve() for run in runs).items() if times > 1]
    if twice:
        raise EvenhandError(f"{twice[0]} is given twice; give each run once.")
    done = [run for run in runs if run.predictions is not None]
    names = different_names(done)
    return Material(
        {name: [run] for name, run in zip(names, done, strict=True)},
        [run for run in runs if run.predictions is None],
        None,
    )


def is_comparison(folder: Path) -> bool:
    """Whether a path is a comparison's folder or its `comparison.json`."""
    return folder.name == "comparison.json" or (folder / "comparison.json").is_file()


def read_run_files(folder: Path) -> RunFiles:
    """Read a run, finished or not.

    Raises:
        EvenhandError: it is no run, or a file of it is damaged, naming that.
    """
    if not (folder / "config.yaml").is_file():
        found = "has no config.yaml and no comparison.json" if folder.is_dir() else "is no folder"
        raise EvenhandError(f"{folder} is neither a run nor a comparison: it {found}.")
    config = load_config(folder / "config.yaml")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    first = text.partition("\n")[0]
    again = shlex.join(["evenhand", "train", "--config", str(folder / "config.yaml")])
    command = first.removeprefix("#").strip() if first.startswith("#") else again
    judged = folder / "summary.json"
    summary = _read_as(Summary, judged, "judge the run again with evenhand evaluate") if judged.is_file() else None
    return RunFiles(
        path=folder,
        config=config,
        config_text=text,
        command=command,
        environment=_read_environment(folder / "environment.json"),
        history=read_history(folder / "history.csv") if (folder / "history.csv").is_file() else [],
        summary=summary,
        predictions=None if summary is None else load_predictions(folder / "predictions.npz"),
    )


def _read_comparison(folder: Path) -> Material:
    path = folder if folder.name == "comparison.json" else folder / "comparison.json"
    comparison = _read_as(ComparisonFile, path, "compare the runs again")
    finished: dict[str, list[RunFiles]] = {}
    for objective in comparison.objectives:
        folders = {entry.seed: entry.folder for entry in comparison.runs if entry.objective == objective}
        finished[objective] = [_member(path.parent, folders.get(seed), objective, seed) for seed in comparison.seeds]
    return Material(finished, [], comparison)


def _member(root: Path, folder: str | None, objective: str, seed: int) -> RunFiles:
    """Read a run that a comparison names."""
    if folder is None:
        raise EvenhandError(f"{root / 'comparison.json'} names no run of {objective} with seed {seed}; compare again.")
    # Without the `..` that a relative name may hold, so that a message shows a path as a person would write it.
    path = Path(os.path.normpath(root / folder))
    if not path.is_dir():
        raise EvenhandError(
            f"The run {path} of the comparison in {root} is gone; put it back, or compare without it again."
        )
    run = read_run_files(path)
    if run.predictions is None:
        raise EvenhandError(f"{path} is not finished; continue it with {run.resume}, then compare again.")
    return run


def different_names(runs: Sequence[RunFiles]) -> list[str]:
    """Name each run by as little as tells it from the others."""
    candidates = (
        [run.config.objective for run in runs],
        [f"{run.config.objective}, seed {run.config.seed}" for run in runs],
        [f"{run.config.objective}, {run.path.resolve().name}" for run in runs],
        [f"{run.config.objective}, {run.path}" for run in runs],
    )
    return next((names for names in candidates if len(set(names)) == len(names)), candidates[-1])


_Kind = TypeVar("_Kind", bound=_Content)


def _read_as(kind: type[_Kind], path: Path, advice: str) -> _Kind:
    try:
        return kind.model_validate(_read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise EvenhandError(f"Cannot read {path}: {where}: {first['msg'].lower()}; {advice}.") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EvenhandError(f"Cannot read {path}: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise EvenhandError(f"Cannot read {path}: expected a JSON object, got {type(content).__name__}.")
    return content


def _read_environment(path: Path) -> dict[str, Any]:
    try:
        return _read_json(path)
    except EvenhandError:
        return {}  # it only says on what machine a run was made
