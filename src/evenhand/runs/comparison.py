"""A comparison is a folder of runs with a `comparison.json`; this module is its only reader and writer."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, Field, ValidationError

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json_bytes, write_json
from evenhand.core.opening import LINK, is_regular, link_within
from evenhand.core.text import clipped
from evenhand.runs.comparison_schemas import (
    LARGEST,
    Certainty,
    ClassRow,
    ComparedRun,
    ComparisonModel,
    CostComparison,
    Difference,
    ObjectiveRow,
    Seed,
    first_problem,
)
from evenhand.runs.filenames import COMPARISON, EXPLORATORY
from evenhand.runs.run import Run


class Comparison(ComparisonModel):
    """Runs of several objectives and seeds, compared.

    Example:
        >>> import tempfile
        >>> from evenhand.runs.comparison import Comparison
        >>> comparison = Comparison(
        ...     source="digits", imbalance="exp:20", model="resnet8", baseline="ce", objectives=["ce"], seeds=[0],
        ...     shot_rule="", runs=[], rows=[], differences=[], verdicts=["No winner."], method="", notes=[],
        ... )
        >>> folder = tempfile.mkdtemp()
        >>> comparison.write(folder).name, Comparison.read(folder) == comparison
        ('comparison.json', True)
    """

    source: str
    imbalance: str
    model: str
    baseline: str
    objectives: list[str] = Field(min_length=1)
    """Those with test scores, in the order of the runs."""
    seeds: list[Seed] = Field(min_length=1)
    test_images: int = 0
    shot_rule: str
    runs: list[ComparedRun]
    rows: list[ObjectiveRow] = Field(validation_alias=AliasChoices("table", "rows"), serialization_alias="table")
    """One per objective and per setting that was not picked."""
    differences: list[Difference]
    per_class: list[ClassRow] = Field(default_factory=list)
    """Sorted by training count, largest first."""
    failures: list[str] = Field(default_factory=list)
    """Runs that failed, by objective, and why; shown first."""
    verdicts: list[str] = Field(min_length=1)
    """A sentence per difference that is known, one for those that are undecided, and last the conclusion."""
    recommended: str | None = None
    """The objective that the last verdict names; `predict`, `export` and `load` use its run that is best on validation.
    """
    certainty: Certainty = "undecided"
    """How sure the recommendation is."""
    ensemble: float | None = None
    """Balanced accuracy on the test set of its runs' mean probabilities; None where seeds have test sets of their own.
    """
    method: str
    """How differences were tested."""
    notes: list[str]
    costs: CostComparison | None = None
    """Where costs were given."""

    @property
    def exploratory(self) -> bool:
        """Whether it claims nothing: it has a single seed, or its alpha was spent before."""
        return len(self.seeds) < 2 or self.verdicts[-1].startswith("Exploratory")

    @classmethod
    def read(cls, path: os.PathLike[str] | str) -> "Comparison":
        """Read a comparison from its folder, its `comparison.json`, or a file with that content.

        Raises:
            EvenhandError: the file is missing or damaged.
        """
        file = Path(path) if Path(path).is_file() else comparison_file(path)
        if not os.path.lexists(file):
            why = "it is a run" if Run(Path(path)).begun else f"it has no {COMPARISON}"
            why = why if Path(path).is_dir() else "there is no such folder"
            raise EvenhandError(f"{path} is no comparison: {why}; give a folder that evenhand compare wrote.")
        content = read_json_bytes(file, LARGEST, within=None if file == Path(path) else file.parent)
        try:
            found = cls.model_validate_json(content)
        except ValidationError as error:
            raise EvenhandError(f"Cannot read {file}: {first_problem(error)}; compare the runs again.") from error
        runs = [run.model_copy(update={"folder": _run_folder(file, run.folder)}) for run in found.runs]
        return found.model_copy(update={"runs": runs})

    def write(self, folder: os.PathLike[str] | str, name: str = COMPARISON) -> Path:
        """Write `comparison.json`, or a file with another name; return its path."""
        write_json(Path(folder) / name, self.to_json(folder), within=Path(folder))
        return Path(folder) / name

    def to_json(self, folder: os.PathLike[str] | str | None = None) -> dict[str, Any]:
        """Return the content of `comparison.json`: plain numbers, text, lists and dictionaries, without NaN.

        Args:
            folder: write the folders of runs relative to this one.
        """
        content = self.model_dump(mode="json", by_alias=True)
        for entry, run in zip(content["runs"], self.runs, strict=True):
            entry["folder"] = Path(run.folder if folder is None else os.path.relpath(run.folder, folder)).as_posix()
        return content


def comparison_file(path: os.PathLike[str] | str) -> Path:
    """Return the `comparison.json` of a folder; such a file, or an exploratory one, stays as it is."""
    return Path(path) if Path(path).name in (COMPARISON, EXPLORATORY) else Path(path) / COMPARISON


def is_comparison(path: os.PathLike[str] | str) -> bool:
    """Return whether a path is a `comparison.json`, an exploratory one, or a folder with one that is no run itself."""
    return Path(path).name in (COMPARISON, EXPLORATORY) or (
        is_regular(Path(path) / COMPARISON, within=Path(path)) and not Run(Path(path)).begun
    )


@dataclass(frozen=True)
class Recommended:
    """What a comparison recommends."""

    objective: str
    runs: tuple[Run, ...]
    """One per seed, the best on validation first."""
    certainty: Certainty = "undecided"
    """How sure the recommendation is."""


def read_recommended(folder: os.PathLike[str] | str) -> Recommended:
    """Read which objective a comparison recommends, and find its runs.

    Raises:
        EvenhandError: the file is damaged or of an older version, or runs are missing.
    """
    comparison = Comparison.read(folder)
    objective = comparison.recommended
    if objective is None:
        raise EvenhandError(
            f"{comparison_file(folder)} recommends nothing; run evenhand compare again, which keeps its runs."
        )
    runs = [Run(run.folder) for run in comparison.runs if run.objective == objective]
    lost = [run.path for run in runs if not run.finished]
    if lost or not runs:
        seen = f"such as {lost[0]}" if lost else "all of them"
        raise EvenhandError(f"Runs of {objective} in {folder} are missing or not finished, {seen}; compare again.")
    # The test set must not choose, so validation does; without one, the first seed is as good as any.
    return Recommended(
        objective,
        tuple(sorted(runs, key=lambda run: -(run.summary.selected.val_balanced_accuracy or 0))),
        comparison.certainty,
    )


def _run_folder(file: Path, folder: Path) -> Path:
    """Return the folder of a run that a comparison names; refuse one outside the folder of the comparison."""
    inside = file.parent / folder
    if folder.is_absolute() or ".." in folder.parts or not folder.parts:
        why = f"its run {clipped(str(folder))!r} is not a folder inside {file.parent}"
    elif (link := link_within(inside, file.parent)) is not None:
        why = f"{link}: {LINK}"
    else:
        return inside
    raise EvenhandError(f"Cannot use {file}: {why}; compare the runs again.")
