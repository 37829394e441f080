"""Key figures out of the files of runs and comparisons, which may be half written, damaged, or made by strangers.

What can be shown is returned as plain text and finite numbers; what is not there is None; a file that cannot be read is
an `EvenhandError` of one sentence.
"""

import math
from pathlib import Path, PurePath
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json
from evenhand.core.text import visible
from evenhand.runs.comparison import PRIMARY, Comparison
from evenhand.runs.config import Config
from evenhand.runs.filenames import HISTORY
from evenhand.runs.run import Run, read_leniently
from evenhand.runs.schemas import EpochRow, Summary

LARGEST = 2**25
"""Bytes of a comparison."""
LONGEST_TEXT = 300

Figures = dict[str, Any]


def run_figures(run: Run) -> tuple[Figures, tuple[str, ...]]:
    """Return what can be read of a run, and a sentence for each file that cannot."""
    read, problems = read_leniently(run, "config", "history", "splits", "predictions", "summary")
    figures: Figures = {}
    if "config" in read:
        figures |= _config_figures(read["config"])
    if run.has(HISTORY) and "history" in read:
        figures |= _history_figures(read["history"])
    if "summary" in read:
        figures |= _summary_figures(read["summary"])
    return figures, problems


def _config_figures(config: Config) -> Figures:
    source = config.data.source
    return {
        "source": _text(PurePath(source).name if "/" in source else source),
        "imbalance": config.data.imbalance,
        "objective": _text(config.objective),
        "model": _text(config.model.name),
        "seed": _whole(config.seed),
        "epochs": config.epochs,
    }


def _history_figures(rows: list[EpochRow]) -> Figures:
    last = rows[-1] if rows else {}
    return {
        "epochs_done": len(rows),
        "val_balanced_accuracy": _number(last.get("val_balanced_accuracy")),
        "seconds": _number(last.get("seconds")),
    }


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
        return _text(_json(path).get("reason")) or "It failed, and why was not written down."
    except EvenhandError as error:
        return f"It failed, but why cannot be read: {error}"


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


def measures(summary: Summary) -> list[Figures]:
    """Return the measures by name: their value, its kind and its interval."""

    def measure(name: str, value: float | None, kind: str, *, interval: object = None, note: object = None) -> Figures:
        return {"name": name, "value": value, "kind": kind, "interval": interval, "note": _text(note)}

    def group(name: str) -> Figures:
        found = summary.groups.get(name)
        recall, interval = (None, None) if found is None else (found.recall, found.interval)
        return measure(f"{name}-shot recall", recall, "share", interval=interval)

    return [
        measure("balanced accuracy", summary.balanced_accuracy, "share", interval=summary.balanced_accuracy_interval),
        measure("accuracy", summary.accuracy, "share", interval=summary.accuracy_interval),
        *map(group, ("many", "medium", "few")),
        measure("worst class", summary.worst_class.recall, "share", note=summary.worst_class.name),
        measure("macro F1", summary.macro_f1, "share"),
        measure("calibration error", summary.ece, "share"),
        measure("NLL", summary.nll, "number"),
        measure("selected epoch", summary.selected.epoch, "count"),
        measure("seconds an epoch", summary.seconds_per_epoch, "number"),
        measure("test images", summary.images, "count"),
    ]


def _best_first(comparison: Comparison, name: str) -> tuple[tuple[str, float], ...]:
    known = ((_text(row.objective) or "?", row.scores.get(name)) for row in comparison.rows)
    return tuple(sorted(((row, value) for row, value in known if value is not None), key=lambda pair: -pair[1]))


def _json(path: Path) -> Figures:
    try:
        return read_json(path, LARGEST)
    except EvenhandError as error:
        raise EvenhandError(str(error).replace(str(path), path.name)) from error


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


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None
