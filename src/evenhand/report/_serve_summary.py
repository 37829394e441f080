"""Values from the files of runs and comparisons, which may be incomplete, damaged or untrusted.

Values are plain text and finite numbers; missing ones are None. A file that cannot be read raises an `EvenhandError` of
one sentence.
"""

import math
from pathlib import Path, PurePath
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json
from evenhand.core.text import visible
from evenhand.metrics.registry import METRICS
from evenhand.runs.checksums import check_size
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import PRIMARY
from evenhand.runs.config import Config
from evenhand.runs.filenames import HISTORY, PREDICTIONS
from evenhand.runs.lenient import read_leniently
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow, Summary

LARGEST = 2**25
"""Bytes of a comparison."""
LONGEST_TEXT = 300

Figures = dict[str, Any]


def run_figures(run: Run, *, with_predictions: bool = True) -> tuple[Figures, tuple[str, ...]]:
    """Return what can be read of a run, and one sentence per file that cannot.

    Args:
        run: any.
        with_predictions: read its predictions, and compare the summary with them; they can be large.
    """
    read, problems = read_leniently(run, "config", "history", "splits", *["predictions"] * with_predictions)
    # If there are predictions, `run` keeps them; those that cannot be read are not tried again.
    summary, more = read_leniently(run, "summary" if "predictions" in read else "stored_summary")
    problems += more
    if not with_predictions and run.has(PREDICTIONS):
        try:
            check_size(run.path / PREDICTIONS, within=run.path)
        except EvenhandError as error:
            problems += (f"Cannot read {PREDICTIONS}: {error}",)
    read["summary"] = summary.popitem()[1] if summary else None
    figures: Figures = {}
    if "config" in read:
        config: Config = read["config"]
        source = config.data.source
        figures |= {
            "source": _text(PurePath(source).name if "/" in source else source),
            "imbalance": config.data.imbalance,
            "objective": _text(config.objective),
            "model": _text(config.model.name),
            "seed": config.seed if config.seed < 2**53 else None,  # exact in JavaScript
            "epochs": config.epochs,
        }
    if run.has(HISTORY) and "history" in read:
        last: EpochRow = read["history"][-1] if read["history"] else {}
        figures |= {"epochs_done": len(read["history"])}
        figures |= {key: _number(last.get(key)) for key in ("val_balanced_accuracy", "seconds")}
    figures |= {} if read["summary"] is None else _summary_figures(read["summary"])
    return figures, problems


def _summary_figures(summary: Summary) -> Figures:
    few = summary.groups.get("few")
    return {
        **{key: _text(getattr(summary, key)) for key in ("source", "imbalance", "objective", "model")},
        "balanced_accuracy": summary.balanced_accuracy,
        "interval": summary.balanced_accuracy_interval,
        "few": None if few is None else few.recall,
        "worst_recall": summary.worst_class.recall,
        "worst_class": _text(summary.worst_class.name),
    }


def comparison_figures(path: Path) -> Figures:
    """Return what a `comparison.json` says of its objectives, the best first, and its last verdict."""
    try:
        comparison = Comparison.read(path)
    except EvenhandError as error:
        raise EvenhandError(str(error).replace(str(path), path.name)) from error
    return {
        **{key: _text(getattr(comparison, key)) for key in ("source", "imbalance", "model")},
        "seeds": len(comparison.seeds),
        "balanced_accuracy": _best_first(comparison, PRIMARY),
        "few": _best_first(comparison, "few"),
        "verdict": _text(comparison.verdicts[-1]),
    }


def failure_reason(path: Path) -> str:
    """Return why a run of a grid failed."""
    try:
        return _text(read_json(path, LARGEST).get("reason")) or "Failed; no reason was recorded."
    except EvenhandError as error:
        return f"Failed; the reason cannot be read: {str(error).replace(str(path), path.name)}"


def curves(rows: list[EpochRow]) -> dict[str, list[float | None]]:
    """Return the columns of a history.

    Example:
        >>> from evenhand.report._serve_summary import curves
        >>> curves([{"epoch": 1.0, "train_loss": 2.5}, {"epoch": 2.0, "train_loss": float("nan")}])
        {'epoch': [1.0, 2.0], 'train_loss': [2.5, None]}
    """
    return {key: [_number(row.get(key)) for row in rows] for key in (rows[0] if rows else ())}


def classes(summary: Summary) -> list[Figures]:
    """Return the classes with their recalls, the largest first."""
    rows = [
        {"name": _text(row.name) or "?", **{key: getattr(row, key) for key in ("group", "train_count", "recall")}}
        for row in summary.per_class
    ]
    return sorted(rows, key=lambda row: -row["train_count"])


def metric_rows(summary: Summary) -> list[Figures]:
    """Return the metrics of a run: title, value, its kind, and as texts the value and its interval or a note."""

    def row(title: str, value: float | None, kind: str, text: str, note: str | None = "") -> Figures:
        return {"title": title, "value": value, "kind": kind, "text": "" if value is None else text, "note": note}

    def share(title: str, value: float | None, note: str | None) -> Figures:
        return row(title, value, "share", f"{value or 0:.1%}", note)

    rows = []
    for name, metric in METRICS.items():
        if "serve" in metric.shown:
            value, interval = summary.metrics[name], _interval(getattr(summary, f"{name}_interval", None))
            rows.append(row(metric.title, value, metric.kind, metric.format(value) + metric.unit, interval))
    for name in ("many", "medium", "few"):
        group = summary.groups.get(name)
        recall, ends = (None, None) if group is None else (group.recall, group.interval)
        rows.append(share(f"{name}-shot recall", recall, _interval(ends)))
    worst, epoch, seconds = summary.worst_class, summary.selected.epoch, summary.seconds_per_epoch
    return [
        *rows,
        share("worst class", worst.recall, _text(worst.name)),
        row("selected epoch", epoch, "count", str(epoch)),
        row("seconds per epoch", seconds, "number", f"{seconds:.3g}"),
        row("test images", summary.images, "count", f"{summary.images:,}"),
    ]


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.1%} to {ends[1]:.1%}"


def _best_first(comparison: Comparison, name: str) -> tuple[tuple[str, float], ...]:
    known = ((_text(row.objective) or "?", row.scores.get(name)) for row in comparison.rows)
    return tuple(sorted(((row, value) for row, value in known if value is not None), key=lambda pair: -pair[1]))


def _text(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = visible(str(value))
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None
