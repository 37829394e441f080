"""The tables of a page, as plain cells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.experiments.comparison.verdict import in_points
from evenhand.metrics.classification import Confusion, class_f1, class_precision, class_recall
from evenhand.metrics.per_image import correct_per_image
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.registry import METRICS, Metric
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.calibration import calibration_parts, mean_calibration_error
from evenhand.report.figures.style import MOST_NAMED, from_most_to_fewest
from evenhand.report.figures.tables import Runs, first_of, joint_confusion, recall_intervals
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import TESTED
from evenhand.runs.schemas import Summary

MOST_PAIRS = 15
"""Confusions listed where there are many classes."""


@dataclass(frozen=True)
class TableCell:
    """One cell: its text, a small text next to it, and the value to sort by."""

    text: str
    small: str = ""
    value: float | str = ""
    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Column:
    """The heading of a column; the first of several in a group opens it."""

    name: str
    group: str = ""
    span: int = 0
    """Columns of the group that this one opens; 0: it opens none."""
    title: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows; the first cell of a row names it."""

    columns: list[Column]
    rows: list[list[TableCell]]


def objective_table(data: ReportData) -> Table:
    """Return one row per objective of a comparison, or per run; columns without any value are left out."""
    listed = [metric for metric in METRICS.values() if "report" in metric.shown]
    # As in the terminal; what it does not show comes last.
    metrics = sorted(listed, key=lambda metric: "compare" not in metric.shown)
    early = sum("compare" in metric.shown for metric in metrics)
    shown = [Column(metric.title) for metric in metrics]
    shots = [Column(name) for name in ("many", "medium", "few")]
    columns = [Column("objective", kind="text"), shown[0], *shots, *shown[1:early]]
    columns += [Column("s/epoch"), Column("validation"), Column("worst class", kind="text"), *shown[early:]]
    if data.comparison is not None:
        rows = _compared_rows(data.comparison, metrics, early)
    else:
        rows = [_run_row(name, summary, metrics, early) for name, summary in data.summaries().items()]
    filled = [place for place in range(len(columns)) if any(row[place].text for row in rows)]
    return Table([columns[place] for place in filled], [[row[place] for place in filled] for row in rows])


def _compared_rows(comparison: Comparison, metrics: Sequence[Metric], early: int) -> list[list[TableCell]]:
    tuned = not all(row.picked for row in comparison.rows)
    rows = []
    for row in comparison.rows:
        spread = "" if row.balanced_accuracy_spread is None else f"± {100 * row.balanced_accuracy_spread:.1f}"
        balanced = _percent(row.balanced_accuracy, spread) if row.picked else TableCell("not picked", kind="quiet")
        tried = f"1 of {row.tried} tried" if row.picked and row.tried > 1 else ""
        rows.append(
            [
                TableCell(row.objective),
                balanced,
                *(_percent(row.scores.get(name)) for name in ("many", "medium", "few")),
                *(_metric(metric, row.scores.get(metric.name)) for metric in metrics[1:early]),
                _seconds(row.seconds_per_epoch),
                _percent(row.val_balanced_accuracy, tried) if tuned else TableCell(""),
                _worst(row.worst_class, row.worst_recall),
                *(_metric(metric, row.scores.get(metric.name)) for metric in metrics[early:]),
            ]
        )
    return rows


def _run_row(name: str, summary: Summary, metrics: Sequence[Metric], early: int) -> list[TableCell]:
    groups = [summary.groups.get(group) for group in ("many", "medium", "few")]
    first, *others = [
        _metric(metric, summary.metrics[metric.name], getattr(summary, f"{metric.name}_interval", None))
        for metric in metrics
    ]
    return [
        TableCell(name),
        first,
        *(_percent(None if group is None else group.recall) for group in groups),
        *others[: early - 1],
        _seconds(summary.seconds_per_epoch),
        TableCell(""),
        _worst(summary.worst_class.name, summary.worst_class.recall),
        *others[early - 1 :],
    ]


def _seconds(seconds: float) -> TableCell:
    return TableCell(f"{seconds:.{2 if seconds < 10 else 0}f}", value=seconds)


