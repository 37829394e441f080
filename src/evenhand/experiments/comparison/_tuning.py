"""Tuning: the settings of one objective compete on validation, and only the picked one is tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import parse
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import ComparedRun, ObjectiveRow
from evenhand.runs.run import Run

_Comparison = TypeVar("_Comparison", bound=Comparison)


@dataclass(frozen=True)
class Pick:
    """One objective: all its settings, and the picked one."""

    family: str
    """What its settings have in common: the objective as it was listed, or its name without settings."""
    picked: str
    validation: dict[str, float | None]
    """Of each setting: mean validation balanced accuracy over seeds; None without a validation set."""

    @property
    def tuned(self) -> bool:
        """Whether there was a choice."""
        return len(self.validation) > 1

    def note(self) -> str:
        """Return what was picked, and among how many."""
        return (
            f"{self.picked} was picked among {len(self.validation)} settings of {self.family} by validation balanced "
            "accuracy; the test results of the others were not read."
        )

    def row(self, setting: str, runs: Mapping[int, Run]) -> ObjectiveRow:
        """Return the row of one setting, without test scores."""
        return ObjectiveRow(
            objective=setting,
            family=self.family,
            picked=setting == self.picked,
            seeds=len(runs),
            val_balanced_accuracy=self.validation[setting],
            seconds_per_epoch=float(np.median([run.summary.seconds_per_epoch for run in runs.values()])),
            tried=len(self.validation),
        )


def families_of(objectives: Sequence[str]) -> dict[str, list[str]]:
    """Group objectives that differ in settings only.

    Example:
        >>> from evenhand.experiments.comparison._tuning import families_of
        >>> families_of(["ce", "cce", "cce:gamma=-2", "balanced-softmax+cce:gamma=-2"])
        {'ce': ['ce'], 'cce': ['cce', 'cce:gamma=-2'], 'balanced-softmax+cce': ['balanced-softmax+cce:gamma=-2']}
    """
    families: dict[str, list[str]] = {}
    for objective in objectives:
        families.setdefault("+".join(part.name for part in parse(objective)), []).append(objective)
    return families


def pick(
    grouped: Mapping[str, Mapping[int, Run]], families: Mapping[str, Sequence[str]], *, frozen: Sequence[str] = ()
) -> list[Pick]:
    """Pick a setting of each objective by mean validation balanced accuracy over seeds; of equal ones the first.

    Args:
        grouped: for each setting its runs by seed.
        families: for each objective its settings.
        frozen: settings that were picked before, which stay.

    Raises:
        EvenhandError: there is a choice, but runs without validation to choose by.
    """
    picks = []
    for family, settings in families.items():
        validation = {each: _mean_validation(grouped[each]) for each in settings}
        scored = {each: score for each, score in validation.items() if score is not None}
        if len(settings) > 1 and len(scored) < len(settings):
            raise EvenhandError(
                f"Cannot pick among {', '.join(settings)}: their runs have select: last and so no validation, and "
                "picking on the test set would be biased; train with --select best, or compare one of them."
            )
        before = [each for each in settings if each in frozen]
        best = max(scored, key=lambda each: scored[each]) if len(settings) > 1 else settings[0]
        picks.append(Pick(family, before[0] if before else best, validation))
    return picks


def _mean_validation(runs: Mapping[int, Run]) -> float | None:
    # Of the summary only this: a setting must not be picked by its test scores.
    reached = [run.summary.selected.val_balanced_accuracy for run in runs.values()]
    scores = [score for score in reached if score is not None]
    return sum(scores) / len(scores) if len(scores) == len(runs) else None


def with_tuned_settings(
    comparison: _Comparison, picks: Sequence[Pick], grouped: Mapping[str, Mapping[int, Run]]
) -> _Comparison:
    """Add the rows, notes and runs of tuned settings to a comparison of the picked ones.

    Args:
        comparison: of what was picked.
        picks: the objectives that were tuned.
        grouped: for each of their settings its runs by seed at the time of picking.
    """
    by_picked = {each.picked: each for each in picks}
    rows: list[ObjectiveRow] = []
    for row in comparison.rows:
        family = by_picked.get(row.objective)
        if family is None:
            rows.append(row)
            continue
        # Of the picked one: the test scores of all seeds, and validation as it was when it was picked.
        validated = {"family": family.family, "tried": len(family.validation)}
        picked = row.model_copy(update={**validated, "val_balanced_accuracy": family.validation[row.objective]})
        rows += [picked if each == row.objective else family.row(each, grouped[each]) for each in family.validation]
    left = [setting for each in picks for setting in each.validation if setting != each.picked]
    runs = [
        ComparedRun(objective=name, seed=seed, folder=run.path, picked=False)
        for name in left
        for seed, run in grouped[name].items()
    ]
    notes = [*(each.note() for each in picks), *comparison.notes]
    return comparison.model_copy(update={"rows": rows, "notes": notes, "runs": [*comparison.runs, *runs]})
