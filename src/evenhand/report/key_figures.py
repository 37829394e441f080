"""Key figures out of the files of runs and comparisons, which may be half written, damaged, or made by strangers.

What can be shown is returned as plain text and finite numbers; what is not there is None; a file that cannot be read is
an `EvenhandError` of one sentence.
"""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from evenhand.core.errors import EvenhandError
from evenhand.runs.history import read_history

LARGEST = {"config.yaml": 2**16, "history.csv": 2**24, "summary.json": 2**26, "comparison.json": 2**26}
"""Bytes: YAML is read slowly, and the summary of 1,000 classes has about 10 million."""
LONGEST_TEXT = 300

Figures = dict[str, Any]


def config_figures(path: Path) -> Figures:
    """Return what a run was asked for in its `config.yaml`; one of another version will do."""
    _refuse_large(path)
    try:
        # Not by the faster loader in C, which deep nesting brings down with the whole process.
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict) or "objective" not in content:
        raise EvenhandError(f"{path.name} is no config of a run: it names no objective.")
    data = _section(content, "data")
    source = _text(data.get("source"))
    return {
        "source": PurePath(source).name if source and "/" in source else source,
        "imbalance": _text(data.get("imbalance")),
        "objective": _text(content["objective"]),
        "model": _text(_section(content, "model").get("name")),
        "seed": _whole(content.get("seed")),
        "epochs": _whole(content.get("epochs")),
    }


def history_figures(path: Path) -> Figures:
    """Return how far a run is by its `history.csv`."""
    rows = _rows(path)
    last = rows[-1] if rows else {}
    return {
        "epochs_done": len(rows),
        "val_balanced_accuracy": _number(last.get("val_balanced_accuracy")),
        "seconds": _number(last.get("seconds")),
    }


def summary_figures(path: Path) -> Figures:
    """Return how good a run is by its `summary.json`, and what it says of the config."""
    content = _json(path)
    worst = _section(content, "worst_class")
    told = {key: _text(content.get(key)) for key in ("source", "imbalance", "objective", "model")}
    return {key: value for key, value in told.items() if value is not None} | {
        "balanced_accuracy": _number(content.get("balanced_accuracy")),
        "interval": _interval(content.get("balanced_accuracy_interval")),
        "few": _number(_section(_section(content, "groups"), "few").get("recall")),
        "worst_recall": _number(worst.get("recall")),
        "worst_class": _text(worst.get("name")),
    }


def comparison_figures(path: Path) -> Figures:
    """Return what a `comparison.json` says of its objectives, the best first, and its last verdict."""
    content = _json(path)
    seeds, verdicts = content.get("seeds"), _list(content, "verdicts")
    rows = [row for row in _list(content, "table") if isinstance(row, dict)]
    return {
        **{key: _text(content.get(key)) for key in ("source", "imbalance", "model")},
        "seeds": len(seeds) if isinstance(seeds, list) else None,
        "balanced_accuracy": _best_first(rows, "balanced_accuracy"),
        "few": _best_first(rows, "few"),
        "verdict": _text(verdicts[-1]) if verdicts else None,
    }


def failure_reason(path: Path) -> str:
    """Return why a run of a grid failed."""
    try:
        return _text(_json(path).get("reason")) or "It failed, and why was not written down."
    except EvenhandError as error:
        return f"It failed, but why cannot be read: {error}"


def read_curves(path: Path) -> dict[str, list[float | None]]:
    r"""Return the columns of a `history.csv`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.report.key_figures import read_curves
        >>> path = Path(tempfile.mkdtemp()) / "history.csv"
        >>> _ = path.write_text("epoch,train_loss\n1,2.5\n2,nan\n")
        >>> read_curves(path)
        {'epoch': [1.0, 2.0], 'train_loss': [2.5, None]}
    """
    rows = _rows(path)
    return {key: [_number(row.get(key)) for row in rows] for key in (rows[0] if rows else ())}


def read_classes(path: Path) -> list[Figures]:
    """Return the classes of a `summary.json` with their recalls, the largest first."""
    rows = [row for row in _list(_json(path), "per_class") if isinstance(row, dict)]
    classes = [
        {
            "name": _text(row.get("name")) or "?",
            "group": _text(row.get("group")),
            "train_count": _whole(row.get("train_count")),
            "recall": _number(row.get("recall")),
        }
        for row in rows
    ]
    return sorted(classes, key=lambda row: -(row["train_count"] or 0))


def read_measures(path: Path) -> list[Figures]:
    """Return the measures of a `summary.json` by name: their value, its kind and its interval."""
    content = _json(path)
    groups = {name: _section(_section(content, "groups"), name) for name in ("many", "medium", "few")}
    worst, selected = _section(content, "worst_class"), _section(content, "selected")

    def measure(name: str, value: object, kind: str, *, interval: object = None, note: object = None) -> Figures:
        return {
            "name": name,
            "value": _number(value),
            "kind": kind,
            "interval": _interval(interval),
            "note": _text(note),
        }

    def headline(name: str, key: str) -> Figures:
        return measure(name, content.get(key), "share", interval=content.get(f"{key}_interval"))

    return [
        headline("balanced accuracy", "balanced_accuracy"),
        headline("accuracy", "accuracy"),
        *(
            measure(f"{name}-shot recall", group.get("recall"), "share", interval=group.get("interval"))
            for name, group in groups.items()
        ),
        measure("worst class", worst.get("recall"), "share", note=worst.get("name")),
        measure("macro F1", content.get("macro_f1"), "share"),
        measure("calibration error", content.get("ece"), "share"),
        measure("NLL", content.get("nll"), "number"),
        measure("selected epoch", selected.get("epoch"), "count"),
        measure("seconds an epoch", content.get("seconds_per_epoch"), "number"),
        measure("test images", content.get("images"), "count"),
    ]


def _best_first(rows: list[Figures], key: str) -> tuple[tuple[str, float], ...]:
    known = ((_text(row.get("objective")) or "?", _number(row.get(key))) for row in rows)
    pairs = [(name, value) for name, value in known if value is not None]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _rows(path: Path) -> list[dict[str, float]]:
    _refuse_large(path)
    try:
        return read_history(path)
    except EvenhandError as error:
        raise EvenhandError(str(error).replace(f"{path.parent}{os.sep}", "")) from error


def _json(path: Path) -> Figures:
    _refuse_large(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise EvenhandError(f"Cannot read {path.name}: expected names and values, got {type(content).__name__}.")
    return content


def _refuse_large(path: Path) -> None:
    most = LARGEST.get(path.name, 2**20)
    try:
        size = path.lstat().st_size
    except OSError as error:
        raise _unreadable(path, error) from error
    if size > most:
        raise EvenhandError(f"{path.name} has {size:,} bytes, and more than {most:,} are not read.")


def _unreadable(path: Path, error: Exception) -> EvenhandError:
    reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
    return EvenhandError(f"Cannot read {path.name}: {(reason or type(error).__name__)[:200].rstrip('.')}.")


def _section(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = content.get(key)
    return section if isinstance(section, dict) else {}


def _list(content: Mapping[str, Any], key: str) -> list[Any]:
    value = content.get(key)
    return value if isinstance(value, list) else []


def _text(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value)
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


def _interval(value: object) -> tuple[float, float] | None:
    ends = [_number(end) for end in value] if isinstance(value, list) and len(value) == 2 else []
    return (ends[0], ends[1]) if ends and ends[0] is not None and ends[1] is not None else None
