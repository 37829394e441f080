"""A comparison is a folder of runs with two files, as types: `comparison.json` and `looks.json`.

This module is the only reader and writer of both. It needs no torch.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_json, read_json_bytes, write_json
from evenhand.core.locks import take_lock
from evenhand.core.opening import LINK, is_regular, link_within
from evenhand.core.text import clipped
from evenhand.metrics.registry import METRICS
from evenhand.runs.filenames import COMPARISON as COMPARISON
from evenhand.runs.filenames import INTERIM_ANALYSES as INTERIM_ANALYSES
from evenhand.runs.run import Run
from evenhand.statistics.image_sampling import ImageError

LEDGER_LOCK = ".looks.lock"
LARGEST = 2**25
"""Bytes of either file."""

PRIMARY = "balanced_accuracy"
TESTED = {PRIMARY: METRICS[PRIMARY].title, "few": "few-shot recall"}
"""What is tested: balanced accuracy first, and few-shot classes where it shows a difference."""
SCORES = (*METRICS, "many", "medium", "few")
"""What is kept of each run on the test set: all metrics, and the mean recall of each shot group."""

Scores = dict[str, float | None]
"""Values by the names in `SCORES`; None: no class of that shot group has a test image."""
Outcome = Literal[
    "better",
    "better by less than the margin",
    "better on these test images only",
    "worse",
    "worse by less than the margin",
    "worse on these test images only",
    "practically equivalent",
    "not tested",
    "undecided",
]
DECIDED: tuple[Outcome, ...] = (
    "better",
    "better by less than the margin",
    "worse",
    "worse by less than the margin",
    "practically equivalent",
)
"""Outcomes to which more seeds have nothing to add."""
Certainty = Literal["shown", "undecided"]
"""Of a recommendation: it follows from tested differences, or it is the best mean so far."""
_Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class _Content(BaseModel):
    # Strict: a text that looks like a number is none. Unknown and derived values are ignored.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class EarlierDecision(_Content):
    """What an earlier analysis of the same comparison decided about a difference."""

    seeds: int = Field(ge=1)
    outcome: Outcome


class Difference(_Content):
    """One objective against the baseline in one metric; as fractions, 0.01 is one point."""

    objective: str
    baseline: str
    metric: str
    """A key of `TESTED`."""
    seeds: int = Field(ge=1)
    mean: float
    low: float | None
    """Lower end of the interval that decides, at the alpha of this test; at the level of all tests where it was not
    tested; at 95% over test images with one seed. None where nothing varies."""
    high: float | None
    level: float = Field(0.0, ge=0, le=1)
    """The alpha of this test; 0: not tested."""
    claimed: bool = False
    """Whether p is at most alpha."""
    on_these_images: bool = False
    """Whether it would be claimed if these test images were the population."""
    margin: float = Field(0.01, ge=0, le=1)
    """Smaller differences do not matter."""
    p: float | None = None
    """None where there is no test: with one seed, or where nothing varies."""
    spread: float | None = None
    """Standard deviation of the differences over seeds."""
    failed: str = ""
    """Why nothing is concluded; empty where nothing failed."""
    more_seeds: int | None = None
    """How many more seeds would probably decide; None where a hundred would not, or it is decided."""
    images: ImageError | None = None
    """The sampling error of the test images; None where it was not measured."""
    earlier: EarlierDecision | None = None
    """Where an analysis with fewer seeds decided, which stays; all numbers are those of all seeds."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def outcome(self) -> Outcome:
        """What may be claimed."""
        if self.earlier is not None:
            return self.earlier.outcome
        if self.failed or (self.level == 0 and self.p is not None):
            return "not tested"
        inside = self.low is not None and self.high is not None and -self.margin < self.low <= self.high < self.margin
        up = self.mean > 0
        if self.claimed:
            if inside:
                return "better by less than the margin" if up else "worse by less than the margin"
            return "better" if up else "worse"
        if self.level > 0 and self.p is not None and self.spread and inside:
            return "practically equivalent"
        if self.on_these_images:
            return "better on these test images only" if up else "worse on these test images only"
        return "undecided"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """The outcome as tables show it."""
        if self.failed:
            return "not tested (baseline failed)" if self.failed.startswith(f"{self.baseline} ") else "failed"
        if self.mean == 0 == self.spread:
            return "no difference seen"
        within = f" (within ±{100 * self.margin:g} pp)" if self.outcome == "practically equivalent" else ""
        when = f" (decided at {self.earlier.seeds} seeds)" if self.earlier else ""
        return f"{self.outcome}{within}{when}"

    @property
    def decided(self) -> bool:
        """Whether more seeds have nothing to add."""
        return self.outcome in DECIDED

    @property
    def shown_p(self) -> str:
        """The p-value as tables show it: empty where there was no test."""
        if self.p is None or self.level == 0 or self.failed:
            return ""
        return "<0.001" if self.p < 0.001 else f"{self.p:.3f}"


