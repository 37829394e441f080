"""The tables of a comparison: figures by objective, and recalls by class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.text import some
from evenhand.experiments.comparison._load import TestFigures, TestSet
from evenhand.experiments.comparison._tuning import Pick
from evenhand.runs.run import Run
from evenhand.statistics.paired import ROUNDING

SCORES = ("balanced_accuracy", "many", "medium", "few", "macro_f1", "ece", "accuracy")


@dataclass(frozen=True)
class ObjectiveRow:
    """One objective, or one setting of it: means over seeds, as shares of 0 to 1."""

    objective: str
    family: str
    """What the settings have in common among which one is picked; the objective itself where nothing is tuned."""
    picked: bool
    """False: another setting did better in validation, and the test figures of this one were not read."""
    seeds: int
    val_balanced_accuracy: float | None
    """None where nothing was validated."""
    seconds_per_epoch: float
    """The median over seeds of the median over epochs."""
    balanced_accuracy: float | None = None
    balanced_accuracy_spread: float | None = None
    """Standard deviation over seeds; None with one."""
    many: float | None = None
    medium: float | None = None
    few: float | None = None
    worst_class: str | None = None
    """The class of lowest mean recall."""
    worst_recall: float | None = None
    macro_f1: float | None = None
    ece: float | None = None
    accuracy: float | None = None
    tried: int = 1
    """Settings of its family, of which one is picked."""


@dataclass(frozen=True)
class ClassRow:
    """One class: mean recalls over seeds, and who won and who paid against the baseline. Nothing here is tested."""

    name: str
    group: str
    train_count: int
    test_count: int
    recall: dict[str, float | None]
    """By objective; None for a class without a test image."""
    difference: dict[str, float | None]
    """By objective, without the baseline."""
    won: list[str]
    paid: list[str]


def figure_rows(
    family: Pick,
    grouped: Mapping[str, Mapping[int, Run]],
    figures: Mapping[str, Sequence[TestFigures]],
    test_set: TestSet,
) -> list[ObjectiveRow]:
    """Return a row for each setting of an objective; only the picked one has test figures."""
    rows = [validated_row(family, setting, grouped[setting]) for setting in family.validation]
    return [replace(row, **_measures(figures[row.objective], test_set)) if row.picked else row for row in rows]


def validated_row(family: Pick, setting: str, runs: Mapping[int, Run]) -> ObjectiveRow:
    """Return the row of one setting, without anything of the test."""
    return ObjectiveRow(
        objective=setting,
        family=family.family,
        picked=setting == family.picked,
        seeds=len(runs),
        val_balanced_accuracy=family.validation[setting],
        seconds_per_epoch=float(np.median([run.summary.seconds_per_epoch for run in runs.values()])),
        tried=len(family.validation),
    )


def _measures(figures: Sequence[TestFigures], test_set: TestSet) -> dict[str, Any]:
    recall = _mean_recalls(figures)
    worst = int(np.nanargmin(recall))
    means = {name: _mean([getattr(each, name) for each in figures]) for name in SCORES}
    values = [each.balanced_accuracy for each in figures]
    return {
        **means,
        "balanced_accuracy_spread": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "worst_class": test_set.class_names[worst],
        "worst_recall": float(recall[worst]),
    }


def scores_of(figures: TestFigures) -> dict[str, float | None]:
    """Return by name what one run reached on the test set, shares of 0 to 1."""
    return {name: getattr(figures, name) for name in SCORES}


def class_rows(test_set: TestSet, figures: Mapping[str, Sequence[TestFigures]], baseline: str) -> list[ClassRow]:
    """Return a row for each class, the one with most training images first."""
    recalls = {name: _mean_recalls(own) for name, own in figures.items()}
    first = figures[baseline][0]
    support = np.bincount(test_set.targets, minlength=len(test_set.class_names))
    rows = []
    for k in np.argsort(-first.train_counts, kind="stable").tolist():
        recall = {name: float(own[k]) if support[k] else None for name, own in recalls.items()}
        start = recall[baseline]
        difference = {name: _gain(value, start) for name, value in recall.items() if name != baseline}
        rows.append(
            ClassRow(
                name=test_set.class_names[k],
                group=first.groups.of(k),
                train_count=int(first.train_counts[k]),
                test_count=int(support[k]),
                recall=recall,
                difference=difference,
                won=[name for name, value in difference.items() if value is not None and value > 0],
                paid=[name for name, value in difference.items() if value is not None and value < 0],
            )
        )
    return rows


def _gain(ours: float | None, baseline: float | None) -> float | None:
    if ours is None or baseline is None:
        return None
    # The same recalls, added in another order, differ by rounding, which is neither won nor paid.
    return 0.0 if abs(ours - baseline) <= ROUNDING else ours - baseline


def _mean_recalls(figures: Sequence[TestFigures]) -> NDArray[np.float64]:
    recalls: NDArray[np.float64] = np.mean([each.recall for each in figures], axis=0)
    return recalls


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def class_notes(test_set: TestSet, figures: Mapping[str, Sequence[TestFigures]]) -> list[str]:
    """Say what has to be known about the classes to read the tables rightly."""
    notes = []
    support = np.bincount(test_set.targets, minlength=len(test_set.class_names))
    absent = [test_set.class_names[k] for k in np.flatnonzero(support == 0)]
    if absent:
        notes.append(f"Without a test image, and so in no mean: {some(absent)}.")
    own = next(iter(figures.values()))
    if not all(np.array_equal(each.train_counts, own[0].train_counts) for each in own):
        notes.append("Training counts differ between seeds; those shown, and their groups, are of the first seed.")
    return notes
