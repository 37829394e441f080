"""The folder of a comparison, for those who use what it recommends."""

import os
from dataclasses import dataclass
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json
from evenhand.runs.run import Run

FILE = "comparison.json"


@dataclass(frozen=True)
class Recommended:
    """What a comparison recommends."""

    objective: str
    runs: tuple[Run, ...]
    """One per seed, the best on validation first."""


def is_comparison(folder: os.PathLike[str] | str) -> bool:
    """Tell whether a folder is that of a finished comparison, and not of a run."""
    return (Path(folder) / FILE).is_file() and not Run(Path(folder)).begun


def read_recommended(folder: os.PathLike[str] | str) -> Recommended:
    """Read which objective a comparison recommends, and find its runs.

    Raises:
        EvenhandError: the file is damaged or of an older version, or runs are gone.
    """
    path = Path(folder) / FILE
    content = read_json(path)
    try:
        objective = str(content["recommended"])
        folders = [Path(folder) / str(each["folder"]) for each in content["runs"] if each["objective"] == objective]
    except (LookupError, TypeError) as error:
        raise EvenhandError(f"{path} recommends nothing; run evenhand compare again, which keeps its runs.") from error
    runs = [Run(each) for each in folders]
    lost = [run.path for run in runs if not run.finished]
    if lost or not runs:
        seen = f"such as {lost[0]}" if lost else "all of them"
        raise EvenhandError(f"Runs of {objective} in {folder} are gone or not finished, {seen}; compare again.")
    # The test set must not choose, so validation does; without one, the first seed is as good as any.
    return Recommended(
        objective, tuple(sorted(runs, key=lambda run: -(run.summary.selected.val_balanced_accuracy or 0)))
    )
