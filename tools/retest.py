"""Test the kept comparisons again with today's method, from their values of seeds and errors over test images.

python tools/retest.py          # writes docs/results/data/demo/*.json and docs/results/long-tailed/*.json
python tools/update_docs.py     # a test compares the kept files with what this writes
"""

from collections.abc import Sequence
from pathlib import Path

from evenhand.core.files import write_json
from evenhand.experiments.comparison import ComparisonResult, judge_differences
from evenhand.runs.comparison_schemas import Difference

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def kept_comparisons() -> list[Path]:
    """Return the files of kept comparisons."""
    return [*sorted((RESULTS / "data" / "demo").glob("*.json")), *sorted((RESULTS / "long-tailed").glob("*.json"))]


def retested(comparison: ComparisonResult) -> ComparisonResult:
    """Return a kept comparison with differences, verdicts and method as today's functions give them."""
    metrics = dict.fromkeys(each.metric for each in comparison.differences)
    values = {
        metric: {name: _by_seed(comparison, metric, name) for name in comparison.objectives} for metric in metrics
    }
    images = {
        metric: {each.objective: each.images for each in comparison.differences if each.metric == metric}
        for metric in metrics
    }
    margin = comparison.differences[0].margin
    found: Sequence[Difference] = judge_differences(values, comparison.baseline, images=images, margin=margin)
    # The runs are not kept, so what another recommendation reaches together is not known.
    notes = [each for each in comparison.notes if "averaged (--ensemble)" not in each]
    return comparison.model_copy(update={"ensemble": None, "notes": notes}).with_differences(found)


def _by_seed(comparison: ComparisonResult, metric: str, objective: str) -> list[float]:
    own = {run.seed: run.test for run in comparison.runs if run.objective == objective}
    return [score for seed in comparison.seeds if (score := (own[seed] or {})[metric]) is not None]


def main() -> None:
    """Write all files again."""
    for path in kept_comparisons():
        write_json(path, retested(ComparisonResult.model_validate_json(path.read_text("utf-8"))).to_json())


if __name__ == "__main__":
    main()
