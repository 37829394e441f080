"""Tables of the planned studies, from the records of finished runs in docs/results/data."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import study as study_tool

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PUBLISHED = {
    "cifar10": {"ce": "70.4 to 72.0", "balanced-softmax": "77.5", "ldam+drw": "77.0 to 77.8"},
    "cifar100": {"ce": "37.7 to 39.9", "balanced-softmax": "43.0", "ldam+drw": "41.3 to 42.5"},
}
"""Top-1 accuracy in percent at ratio 100, ResNet-32; the sources are named on the page."""


def records(block: str) -> list[dict[str, Any]]:
    """Return the records of a block of the plan."""
    return [json.loads(path.read_text("utf-8")) for path in sorted((RESULTS / "data" / "runs" / block).glob("*.json"))]


def table(rows: Iterable[Iterable[str]]) -> str:
    """Return Markdown of rows, the first of which is the head."""
    lines = [list(row) for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], ["---"] * len(lines[0]), *lines[1:]])


def spread(values: list[float]) -> str:
    """Return the mean in percent, with the standard deviation if there are several."""
    shown = f"{100 * mean(values):.1f}"
    return f"{shown} ± {100 * stdev(values):.1f}" if len(values) > 1 else shown


def references() -> str:
    """Return our ResNet-32 next to the published numbers."""
    rows = [["data, objective", "published", "last epoch", "best epoch on test", "few-shot classes, last", "seeds"]]
    for source, published in PUBLISHED.items():
        found = defaultdict(list)
        for each in records(f"reference-{source}"):
            found[each["summary"]["objective"]].append(each)
        for objective, runs in sorted(found.items()):
            rows.append(
                [
                    f"{source}, `{objective}`",
                    published.get(objective, ""),
                    spread([run["summary"]["accuracy"] for run in runs]),
                    spread([max(run["history"]["test_accuracy"]) for run in runs]),
                    spread([run["summary"]["groups"]["few"]["recall"] for run in runs]),
                    ", ".join(sorted(str(run["summary"]["seed"]) for run in runs)),
                ]
            )
    return table(rows)


def study(block: str) -> str:
    """Return the mean balanced accuracy of each data set and objective of a block."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in records(block):
        summary = each["summary"]
        imbalance = "" if summary["imbalance"] in (None, "none") else f" {summary['imbalance']}"
        found[f"{summary['source']}{imbalance}"][summary["objective"]].append(each)
    objectives = list(dict.fromkeys(name for runs in found.values() for name in sorted(runs)))
    rows = [["data", *(f"`{name}`" for name in objectives), "seeds"]]
    for data, runs in sorted(found.items()):
        cells = [
            spread([run["summary"]["balanced_accuracy"] for run in runs[name]]) if runs[name] else ""
            for name in objectives
        ]
        seeds = sorted({run["summary"]["seed"] for each in runs.values() for run in each})
        rows.append([data, *cells, ", ".join(map(str, seeds))])
    return table(rows)


def progress() -> str:
    """Return how many of the planned runs of each block are kept."""
    planned = Counter(block for block, _ in study_tool.planned(Path("runs")))
    rows = [["block of the plan", "runs kept", "runs planned"]]
    return table([*rows, *([name, str(len(records(name))), str(count)] for name, count in planned.items())])
