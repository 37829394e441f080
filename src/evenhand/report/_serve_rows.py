"""The rows of the tables of `evenhand serve`, as texts."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

from evenhand.report._listing import Compared, RunState

RUN_COLUMNS = (
    "run",
    "source",
    "imbalance",
    "objective",
    "network",
    "seed",
    "epochs",
    "balanced accuracy",
    "few-shot",
    "worst class",
    "state",
    "changed",
)
COMPARISON_COLUMNS = (
    "comparison",
    "source",
    "imbalance",
    "network",
    "seeds",
    "balanced accuracy",
    "few-shot",
    "verdict",
    "changed",
)
MOST_RANKED = 3
"""Objectives that a row of a comparison names."""


def run_row(run: RunState) -> dict[str, Any]:
    """Return a run as a row of texts in the order of `RUN_COLUMNS`."""
    finished = run.state == "finished"
    done = run.epochs_done if run.entry.has_history else 0
    epochs = "" if run.epochs is None else f"{'?' if done is None else done} / {run.epochs}"
    validated = "" if finished or run.val_balanced_accuracy is None else f"validation {run.val_balanced_accuracy:.1%}"
    interval = "" if run.interval is None else f"{run.interval[0]:.1%} to {run.interval[1]:.1%}"
    cells = [
        _name(run),
        *map(_cell, (run.source, run.imbalance, run.objective, run.model, run.seed)),
        _cell(epochs, done, validated),
        _share(run.balanced_accuracy, interval),
        _share(run.few),
        _cell("-", 1.0) if run.worst_recall == 1 else _share(run.worst_recall, run.worst_class or ""),
        _cell(run.state, note=_state_note(run)),
        _moment(run.changed),
    ]
    return _row(run, cells) | {"state": run.state}


def comparison_row(compared: Compared) -> dict[str, Any]:
    """Return a comparison as a row of texts in the order of `COMPARISON_COLUMNS`."""
    cells = [
        _name(compared),
        *map(_cell, (compared.source, compared.imbalance, compared.model, compared.seeds)),
        _ranking(compared.balanced_accuracy),
        _ranking(compared.few),
        _cell(compared.verdict),
        _moment(compared.changed),
    ]
    return _row(compared, cells) | {"state": "finished"}


def _row(shown: RunState | Compared, cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    entry = shown.entry
    stamp = repr([(name, info.st_mtime_ns, info.st_size) for name, info in sorted(entry.files.items())])
    return {
        "id": entry.id,
        "stamp": hashlib.sha256(stamp.encode()).hexdigest()[:16],
        "report": f"/reports/{entry.id}" if entry.has_report else None,
        "try": f"/try/{entry.id}" if entry.has_model else None,
        "cells": cells,
        "problems": shown.problems,
    }


def _cell(text: str | int | None, sort: float | str | None = None, note: str = "") -> dict[str, Any]:
    """Return a text, the value to sort by if it is not the text, and a note in small print."""
    return {"text": "" if text is None else str(text), "sort": text if sort is None else sort, "note": note}


def _name(shown: RunState | Compared) -> dict[str, Any]:
    above, _, name = shown.entry.name.rpartition("/")
    return _cell(name, shown.entry.name, f"in {above}" if above else "")


def _moment(seconds: float) -> dict[str, Any]:
    day, _, minute = when(seconds).partition(" ")
    return _cell(day, seconds, minute)


def _share(value: float | None, note: str = "") -> dict[str, Any]:
    return _cell(None) if value is None else _cell(f"{value:.1%}", value, note)


def _ranking(pairs: Sequence[tuple[str, float]]) -> dict[str, Any]:
    text = ", ".join(f"{name} {value:.1%}" for name, value in pairs[:MOST_RANKED])
    more = f"and {len(pairs) - MOST_RANKED} more" if len(pairs) > MOST_RANKED else ""
    return _cell(text, pairs[0][1], more) if pairs else _cell(None)


def _state_note(run: RunState) -> str:
    if run.state == "training" and run.epochs is not None and (run.epochs_done or 0) >= run.epochs:
        return "evaluating"
    if run.state != "stopped":
        return ""
    seconds = time.time() - run.changed
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    name, length = next((unit for unit in units if seconds >= 2 * unit[1]), units[-1])
    number = max(int(seconds // length), 1)
    return f"no change for {number} {name}{'s' * (number != 1)}"


def when(seconds: float) -> str:
    """Return a time, in seconds since 1970, as local date and time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # out of range
        return ""
