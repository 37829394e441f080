"""Tables of docs/results/wrong-labels.md, from the kept results of benchmarks/wrong_labels.py."""

import json
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from study_tables import RESULTS, table

GROUPS = ("all", "many", "medium", "few")
RATES = (0.05, 0.1)
ODDS, PLAIN = "odds against the best other class (inspect --labels)", "plain confidence"
RANKINGS = {
    ODDS: "odds against the best other class (`--labels`)",
    PLAIN: "plain confidence, 1 - p",
    "relative to threshold": "p relative to the threshold of the class",
    "margin": "margin: largest other p, minus p",
    "confidence per entropy": "-log p, divided by the entropy",
    "threshold minus probability": "threshold minus p",
    "odds, uniform shares": "odds, uniform class shares",
    "plain confidence, uniform shares": "plain confidence, uniform class shares",
}
RULES = {
    "thresholds per class (inspect --labels)": "`--labels`",
    "predicted class is not the label": "predicted class differs",
}
Row = dict[str, Any]


def rows(name: str, flips: str, rate: float, seeds: Sequence[int] | None = None) -> list[Row]:
    """Return the results of one kind of flips, of some seeds (None: of all)."""
    kept = json.loads((RESULTS / "data" / "wrong-labels" / f"{name}.json").read_text("utf-8"))["rows"]
    return [
        row for row in kept if (row["flips"], row["rate"]) == (flips, rate) and (seeds is None or row["seed"] in seeds)
    ]


def _mean(own: Sequence[Row], ranking: str, group: str) -> float:
    return 100 * fmean(row["average_precision"][ranking][group] for row in own)


def _shown(own: Sequence[Row], ranking: str, group: str) -> str:
    """Return the mean average precision; `-` where no label of the group was flipped."""
    return f"{_mean(own, ranking, group):.1f}" if all(row["wrong"][group] for row in own) else "-"


def precision(name: str, flips: str) -> str:
    """Return the average precision of each ranking by shot group."""
    head = ["ranking", *(f"{rate:.0%} {group}" if group == "all" else group for rate in RATES for group in GROUPS)]
    lines = [
        [title, *(_shown(rows(name, flips, rate), key, group) for rate in RATES for group in GROUPS)]
        for key, title in RANKINGS.items()
    ]
    return table([head, *lines])


def gains() -> str:
    """Return by how much the odds find more than plain confidence, where they were chosen and where they were not."""
    lines = [["labels", "flips", "5% all", "few", "10% all", "few"]]
    for title, name, seeds in (
        ("seeds 0, 1 (chosen on these)", "photos", (0, 1)),
        ("seeds 2, 3", "photos", (2, 3)),
        ("longer tail, seeds 0, 1", "photos-thinned", None),
    ):
        for flips in ("similar", "uniform"):
            cells = []
            for rate in RATES:
                own = rows(name, flips, rate, seeds)
                cells += [f"{_mean(own, ODDS, group) - _mean(own, PLAIN, group):+.1f}" for group in ("all", "few")]
            lines.append([title, flips, *cells])
    return table(lines)


def averaged() -> str:
    """Return what a second prediction of each image adds."""
    lines = [["ranking", "runs", "flips", "5% all", "few", "10% all", "few"]]
    for key in (ODDS, PLAIN):
        for flips in ("similar", "uniform"):
            for runs, name in ((5, "photos"), (10, "photos-ten-runs")):
                own = [rows(name, flips, rate, (2, 3)) for rate in RATES]
                cells = [f"{_mean(each, key, group):.1f}" for each in own for group in ("all", "few")]
                lines.append([RANKINGS[key], str(runs), flips, *cells])
    return table(lines)


def flagged(name: str) -> str:
    """Return precision and recall of flags, and the correct labels that are flagged."""
    head = ["rule", "flips", "precision all", "many", "medium", "few", "recall all", "few"]
    lines = [[*head, "correct labels flagged, all", "few"]]
    for flips in ("uniform", "similar"):
        for rate in RATES:
            own = rows(name, flips, rate)
            for key, title in RULES.items():
                total = {
                    group: {part: sum(row["flagged"][key][group][part] for row in own) for part in _PARTS}
                    for group in GROUPS
                }
                correct = {group: sum(row["images"][group] - row["wrong"][group] for row in own) for group in GROUPS}
                found = [total[group]["wrong"] / max(total[group]["flagged"], 1) for group in GROUPS]
                recall = [
                    total[group]["wrong"] / max(total[group]["wrong"] + total[group]["missed"], 1)
                    for group in ("all", "few")
                ]
                accused = [
                    (total[group]["flagged"] - total[group]["wrong"]) / correct[group] for group in ("all", "few")
                ]
                cells = [f"{100 * value:.1f}" for value in (*found, *recall, *accused)]
                lines.append([title, f"{rate:.0%} {flips}", *cells])
    return table(lines)


_PARTS = ("flagged", "wrong", "missed")


def cleanlab() -> str:
    """Return which labels of TrashNet are called wrong, and by the rules of cleanlab on the same predictions."""
    kept = json.loads((RESULTS / "data" / "wrong-labels" / "cleanlab.json").read_text("utf-8"))
    titles = {name: f"`{name}`" + ("" if "--" in name else f" of cleanlab {kept['cleanlab']}") for name in
              dict.fromkeys(row["rule"] for row in kept["rows"])}  # fmt: skip
    lines = [["rule", "flips", "precision", "recall", "correct labels of few-shot classes flagged"]]
    for row in kept["rows"]:
        shares = (row["found"] / row["flagged"], row["found"] / row["wrong"], row["few_accused"] / row["few_correct"])
        lines.append(
            [titles[row["rule"]], f"{row['rate']:.0%} {row['flips']}", *(f"{100 * share:.1f}" for share in shares)]
        )
    return table(lines)
