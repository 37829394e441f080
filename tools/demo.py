"""Run the comparisons of digits that the documentation quotes, and keep what they measured.

`make demo` compares seeds 0 to 7. Here the same four objectives are compared with seeds 100 to 107 too, and two more
objectives with seeds 0 to 7. Called again, it continues from the finished runs.

    python tools/demo.py --out runs/demo-kept --jobs 2    # writes docs/results/data/demo/*.json
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from evenhand.core.files import write_json
from evenhand.experiments.api import OBJECTIVES, plan_comparison
from evenhand.experiments.comparison import ComparisonResult, compare_runs
from evenhand.experiments.grid.jobs import make_grid
from evenhand.experiments.grid.local import run_jobs
from evenhand.training.recipe_choice import make_run_config

KEPT = Path(__file__).parent.parent / "docs" / "results" / "data" / "demo"
SIX = (
    "ce",
    "cce",
    "balanced-softmax",
    "balanced-softmax+cce",
    "balanced-softmax+mixup",
    "ce+post-hoc:tau=1",
)
COMPARISONS: dict[str, tuple[Sequence[str], range]] = {
    "seeds-0-7": (OBJECTIVES, range(8)),
    "seeds-100-107": (OBJECTIVES, range(100, 108)),
    "six-objectives": (SIX, range(8)),
}


def compare_digits(objectives: Sequence[str], seeds: range, out: Path, workers: int) -> ComparisonResult:
    """Train and compare with these seeds, with the settings of `make demo`."""
    base, _ = make_run_config(None, None, (), data__source="digits", data__imbalance="exp:50")
    planned = plan_comparison(base, objectives, out=out)  # in compare, test sets rotate over seeds
    jobs = make_grid(out, planned.base, objectives=objectives, seeds=seeds)
    if failures := run_jobs(jobs, workers=workers):
        raise SystemExit(failures[0].reason)
    return compare_runs([job.folder for job in jobs])


def main() -> None:
    """Run all comparisons and write a file for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="Folder of the runs.")
    parser.add_argument("--jobs", type=int, default=1, help="Runs at a time.")
    options = parser.parse_args()
    for name, (objectives, seeds) in COMPARISONS.items():
        found = compare_digits(objectives, seeds, options.out, options.jobs)
        write_json(KEPT / f"{name}.json", found.to_json(options.out))
        print(found.verdicts[-1])


if __name__ == "__main__":
    main()
