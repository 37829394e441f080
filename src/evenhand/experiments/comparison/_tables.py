"""The rows of a comparison: scores per objective, and recall per class."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.core.text import some
from evenhand.experiments.comparison._load import TestResult, TestSet
from evenhand.experiments.comparison._tuning import Pick
from evenhand.metrics.registry import METRICS
from evenhand.runs.comparison_schemas import PRIMARY, SCORES, ClassRow, ObjectiveRow
from evenhand.runs.run import Run
from evenhand.statistics.paired import ROUNDING


def objective_rows(
    family: Pick,
    grouped: Mapping[str, Mapping[int, Run]],
    results: Mapping[str, Sequence[TestResult]],
    test_set: TestSet,
) -> list[ObjectiveRow]:
    """Return one row per setting of an objective; only the picked one has test scores."""
    rows = [family.row(setting, grouped[setting]) for setting in family.validation]
    own = results[family.picked]
    shown = [name for name in SCORES if name in METRICS or any(each.groups.few for each in own)]
    known = {name: [score for each in own if (score := each.scores[name]) is not None] for name in shown}
    recall = _mean_recalls(own)
    worst = int(np.nanargmin(recall))
    scores = {
        "scores": {name: float(np.mean(values)) for name, values in known.items() if values},
        "balanced_accuracy_spread": float(np.std(known[PRIMARY], ddof=1)) if len(own) > 1 else None,
        "worst_class": test_set.class_names[worst],
        "worst_recall": float(recall[worst]),
    }
    return [row.model_copy(update=scores) if row.picked else row for row in rows]


def class_rows(test_set: TestSet, results: Mapping[str, Sequence[TestResult]], baseline: str) -> list[ClassRow]:
    """Return one row per class, the one with most training images first."""
    recalls = {name: _mean_recalls(own) for name, own in results.items()}
    first = results[baseline][0]
    support = np.bincount(test_set.targets, minlength=len(test_set.class_names))
    rows = []
    for k in np.argsort(-first.train_counts, kind="stable").tolist():
        recall = {name: float(own[k]) if support[k] else None for name, own in recalls.items()}
        start = recall[baseline]
        difference = {name: _difference(value, start) for name, value in recall.items() if name != baseline}
        rows.append(
            ClassRow(
                name=test_set.class_names[k],
                group=first.groups.of(k),
                train_count=int(first.train_counts[k]),
                test_count=int(support[k]),
                recall=recall,
                difference=difference,
                rose=[name for name, value in difference.items() if value is not None and value > 0],
                fell=[name for name, value in difference.items() if value is not None and value < 0],
            )
        )
    return rows


def _difference(recall: float | None, baseline: float | None) -> float | None:
    if recall is None or baseline is None:
        return None
    # The same recalls, added in another order, differ by rounding.
    return 0.0 if abs(recall - baseline) <= ROUNDING else recall - baseline


def _mean_recalls(results: Sequence[TestResult]) -> NDArray[np.float64]:
    recalls: NDArray[np.float64] = np.mean([each.recall for each in results], axis=0)
    return recalls


def class_notes(test_set: TestSet, results: Mapping[str, Sequence[TestResult]]) -> list[str]:
    """Return notes about classes without test images, and about training counts that differ."""
    notes = []
    support = np.bincount(test_set.targets, minlength=len(test_set.class_names))
    absent = [test_set.class_names[k] for k in np.flatnonzero(support == 0)]
    if absent:
        notes.append(f"Without a test image, and so in no mean: {some(absent)}.")
    own = next(iter(results.values()))
    if not all(np.array_equal(each.train_counts, own[0].train_counts) for each in own):
        notes.append("Training counts differ between seeds; those shown, and their groups, are of the first seed.")
    return notes
