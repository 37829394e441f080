"""Tables of docs/results/unsure.md, from the kept results of docs/results/unsure.py."""

import json
from statistics import fmean
from typing import Any

from study_tables import RESULTS, table

SHOTS = ("many", "medium", "few")
Split = dict[str, Any]


def splits(name: str) -> list[Split]:
    """Return the results of each split."""
    found: list[Split] = json.loads((RESULTS / "data" / "unsure" / f"{name}.json").read_text("utf-8"))
    return found


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def coverage(name: str) -> str:
    """Return the coverage of each shot group over all splits."""
    lines = [["classes", "coverage of their images", "lowest and highest split", "classes in a set"]]
    for shot in SHOTS:
        own = [each["groups"][shot] for each in splits(name)]
        found = [each["coverage"] for each in own]
        ends = f"{_percent(min(found))} to {_percent(max(found))}"
        size = fmean(each["mean_size"] for each in own)
        lines.append([f"{shot}-shot ({own[0]['classes']})", _percent(fmean(found)), ends, f"{size:.2f}"])
    return table(lines)


def sizes(name: str) -> str:
    """Return how large sets are, and which classes are covered least."""
    own = splits(name)
    size, unsure, full = (fmean(each[key] for each in own) for key in ("mean_size", "unsure", "full"))
    classes: dict[str, list[Any]] = {}
    for each in own:
        for row in each["classes"]:
            classes.setdefault(row[0], []).append(row)
    means = sorted((fmean(row[4] for row in rows), rows) for rows in classes.values())
    below = [
        f"{rows[0][0].replace('_', ' ')} ({_percent(mean)} of {sum(row[3] for row in rows)} test images, with "
        f"{rows[0][2]} calibration images)"
        for mean, rows in means
        if mean < own[0]["coverage"]
    ]
    listed = ", ".join(below) or "none"
    return (
        f"A set holds {size:.2f} classes in the mean, {_percent(unsure)} of sets hold more than one class (unsure), "
        f"{_percent(full)} hold all. Classes below {_percent(own[0]['coverage'])}, over all splits together: {listed}."
    )


def accuracy(name: str) -> str:
    """Return the balanced accuracy with calibration images set aside."""
    return _percent(fmean(each["balanced_accuracy"] for each in splits(name)))


def answers(name: str) -> str:
    """Return how many images are answered with a precision, and how precisely."""
    lines = [
        ["`--min-precision`", "unsure", "precision of the answers", "lowest split", "groups answered, splits of 10"]
    ]
    for precision in ("0.8", "0.9", "0.95"):
        own = [each["answers"][precision] for each in splits(name)]
        found = [each["precision"] for each in own if each["precision"] is not None]
        counts = [
            f"{shot}-shot {sum(each['groups'].get(shot, {}).get('threshold') is not None for each in own)}"
            for shot in SHOTS
        ]
        lines.append(
            [
                precision,
                _percent(fmean(each["unsure"] for each in own)),
                _percent(fmean(found)),
                _percent(min(found)),
                ", ".join(counts),
            ]
        )
    return table(lines)


def lowest_precision(name: str) -> str:
    """Return how often the answers of a shot group were less precise on test images than was asked for."""
    below = shown = 0
    for each in splits(name):
        for precision, found in each["answers"].items():
            for group in found["groups"].values():
                if group["precision"] is not None and group["threshold"] is not None:
                    shown += 1
                    below += group["precision"] < float(precision)
    return f"{below} of {shown}"