def difference_table(comparison: Comparison) -> Table:
    """Return the tested differences."""
    with_p = any(each.p is not None for each in comparison.differences)
    columns = [Column(f"objective (vs. {comparison.baseline})"), Column("metric", kind="text")]
    columns += [Column(name) for name in ("difference (pp)", "95% CI", *(("p", "adjusted alpha") if with_p else ()))]
    rows = []
    for each in comparison.differences:
        size, _, interval = in_points(each.mean, each.low, each.high).partition(" ")
        row = [TableCell(each.objective), TableCell(TESTED.get(each.metric, each.metric), kind="text")]
        row += [TableCell(size), TableCell(interval)]
        if with_p:
            row += [TableCell(each.shown_p), TableCell(f"{each.level:.2%}" if each.level else "")]
        rows.append([*row, TableCell(each.words, kind="text")])
    return Table([*columns, Column("outcome", kind="text")], rows)


def class_table(runs: Runs, baseline: str | None) -> Table:
    """Return the recalls of each class, the one with most training images first.

    Args:
        runs: the predictions of each objective, one per seed, all of the same classes.
        baseline: the objective to show differences from; None: show none.
    """
    first = next(iter(runs.values()))[0]
    groups = find_shot_groups(first.train_counts)
    tested = np.bincount(correct_per_image(next(iter(runs.values()))).targets, minlength=first.num_classes)
    recalls = {name: class_recall(joint_confusion(seeds)) for name, seeds in runs.items()}
    ends = {name: recall_intervals(seeds) for name, seeds in runs.items()}
    others = [] if baseline is None else [name for name in runs if name != baseline]
    ranked = first.num_classes > MOST_NAMED  # figures label these classes by rank
    seeds = max(map(len, runs.values()))
    columns = [Column("class", kind="text"), *([Column("rank")] if ranked else [])]
    columns += [Column("group", kind="text"), Column("training images")]
    columns += [Column("test images" if seeds == 1 else "test images (all seeds)")]
    columns += _group("recall (%)", list(runs)) + _group(f"difference from {baseline} (pp)", others)
    rows = []
    for rank, k in enumerate(from_most_to_fewest(first.train_counts).tolist(), start=1):
        name, count, group = first.class_names[k], int(first.train_counts[k]), groups.of(k)
        row = [TableCell(name, value=name), *([TableCell(str(rank), value=rank)] if ranked else [])]
        row += [TableCell(group, value=("few", "medium", "many").index(group), kind=group)]
        row += [TableCell(f"{count:,}", value=count), TableCell(f"{tested[k]:,}", value=int(tested[k]))]
        for each in runs:
            low, high = (float(end[k]) for end in ends[each])
            row.append(_percent(recalls[each][k], _interval(None if np.isnan(low) else (low, high))))
        row += [_difference(recalls[each][k] - recalls[str(baseline)][k]) for each in others]
        rows.append(row)
    return Table(columns, rows)


def precision_table(runs: Runs) -> Table:
    """Return precision and F1 of each class, the one with most training images first.

    A class that is never predicted has no precision.
    """
    first = next(iter(runs.values()))[0]
    confusions = [joint_confusion(seeds) for seeds in runs.values()]
    precisions = [
        np.where(each.sum(axis=0) > 0, class_precision(each), np.where(each.sum(axis=1) > 0, -1.0, np.nan))
        for each in confusions
    ]
    scores = [class_f1(each) for each in confusions]
    columns = [Column("class", kind="text"), *_group("precision (%)", list(runs)), *_group("F1 (%)", list(runs))]
    rows = []
    for k in from_most_to_fewest(first.train_counts).tolist():
        cells = [TableCell("-") if each[k] < 0 else _percent(each[k]) for each in precisions]
        name = first.class_names[k]
        rows.append([TableCell(name, value=name), *cells, *(_percent(each[k]) for each in scores)])
    return Table(columns, rows)


def calibration_table(runs: Runs) -> Table:
    """Return the ECE of each objective over all test images and over those of each shot group, means over seeds."""
    parts = calibration_parts(first_of(runs))
    columns = [Column("objective", kind="text"), Column("accuracy (%)"), Column("mean confidence (%)")]
    columns += [Column("ECE (%)" if name == "all" else f"ECE, {name}-shot (%)") for name, _ in parts]
    rows = []
    for name, seeds in runs.items():
        means = [np.mean([values(each).mean() for each in seeds]) for values in (_correct, _confidences)]
        errors = [mean_calibration_error(seeds, classes) for _, classes in parts]
        rows.append([TableCell(name), *(_percent(float(each)) for each in means), *(_percent(each) for each in errors)])
    return Table(columns, rows)


