"""A study that was run in several sittings or on several machines: all its seeds judged together.

Every `comparison.json` keeps what each run reached on the test set and what other test images could change, so the runs
themselves are not needed. A run that stands in several files counts once, and differences are paired by the seeds that
the baseline has too. The noise of test images is taken from the file with most seeds: rather too large than too
small for all seeds together.

    python examples/join_studies.py machine-a/comparison.json machine-b/comparison.json --baseline ce
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from evenhand.experiments.comparison import Difference, judge_differences
from evenhand.statistics.image_sampling import ImageError

LEVEL = 0.05
SHOWN = ("many", "medium", "few", "ece")

Scores = dict[str, dict[int, dict[str, float]]]
"""By objective and seed, what a run reached."""


def read_scores(studies: list[dict[str, Any]]) -> Scores:
    """Return what each run reached; the same objective and seed in two files has to be the same run."""
    found: Scores = {}
    for study in studies:
        for run in study["runs"]:
            if run.get("test") is None:
                continue  # not picked, or written before this was kept
            own = found.setdefault(run["objective"], {})
            if own.setdefault(run["seed"], run["test"]) != run["test"]:
                raise SystemExit(f"{run['objective']} with seed {run['seed']} was run twice, with other results.")
    return found


def read_image_errors(studies: list[dict[str, Any]], baseline: str) -> dict[str, dict[str, ImageError]]:
    """Return by metric and objective what other test images could change, from the file with most seeds."""
    found: dict[str, dict[str, ImageError]] = {}
    for study in sorted(studies, key=lambda study: len(study["seeds"])):
        for each in study["differences"]:
            if each["baseline"] == baseline and each.get("images"):
                found.setdefault(each["metric"], {})[each["objective"]] = ImageError(**each["images"])
    return found


def judge(scores: Scores, images: dict[str, dict[str, ImageError]], baseline: str) -> dict[str, Difference]:
    """Compare every objective with the baseline; all claims together err in at most 5%, as in one comparison.

    Objectives with the same seeds are a family with its part of the 5%. All that have these seeds, and more, are judged
    along, as what is usual among them tells how far a few seeds can be trusted; of them nothing is claimed there.
    """
    paired = {name: scores[name].keys() & scores[baseline].keys() for name in scores if name != baseline}
    paired = {name: seeds for name, seeds in paired.items() if len(seeds) > 1}
    found = {}
    for seeds in {frozenset(each) for each in paired.values()}:
        family = [name for name in paired if paired[name] == seeds]
        values = {
            name: [scores[name][seed]["balanced_accuracy"] for seed in sorted(seeds)]
            for name in (baseline, *(name for name in paired if paired[name] >= seeds))
        }
        own_images = {"balanced_accuracy": images.get("balanced_accuracy", {})}
        level = LEVEL * len(family) / len(paired)
        judged = judge_differences({"balanced_accuracy": values}, baseline, images=own_images, level=level)
        found |= {each.objective: each for each in judged if each.objective in family}
    return found


def row(name: str, own: dict[int, dict[str, float]], difference: Difference | None) -> str:
    """Return a line of the table, in percent and points."""
    values = [100 * each["balanced_accuracy"] for each in own.values()]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    shown = [f"{100 * statistics.mean(each[key] for each in own.values()):.1f}" for key in SHOWN]
    against, words = "", ""
    if difference is not None:
        against = f"{100 * difference.mean:+.1f}"
        if difference.low is not None and difference.high is not None:
            against += f" [{100 * difference.low:.1f}, {100 * difference.high:.1f}]"
        words = difference.outcome
    seeds = ", ".join(map(str, sorted(own)))
    return f"| `{name}` | {seeds} | {statistics.mean(values):.1f}{spread} | {' | '.join(shown)} | {against} | {words} |"


def main() -> None:
    """Print the joined table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", type=Path, help="comparison.json of each sitting")
    options.add_argument("--baseline", default="ce", help="what the others are compared with")
    given = options.parse_args()
    studies = [json.loads(path.read_text("utf-8")) for path in given.files]
    kinds = {(study["source"], study["imbalance"], study["model"]) for study in studies}
    if len(kinds) > 1:
        raise SystemExit(f"These are studies of different things: {sorted(kinds)}.")
    scores = read_scores(studies)
    if given.baseline not in scores:
        raise SystemExit(f"No run of the baseline {given.baseline!r}; there are {', '.join(scores)}.")
    differences = judge(scores, read_image_errors(studies, given.baseline), given.baseline)
    print(f"| objective | seeds | balanced accuracy | {' | '.join(SHOWN)} | against {given.baseline} | |")
    print("|---" * (len(SHOWN) + 5) + "|")
    for name in (given.baseline, *(name for name in scores if name != given.baseline)):
        print(row(name, scores[name], differences.get(name)))


if __name__ == "__main__":
    main()
