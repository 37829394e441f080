"""Tables of the planned studies, from the records of finished runs in docs/results/data."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import study as study_tool

from evenhand.experiments.comparison.verdict import in_points
from evenhand.statistics.paired import paired_difference

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PUBLISHED = {
    "cifar10": {"ce": "70.4 to 72.0", "balanced-softmax": "77.5", "ldam+drw": "77.0 to 77.8"},
    "cifar100": {"ce": "37.7 to 39.9", "balanced-softmax": "43.0", "ldam+drw": "41.3 to 42.5"},
}
"""Top-1 accuracy in percent at ratio 100, ResNet-32; the sources are named on the page."""
NONE = "No run is finished yet."


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


def reference_words() -> str:
    """Return the first of the published numbers and ours in a sentence."""
    parts, seeds = [], set()
    for name, title in (("ce", "`ce`"), ("balanced-softmax", "balanced softmax")):
        runs = [each["summary"] for each in records("reference-cifar10") if each["summary"]["objective"] == name]
        seeds.add(len(runs))
        accuracy = mean(each["accuracy"] for each in runs)
        parts.append(f"{title} {100 * accuracy:.1f}% (published: {PUBLISHED['cifar10'][name]})")
    count = " or ".join(f"{each} seed{'s' * (each > 1)}" for each in sorted(seeds))
    return f"CIFAR-10 at ratio 100, ResNet-32, {count}, last epoch: {', '.join(parts)}"


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


def study(*blocks: str, without: tuple[str, ...] = ()) -> str:
    """Return the mean balanced accuracy of each data set and objective of some blocks, but for some losses."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in (record for block in blocks for record in records(block)):
        summary = each["summary"]
        if summary["objective"].split(":")[0] in without:
            continue
        imbalance = "" if summary["imbalance"] in (None, "none") else f" {summary['imbalance']}"
        found[f"{summary['source']}{imbalance}"][summary["objective"]].append(each)
    objectives = list(dict.fromkeys(name for runs in found.values() for name in sorted(runs)))
    rows = [["data", *(f"`{name}`" for name in objectives), "seeds"]]
    for data, runs in sorted(found.items()):
        cells = [_spread_and_count(runs[name], max(map(len, runs.values()))) for name in objectives]
        seeds = sorted({run["summary"]["seed"] for each in runs.values() for run in each})
        rows.append([data, *cells, _seeds(seeds)])
    return table(rows) if found else NONE


def _spread_and_count(runs: list[dict[str, Any]], most: int) -> str:
    """Return mean and deviation, and the number of runs where other objectives have more."""
    if not runs:
        return ""
    shown = spread([run["summary"]["balanced_accuracy"] for run in runs])
    return shown if len(runs) == most else f"{shown} ({len(runs)} of {most})"


def _seeds(seeds: list[int]) -> str:
    whole = seeds == list(range(seeds[0], seeds[-1] + 1)) and len(seeds) > 2
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))


def differences(baseline: str, *blocks: str) -> str:
    """Return the differences of the objectives of some blocks to one of them, over the seeds that both have."""
    found: dict[tuple[str, str], dict[str, dict[int, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
    for each in (record for block in blocks for record in records(block)):
        summary = each["summary"]
        found[summary["source"], summary["imbalance"]][summary["objective"]][summary["seed"]] = summary
    heading = ["balanced accuracy", "rare third", "ahead"]
    rows = [["data", "objective", *(f"{name}, against `{baseline}`" for name in heading[:2]), heading[2], "seeds"]]
    for (source, imbalance), runs in sorted(found.items()):
        for name in (name for name in sorted(runs) if name != baseline):
            seeds = sorted(runs[name].keys() & runs[baseline].keys())
            if not seeds:
                continue
            pairs = [(runs[name][seed], runs[baseline][seed]) for seed in seeds]
            own = [(a["balanced_accuracy"], b["balanced_accuracy"]) for a, b in pairs]
            rare = [(_rare_recall(a), _rare_recall(b)) for a, b in pairs]
            cells = [_difference(own), _difference(rare), f"{sum(a > b for a, b in own)} of {len(own)}"]
            rows.append([f"{source} {imbalance}", f"`{name}`", *cells, _seeds(seeds)])
    return table(rows) if len(rows) > 1 else NONE


def fresh_seeds(objective: str, baseline: str, block: str) -> str:
    """Return how an objective differs from a baseline over the seeds of a block that both have, in words."""
    runs: dict[str, dict[int, float]] = defaultdict(dict)
    for each in records(block):
        runs[each["summary"]["objective"]][each["summary"]["seed"]] = each["summary"]["balanced_accuracy"]
    seeds = sorted(runs[objective].keys() & runs[baseline].keys())
    gains = [runs[objective][seed] - runs[baseline][seed] for seed in seeds]
    if not seeds:
        return "no other seed was run yet"
    ahead = f"ahead in {sum(gain > 0 for gain in gains)} of {len(gains)}"
    return f"with seeds {_seeds(seeds)} by {in_points(mean(gains), None, None)} points so far ({ahead})"


def _rare_recall(summary: dict[str, Any]) -> float:
    """Return the mean recall of the third of the classes with the fewest training images."""
    counts, recalls = summary["per_class"]["train_count"], summary["per_class"]["recall"]
    rarest = sorted(range(len(counts)), key=lambda label: (counts[label], -label))[: max(len(counts) // 3, 1)]
    return mean(recalls[label] for label in rarest)


def _difference(pairs: list[tuple[float, float]]) -> str:
    found = paired_difference([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
    return in_points(found.mean, found.low, found.high)


def networks() -> str:
    """Return what a short run of each of the paper's networks reaches on Road Marking."""
    rows = [["network", "balanced accuracy", "accuracy", "first epoch's loss", "last epoch's", "epochs", "minutes"]]
    for each in sorted(records("networks"), key=lambda record: record["name"]):
        summary, history = each["summary"], each["history"]
        rows.append(
            [
                f"`{summary['model']}`",
                spread([summary["balanced_accuracy"]]),
                spread([summary["accuracy"]]),
                f"{history['train_loss'][0]:.2f}",
                f"{history['train_loss'][-1]:.2f}",
                str(summary["epochs"]),
                f"{sum(history['seconds']) / 60:.0f}",
            ]
        )
    return table(rows) if len(rows) > 1 else NONE


def progress() -> str:
    """Return how many of the planned runs of each block are kept."""
    planned = Counter(block for block, _ in study_tool.planned(Path("runs")))
    rows = [["block of the plan", "runs kept", "runs planned"]]
    return table([*rows, *([name, str(len(records(name))), str(count)] for name, count in planned.items())])
