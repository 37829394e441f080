"""The schemas of a comparison: what was measured of each objective and class, and what may be claimed."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)

from evenhand.core.text import clipped
from evenhand.metrics.registry import METRICS
from evenhand.statistics.image_sampling import ImageError

LARGEST = 2**25
"""Bytes of a file of a comparison."""

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
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class ComparisonModel(BaseModel):
    """The content of a file: text is never parsed as a number, and unknown and derived values are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class EarlierDecision(ComparisonModel):
    """What an earlier analysis of the same comparison decided about a difference."""

    seeds: int = Field(ge=1)
    outcome: Outcome


class Difference(ComparisonModel):
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


class ObjectiveRow(ComparisonModel):
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


class ClassRow(ComparisonModel):
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


class ComparedRun(ComparisonModel):
    """One run of a comparison."""

    objective: str
    seed: Seed
    folder: Path
    """In the file relative to the folder of the comparison."""
    picked: bool = True
    test: Scores | None = None
    """None where it was not picked."""


class CostRow(ComparisonModel):
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


class CostComparison(ComparisonModel):
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


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a file as part of a sentence, with its place."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return clipped(f"{where}{': ' * bool(where)}{first['msg'].lower()}").rstrip(".")
