"""The tables of a page, as plain cells."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from evenhand.experiments.comparison.verdict import in_points
from evenhand.metrics.classification import class_f1, class_precision, class_recall
from evenhand.metrics.per_image import correct_per_image
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.registry import METRICS, Metric
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.style import MOST_NAMED, from_most_to_fewest
from evenhand.report.figures.tables import Runs, joint_confusion, recall_intervals
from evenhand.runs.comparison import TESTED, Comparison
from evenhand.runs.schemas import Summary

MOST_PAIRS = 15
"""Confusions listed where a matrix is too large for numbers."""


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
    metrics = [metric for metric in METRICS.values() if "report" in metric.shown]
    shown = [Column(metric.title) for metric in metrics]
    shots = [Column(name) for name in ("many", "medium", "few")]
    columns = [Column("objective", kind="text"), shown[0], *shots, *shown[1:]]
    columns += [Column("worst class", kind="text"), Column("validation"), Column("s/epoch")]
    if data.comparison is not None:
        rows = _compared_rows(data.comparison, metrics)
    else:
        rows = [_run_row(name, summary, metrics) for name, summary in data.summaries().items()]
    filled = [place for place in range(len(columns)) if any(row[place].text for row in rows)]
    return Table([columns[place] for place in filled], [[row[place] for place in filled] for row in rows])


def _compared_rows(comparison: Comparison, metrics: Sequence[Metric]) -> list[list[TableCell]]:
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
                *(_metric(metric, row.scores.get(metric.name)) for metric in metrics[1:]),
                _worst(row.worst_class, row.worst_recall),
                _percent(row.val_balanced_accuracy, tried) if tuned else TableCell(""),
                TableCell(f"{row.seconds_per_epoch:.3g}", value=row.seconds_per_epoch),
            ]
        )
    return rows


def _run_row(name: str, summary: Summary, metrics: Sequence[Metric]) -> list[TableCell]:
    groups = [summary.groups.get(group) for group in ("many", "medium", "few")]
    first, *others = [
        _metric(metric, summary.metrics[metric.name], getattr(summary, f"{metric.name}_interval", None))
        for metric in metrics
    ]
    return [
        TableCell(name),
        first,
        *(_percent(None if group is None else group.recall) for group in groups),
        *others,
        _worst(summary.worst_class.name, summary.worst_class.recall),
        TableCell(""),
        TableCell(f"{summary.seconds_per_epoch:.3g}", value=summary.seconds_per_epoch),
    ]


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
    """Return one row per class, the one with most training images first.

    Args:
        runs: the predictions of each objective, one per seed, all of the same classes.
        baseline: the objective to show differences from; None: show none.
    """
    first = next(iter(runs.values()))[0]
    groups = find_shot_groups(first.train_counts)
    confusions = {name: joint_confusion(seeds) for name, seeds in runs.items()}
    support = np.bincount(correct_per_image(next(iter(runs.values()))).targets, minlength=first.num_classes)
    recalls = {name: class_recall(each) for name, each in confusions.items()}
    ends = {name: recall_intervals(seeds) for name, seeds in runs.items()}
    others = [] if baseline is None else [name for name in runs if name != baseline]
    precisions = [class_precision(each) for each in confusions.values()]
    scores = [class_f1(each) for each in confusions.values()]
    ranked = first.num_classes > MOST_NAMED  # figures label these classes by rank
    columns = [Column("class", kind="text"), *([Column("rank")] if ranked else [])]
    columns += [Column("group", kind="text"), Column("training images"), Column("test images")]
    columns += _group("recall (%)", list(runs)) + _group(f"difference from {baseline} (pp)", others)
    columns += _group("precision (%)", list(runs)) + _group("F1 (%)", list(runs))
    rows = []
    for rank, k in enumerate(from_most_to_fewest(first.train_counts).tolist(), start=1):
        name, count, tested = first.class_names[k], int(first.train_counts[k]), int(support[k])
        group = groups.of(k)
        row = [TableCell(name, value=name), *([TableCell(str(rank), value=rank)] if ranked else [])]
        row += [TableCell(group, value=("few", "medium", "many").index(group), kind=group)]
        row += [TableCell(f"{count:,}", value=count), TableCell(f"{tested:,}", value=tested)]
        for each in runs:
            low, high = (float(end[k]) for end in ends[each])
            row.append(_percent(recalls[each][k], _interval(None if np.isnan(low) else (low, high))))
        row += [_difference(recalls[each][k] - recalls[str(baseline)][k]) for each in others]
        row += [_percent(values[k]) for values in (*precisions, *scores)]
        rows.append(row)
    return Table(columns, rows)


def confusion_table(seeds: Sequence[Predictions]) -> Table:
    """Return a confusion matrix: true classes as rows, in percent of the row, summed over seeds."""
    first = seeds[0]
    order = from_most_to_fewest(first.train_counts).tolist()
    confusion = joint_confusion(seeds)
    names, totals = first.class_names, confusion.sum(axis=1)
    rows = []
    for k in order:
        row = [TableCell(names[k])]
        for j in order:
            count, total = int(confusion[k, j]), int(totals[k])
            share = 100 * count / total if total else 0.0
            verb = "correct" if k == j else f"predicted as {names[j]}"
            found = f"{verb}: {count:,} of {total:,} ({share:.1f}%)" if total else "has no test image"
            kind = "none" if not total else "dark" if share > 55 else ""
            text = "" if not count else f"{share:.0f}" if share >= 0.5 else "·"
            row.append(TableCell(text, value=round(share, 1), kind=kind, title=f"{names[k]} {found}"))
        rows.append(row)
    return Table([Column("true / predicted"), *(Column(names[k]) for k in order)], rows)


def pair_table(seeds: Sequence[Predictions]) -> Table:
    """Return the most frequent confusions, as a fraction of the actual class."""
    names = seeds[0].class_names
    confusion = joint_confusion(seeds)
    totals = confusion.sum(axis=1)
    shares = confusion / np.maximum(totals, 1)[:, None]
    np.fill_diagonal(shares, 0)
    largest = np.argsort(-shares, axis=None, kind="stable")[:MOST_PAIRS]
    rows = [
        [
            TableCell(names[k]),
            TableCell(names[j], kind="text"),
            _percent(shares[k, j]),
            TableCell(f"{confusion[k, j]:,} of {totals[k]:,}"),
        ]
        for k, j in zip(*np.unravel_index(largest, shares.shape), strict=True)
        if shares[k, j] > 0
    ]
    return Table([Column("class"), Column("predicted as", kind="text"), Column("%"), Column("images")], rows)


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