def _correct(predictions: Predictions) -> NDArray[np.bool_]:
    return predictions.correct()


def _confidences(predictions: Predictions) -> NDArray[np.float64]:
    return predictions.confidences()


def confusion_table(seeds: Sequence[Predictions], most: int | None = None) -> Table:
    """Return a confusion matrix: true classes as rows, in percent of the row, summed over seeds.

    Args:
        seeds: predictions of one objective, one per seed.
        most: show only so many classes, those with the largest confusions; None: all.
    """
    first = seeds[0]
    confusion = joint_confusion(seeds)
    order = from_most_to_fewest(first.train_counts).tolist()
    if most is not None:
        involved = dict.fromkeys(k for pair in largest_confusions(confusion, len(order)) for k in pair)
        order = [k for k in order if k in list(involved)[:most]]
    names, totals = first.class_names, confusion.sum(axis=1)
    rows = []
    for k in order:
        row = [TableCell(names[k])]
        for j in order:
            count, total = int(confusion[k, j]), int(totals[k])
            share = 100 * count / total if total else 0.0
            verb = "correct" if k == j else f"predicted as {names[j]}"
            of = f"{total:,}{' predictions' if len(seeds) > 1 else ''}"
            found = f"{verb}: {count:,} of {of} ({share:.1f}%)" if total else "has no test image"
            kind = "none" if not total else "dark" if share > 55 else ""
            text = "" if not count else f"{share:.0f}" if share >= 0.5 else "·"
            row.append(TableCell(text, value=round(share, 1), kind=kind, title=f"{names[k]} {found}"))
        rows.append(row)
    return Table([Column("true / predicted"), *(Column(names[k]) for k in order)], rows)


def largest_confusions(confusion: Confusion, most: int) -> list[tuple[int, int]]:
    """Return the pairs of true and predicted class with the largest fractions of the true class."""
    shares = confusion / np.maximum(confusion.sum(axis=1), 1)[:, None]
    np.fill_diagonal(shares, 0)
    largest = np.argsort(-shares, axis=None, kind="stable")[:most]
    pairs = zip(*(axis.tolist() for axis in np.unravel_index(largest, shares.shape)), strict=True)
    return [(k, j) for k, j in pairs if shares[k, j] > 0]


def pair_table(seeds: Sequence[Predictions]) -> Table:
    """Return the most frequent confusions, as a fraction of the true class."""
    names = seeds[0].class_names
    confusion = joint_confusion(seeds)
    totals = confusion.sum(axis=1)
    rows = [
        [
            TableCell(names[k]),
            TableCell(names[j], kind="text"),
            _percent(confusion[k, j] / totals[k]),
            TableCell(f"{confusion[k, j]:,} of {totals[k]:,}"),
        ]
        for k, j in largest_confusions(confusion, MOST_PAIRS)
    ]
    what = "test images" if len(seeds) == 1 else "predictions"
    return Table([Column("true class"), Column("predicted as", kind="text"), Column("%"), Column(what)], rows)


def _group(title: str, names: Sequence[str]) -> list[Column]:
    return [
        Column(name, group=title, span=len(names) if place == 0 else 0, title=f"{title}, {name}")
        for place, name in enumerate(names)
    ]


def _difference(share: float) -> TableCell:
    if np.isnan(share):
        return TableCell("")
    points = round(100 * float(share), 1) + 0.0
    return TableCell(f"{points:+.1f}" if points else "0.0", value=points, kind="loss" if points < 0 else "")


def _percent(share: float | None, small: str = "") -> TableCell:
    if share is None or np.isnan(share):
        return TableCell("")
    return TableCell(f"{100 * share:.1f}", small=small, value=round(100 * float(share), 4))


def _metric(metric: Metric, value: float | None, ends: Sequence[float] | None = None) -> TableCell:
    return TableCell("") if value is None else TableCell(metric.format(value), small=_interval(ends), value=value)


def _interval(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f"[{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"


def _worst(name: str | None, recall: float | None) -> TableCell:
    if name is None or recall is None:
        return TableCell("")
    return TableCell(name, small=f"{100 * recall:.1f}%", kind="text")
