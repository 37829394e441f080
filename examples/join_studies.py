"""Join comparisons of one study that was run in several sessions or on several machines, and test all seeds together.

Every `comparison.json` contains the test results of each run and the sampling error of the test images, so the runs
themselves are not needed. A run in several files counts once, and differences are paired by the seeds that the baseline
has too. The sampling error is that of the file with the most seeds, which is conservative for all seeds together.

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
"""By objective and seed, the test results of a run."""


def read_scores(studies: list[dict[str, Any]]) -> Scores:
    """Return the test results of each run; the same objective and seed in two files must be the same run."""
    found: Scores = {}
    for study in studies:
        for run in study["runs"]:
            if run.get("test") is None:
                continue  # not selected by --tune, or written by an old version
            own = found.setdefault(run["objective"], {})
            if own.setdefault(run["seed"], run["test"]) != run["test"]:
                raise SystemExit(f"{run['objective']} with seed {run['seed']} was run twice, with different results.")
    return found


def read_image_errors(studies: list[dict[str, Any]], baseline: str) -> dict[str, dict[str, ImageError]]:
    """Return the sampling error of the test images by metric and objective, from the file with the most seeds."""
    found: dict[str, dict[str, ImageError]] = {}
    for study in sorted(studies, key=lambda study: len(study["seeds"])):
        for each in study["differences"]:
            if each["baseline"] == baseline and each.get("images"):
                found.setdefault(each["metric"], {})[each["objective"]] = ImageError(**each["images"])
    return found


def compare_with_baseline(
    scores: Scores, images: dict[str, dict[str, ImageError]], baseline: str
) -> dict[str, Difference]:
    """Compare every objective with the baseline, at a family-wise error rate of 5% as in one comparison.

    Objectives with the same seeds are a family with a fraction of the 5%. Objectives that have these and more seeds are
    included for the moderated variance estimate, but nothing is claimed about them in this family.
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
        tested = judge_differences({"balanced_accuracy": values}, baseline, images=own_images, level=level)
        found |= {each.objective: each for each in tested if each.objective in family}
    return found


def row(name: str, own: dict[int, dict[str, float]], difference: Difference | None) -> str:
    """Return a row of the table, in percent and percentage points."""
    values = [100 * each["balanced_accuracy"] for each in own.values()]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    shown = [f"{100 * statistics.mean(each[key] for each in own.values()):.1f}" for key in SHOWN]
    against, outcome = "", ""
    if difference is not None:
        against = f"{100 * difference.mean:+.1f}"
        if difference.low is not None and difference.high is not None:
            against += f" [{100 * difference.low:.1f}, {100 * difference.high:.1f}]"
        outcome = difference.outcome
    seeds = ", ".join(map(str, sorted(own)))
    return (
        f"| `{name}` | {seeds} | {statistics.mean(values):.1f}{spread} | {' | '.join(shown)} | {against} | {outcome} |"
    )


def main() -> None:
    """Print the joined table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", nargs="+", type=Path, help="comparison.json of each session")
    options.add_argument("--baseline", default="ce", help="objective that the others are compared with")
    given = options.parse_args()
    studies = [json.loads(path.read_text("utf-8")) for path in given.files]
    kinds = {(study["source"], study["imbalance"], study["model"]) for study in studies}
    if len(kinds) > 1:
        raise SystemExit(f"The files are studies of different data or models: {sorted(kinds)}.")
    scores = read_scores(studies)
    if given.baseline not in scores:
        raise SystemExit(f"No run of the baseline {given.baseline!r}; there are {', '.join(scores)}.")
    differences = compare_with_baseline(scores, read_image_errors(studies, given.baseline), given.baseline)
    print(f"| objective | seeds | balanced accuracy | {' | '.join(SHOWN)} | against {given.baseline} | |")
    print("|---" * (len(SHOWN) + 5) + "|")
    for name in (given.baseline, *(name for name in scores if name != given.baseline)):
        print(row(name, scores[name], differences.get(name)))


if __name__ == "__main__":
    main()
