"""Looking again, honestly: the 5% are shared by all looks at a comparison, and `looks.json` remembers them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_json, write_json
from evenhand.core.text import clipped
from evenhand.experiments.comparison.verdict import Difference
from evenhand.statistics.paired import LEVEL

SHARES = {3: 0.010, 5: 0.010, 8: 0.015, 12: 0.015}
"""At so many seeds a comparison is looked at, each time with this share of the 5%. Shares that add up to 5% keep the
promise whatever the looks have in common."""
FILE = "looks.json"
ROUNDING = 1e-9


@dataclass(frozen=True)
class Look:
    """One look at a comparison: what it may claim, and what it did claim."""

    seeds: int
    level: float
    """Of all claims of this look together."""
    margin: float
    picked: tuple[str, ...]
    """The objectives that were compared, with the settings that were picked for them."""
    differences: tuple[Difference, ...]
    exploratory: bool = False
    """Made after the 5% had been spent: it shows what is there, and proves nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain numbers and text."""
        own = {"seeds": self.seeds, "level": self.level, "margin": self.margin, "picked": list(self.picked)}
        return {**own, "exploratory": self.exploratory, "differences": [each.to_json() for each in self.differences]}


def planned_looks(most_seeds: int) -> list[int]:
    """Return at how many seeds a comparison is looked at.

    Example:
        >>> from evenhand.experiments.comparison._alpha_spending import planned_looks
        >>> planned_looks(12), planned_looks(6), planned_looks(2)
        ([3, 5, 8, 12], [3, 5, 6], [2])
    """
    return [*(seeds for seeds in SHARES if seeds < most_seeds), most_seeds]


def share_of(seeds: int, looks: Sequence[Look], *, last: bool, margin: float) -> float:
    """Return the level of the next look: its share of the 5%, or all that is left of them at the last one.

    It is 0 where the 5% are spent, where a look with more seeds has been made, or where another margin was asked for:
    then the look is exploratory.
    """
    spent = [look for look in looks if not look.exploratory]
    if any(look.seeds >= seeds or look.margin != margin for look in spent):
        return 0.0
    left = LEVEL - sum(look.level for look in spent)
    if left < ROUNDING:
        return 0.0
    return left if last else min(left / 2, SHARES.get(seeds, left))  # whatever comes, something is left for the last


def settled(differences: Sequence[Difference], before: Sequence[Look]) -> list[Difference]:
    """Return the differences of a look, and for each that was decided before what was said then."""
    said: dict[tuple[str, str], Difference] = {}
    for look in before:
        for each in look.differences:
            if each.decided and not look.exploratory:
                said.setdefault((each.metric, each.objective), each)
    return [said.get((each.metric, each.objective), each) for each in differences]


def worth_more_seeds(differences: Sequence[Difference]) -> bool:
    """Whether more seeds could decide a primary question; few-shot classes are not waited for.

    They could not where only the sampling of test images stands in the way.
    """
    primary = [each for each in differences if each.metric == differences[0].metric]
    open_ = [each for each in primary if not each.decided and not each.failed]
    return any(not each.on_these_images or each.more_seeds is not None for each in open_)


def read_looks(folder: Path, family: str) -> list[Look]:
    """Read the looks at one comparison in a folder; none where there is no file.

    Args:
        folder: of the comparison.
        family: which comparison: a folder may hold several.

    Raises:
        EvenhandError: the file cannot be read.
    """
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        return [_look(each) for each in read_json(path).get(family, [])]
    except (EvenhandError, TypeError, ValueError) as error:
        raise EvenhandError(
            f"Cannot read {path} ({_why(error).removeprefix(f'Cannot read {path}: ')}); without it nobody knows how "
            "often was looked, so mend it, or remove it and take what follows as exploratory."
        ) from error


def write_look(folder: Path, family: str, look: Look) -> None:
    """Add a look to `looks.json`."""
    path = folder / FILE
    content = read_json(path) if path.is_file() else {}
    write_json(path, {**content, family: [*content.get(family, []), look.to_json()]})


class _Stored(BaseModel):
    # Strict: a text that looks like a number is none. What is derived from the rest is left alone.
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class _StoredDifference(_Stored):
    objective: str
    baseline: str
    metric: Literal["balanced_accuracy", "few"]
    seeds: int = Field(ge=1)
    mean: float
    low: float | None
    high: float | None
    level: float = Field(0.0, ge=0, le=1)
    claimed: bool = False
    on_these_images: bool = False
    margin: float = Field(0.01, ge=0, le=1)
    p: float | None = None
    spread: float | None = None
    failed: str = ""


class _StoredLook(_Stored):
    seeds: int = Field(ge=1)
    level: float = Field(ge=0, le=1)
    margin: float = Field(ge=0, le=1)
    picked: list[str]
    differences: list[_StoredDifference]
    exploratory: bool


def _look(content: object) -> Look:
    stored = _StoredLook.model_validate(content)
    differences = tuple(Difference(**each.model_dump()) for each in stored.differences)
    return Look(stored.seeds, stored.level, stored.margin, tuple(stored.picked), differences, stored.exploratory)


def _why(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return reason(error)
    first = error.errors(include_url=False, include_context=False)[0]
    return clipped(f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}")


def looks_note(looks: Sequence[Look], planned: Sequence[int]) -> str:
    """Say how often was looked, and what that cost."""
    spent = [look for look in looks if not look.exploratory]
    made = ", ".join(f"{look.seeds} seeds ({look.level:.2%})" for look in spent)
    if len(planned) == 1:
        return (
            f"Looked at once, with {made}. Whatever is added to it later is exploratory; without --seeds, seeds are "
            "added until it is decided."
        )
    text = f"Looked at with {made} of the 5%; what was decided at one of them stays."
    coming = [str(seeds) for seeds in planned if all(look.seeds < seeds for look in spent)]
    if coming and worth_more_seeds(settled(spent[-1].differences, spent[:-1])):
        return f"{text} The next look is at {coming[0]} seeds."
    return text
