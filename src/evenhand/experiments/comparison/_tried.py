"""What was tried and not picked, beside what was."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evenhand.experiments.comparison._comparison import Comparison
from evenhand.experiments.comparison._tables import ObjectiveRow, validated_row
from evenhand.experiments.comparison._tuning import Pick
from evenhand.runs.run import Run


def with_tried(comparison: Comparison, picks: Sequence[Pick], grouped: Mapping[str, Mapping[int, Run]]) -> Comparison:
    """Return a comparison of picked settings with what was tried beside them.

    Args:
        comparison: of what was picked.
        picks: the objectives that were tuned.
        grouped: for each of their settings its runs by seed at the time of picking.
    """
    by_picked = {each.picked: each for each in picks}
    rows: list[ObjectiveRow] = []
    for row in comparison.rows:
        if row.objective not in by_picked:
            rows.append(row)
            continue
        family = by_picked[row.objective]
        tried = [validated_row(family, setting, grouped[setting]) for setting in family.validation]
        rows += [_with_test(each, row) if each.picked else each for each in tried]
    left = [setting for each in picks for setting in each.validation if setting != each.picked]
    return replace(
        comparison,
        rows=rows,
        notes=[*(each.told() for each in picks), *comparison.notes],
        runs=[*comparison.runs, *((name, seed, run.path) for name in left for seed, run in grouped[name].items())],
    )


def _with_test(validated: ObjectiveRow, row: ObjectiveRow) -> ObjectiveRow:
    """Return a row of all seeds with what was seen in validation when it was picked, as for its rivals."""
    score = validated.val_balanced_accuracy
    return replace(row, family=validated.family, tried=validated.tried, val_balanced_accuracy=score)