class ObjectiveRow(_Content):
    """One objective, or one setting of it: means over seeds. In the file the scores are keys of the row."""

    objective: str
    family: str = ""
    """The objective whose settings were tuned; itself where nothing was."""
    picked: bool = True
    """False: another setting had the better validation score, and the test scores of this one were not read."""
    seeds: int = Field(1, ge=1)
    val_balanced_accuracy: float | None = None
    """None without a validation set."""
    seconds_per_epoch: float
    """The median over seeds of the median over epochs."""
    scores: dict[str, float] = {}
    """On the test set, by the names in `SCORES`; without shot groups that have no test image; empty unless picked."""
    balanced_accuracy_spread: float | None = None
    """Standard deviation over seeds; None with one."""
    worst_class: str | None = None
    """The class of lowest mean recall."""
    worst_recall: float | None = None
    tried: int = 1
    """Settings of its family, of which one is picked."""
    failed: str = ""
    """Why it is not recommended: what failed in half of its seeds or more; empty where nothing did."""

    @property
    def balanced_accuracy(self) -> float | None:
        """The primary score."""
        return self.scores.get(PRIMARY)

    @model_validator(mode="before")
    @classmethod
    def _gather_scores(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "scores" in content:
            return content
        return {**content, "scores": {name: content[name] for name in SCORES if content.get(name) is not None}}

    @model_serializer(mode="wrap")
    def _spread_scores(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = dump(self)
        scores = content.pop("scores")
        return {**content, **{name: scores.get(name) for name in SCORES}}


class ClassRow(_Content):
    """One class: mean recall over seeds, and the objectives that raise or lower it against the baseline; untested."""

    name: str
    group: str
    train_count: int
    test_count: int
    recall: dict[str, float | None]
    """By objective; None for a class without a test image."""
    difference: dict[str, float | None]
    """By objective, without the baseline."""
    rose: list[str] = Field(validation_alias=AliasChoices("rose", "won"))
    """Objectives with which the recall of this class rose."""
    fell: list[str] = Field(validation_alias=AliasChoices("fell", "paid"))
    """Objectives with which it fell."""


class ComparedRun(_Content):
    """One run of a comparison."""

    objective: str
    seed: _Seed
    folder: Path
    """In the file relative to the folder of the comparison."""
    picked: bool = True
    test: Scores | None = None
    """None where it was not picked."""


class CostRow(_Content):
    """What the decisions of one objective cost per image: means over seeds."""

    objective: str
    realised: float
    """On the test images, at the class shares where the model is used."""
    spread: float | None = None
    """Standard deviation over seeds; None with one."""
    expected: float
    """By the model's probabilities."""
    most_probable: float
    """Realised by deciding for the most probable class instead."""
    difference: float | None = None
    """From the baseline; None for the baseline itself, and with one seed."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    outcome: str = ""
    """`better` is cheaper."""


class CostComparison(_Content):
    """Costs of the decisions of all objectives."""

    prior: str
    metric: str
    """What the comparison recommends by: `cost` or `balanced_accuracy`."""
    matrix: list[list[float]]
    """The cost of each true class (row) predicted as each class (column)."""
    rows: list[CostRow]
    verdict: str
    level: float | None = None
    """The alpha of all claims about costs together; 0: they are exploratory; None in files of older versions."""


class Comparison(_Content):
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
    seeds: list[_Seed] = Field(min_length=1)
    test_images: int = 0
    shot_rule: str
    runs: list[ComparedRun]
    rows: list[ObjectiveRow] = Field(validation_alias=AliasChoices("table", "rows"), serialization_alias="table")
    """One per objective and per setting that was not picked."""
    differences: list[Difference]
    per_class: list[ClassRow] = []
    """Sorted by training count, largest first."""
    failures: list[str] = []
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

    @classmethod
    def read(cls, path: os.PathLike[str] | str) -> "Comparison":
        """Read a comparison from its folder, its `comparison.json`, or a file with that content.

        Raises:
            EvenhandError: the file is missing or damaged.
        """
        file = Path(path) if Path(path).is_file() else comparison_file(path)
        content = read_json_bytes(file, LARGEST, within=None if file == Path(path) else file.parent)
        try:
            found = cls.model_validate_json(content)
        except ValidationError as error:
            raise EvenhandError(f"Cannot read {file}: {_first(error)}; compare the runs again.") from error
        runs = [run.model_copy(update={"folder": _run_folder(file, run.folder)}) for run in found.runs]
        return found.model_copy(update={"runs": runs})

    def write(self, folder: os.PathLike[str] | str) -> Path:
        """Write `comparison.json`; return its path."""
        write_json(Path(folder) / COMPARISON, self.to_json(folder), within=Path(folder))
        return Path(folder) / COMPARISON

    def to_json(self, folder: os.PathLike[str] | str | None = None) -> dict[str, Any]:
        """Return the content of `comparison.json`: plain numbers, text, lists and dictionaries, without NaN.

        Args:
            folder: write the folders of runs relative to this one.
        """
        content = self.model_dump(mode="json", by_alias=True)
        for entry, run in zip(content["runs"], self.runs, strict=True):
            entry["folder"] = Path(run.folder if folder is None else os.path.relpath(run.folder, folder)).as_posix()
        return content


class InterimAnalysis(_Content):
    """One analysis of a comparison that may be continued with more seeds: its alpha, and what it found."""

    seeds: int = Field(ge=1)
    level: float = Field(ge=0, le=1)
    """The alpha of all its tests together."""
    margin: float = Field(ge=0, le=1)
    picked: list[str]
    """The objectives that were compared, with the settings that were picked for them."""
    differences: list[Difference]
    exploratory: bool = False
    """Made after the 5% had been spent: it claims nothing."""
    costs: str = ""
    """Which costs were tested too, with half of the alpha; empty: none."""


@contextlib.contextmanager
def locked_ledger(folder: Path) -> Iterator[None]:
    """Hold the lock of the interim analyses of a folder, from reading what was spent to writing what is."""
    lock = take_lock(folder / LEDGER_LOCK, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()  # the file stays: another process may wait for it


def read_ledger(folder: Path) -> dict[str, list[InterimAnalysis]]:
    """Read all interim analyses in a folder, by comparison; they share one 5%."""
    path = folder / INTERIM_ANALYSES
    families = read_json(path, LARGEST, within=folder) if os.path.lexists(path) else {}
    return {family: read_interim_analyses(folder, family) for family in families}


def read_interim_analyses(folder: Path, family: str) -> list[InterimAnalysis]:
    """Read the interim analyses of one comparison in a folder; none where there is no file.

    Args:
        folder: of the comparison.
        family: which comparison: a folder may hold several.

    Raises:
        EvenhandError: the file cannot be read.
    """
    path = folder / INTERIM_ANALYSES
    if not os.path.lexists(path):
        return []
    try:
        content = json.dumps(read_json(path, LARGEST, within=folder).get(family, []))
        return TypeAdapter(list[InterimAnalysis]).validate_json(content)
    except (EvenhandError, ValidationError) as error:
        why = _first(error) if isinstance(error, ValidationError) else reason(error)
        raise EvenhandError(
            f"Cannot read {path} ({why.removeprefix(f'Cannot read {path}: ')}): the alpha spent so far is unknown; "
            "restore the file, or remove it and take further results as exploratory."
        ) from error


def add_interim_analysis(folder: Path, family: str, analysis: InterimAnalysis) -> None:
    """Add an interim analysis to the file."""
    path = folder / INTERIM_ANALYSES
    content = read_json(path, LARGEST, within=folder) if os.path.lexists(path) else {}
    added = {**content, family: [*content.get(family, []), analysis.model_dump(mode="json")]}
    write_json(path, added, within=folder)


def comparison_file(path: os.PathLike[str] | str) -> Path:
    """Return the `comparison.json` of a folder; the file itself stays as it is."""
    return Path(path) if Path(path).name == COMPARISON else Path(path) / COMPARISON


def is_comparison(path: os.PathLike[str] | str) -> bool:
    """Whether a path is a `comparison.json`, or a folder with one that is not a run itself."""
    return Path(path).name == COMPARISON or (
        is_regular(Path(path) / COMPARISON, within=Path(path)) and not Run(Path(path)).begun
    )


@dataclass(frozen=True)
class Recommended:
    """What a comparison recommends."""

    objective: str
    runs: tuple[Run, ...]
    """One per seed, the best on validation first."""


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
        objective, tuple(sorted(runs, key=lambda run: -(run.summary.selected.val_balanced_accuracy or 0)))
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


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return clipped(f"{where}{': ' * bool(where)}{first['msg'].lower()}").rstrip(".")
