"""Commands in one folder on simulated seeds, where nothing differs: crashes, other lists and baselines, more seeds.

They go through the sequence that `evenhand compare` runs, with its ledger; only training and evaluation are replaced.
Quick tests count 100 folders, long ones 10,000.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from evenhand.experiments.comparison import ComparisonResult, judge_differences
from evenhand.experiments.comparison._sequential import Plan, compare_sequentially
from evenhand.experiments.comparison.verdict import recommend
from evenhand.experiments.grid.jobs import Failure, Job, make_grid
from evenhand.runs.config import make_config
from evenhand.runs.filenames import INTERIM_ANALYSES
from tests.experiments.test_simulation import LONG, limit, wrong

SEQUENCE = "evenhand.experiments.comparison._sequential"
FOLDERS, CRASH = 100, 0.3
"""Folders of a quick test, and how often a command meets a run that crashes."""
BASE = make_config(data__source="digits")
COMMANDS = (
    {"objectives": ("ce", "cce", "cot"), "most_seeds": 5},
    {"objectives": ("ce", "focal"), "seeds": 4},
    {"objectives": ("ce", "cce", "cot", "focal"), "baseline": "cce", "seeds": 3},
    {"objectives": ("ce", "cce", "cot"), "seeds": 8},
)
"""One after the other, each a full 5% if it were alone."""


class Simulated:
    """Replaces the grid, in which a run may crash, and the evaluation of its runs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.noise = {name: 0.01 * rng.normal(size=8) for name in ("ce", "cce", "cot", "focal")}
        self.known: dict[Path, Job] = {}

    def run(self, jobs: Sequence[Job]) -> list[Failure]:
        self.known |= {job.folder: job for job in jobs}
        return [Failure(jobs[-1], "It burst.")] if self.rng.random() < CRASH else []

    def compare(
        self, runs: Sequence[Path], *, baseline: str | None = None, level: float = 0.05, margin: float = 0.01
    ) -> ComparisonResult:
        configs = [self.known[folder].config for folder in runs]
        names = list(dict.fromkeys(each.objective for each in configs))
        seeds = sorted(set.intersection(*({each.seed for each in configs if each.objective == name} for name in names)))
        chosen = baseline or ("ce" if "ce" in names else names[0])
        values = {"balanced_accuracy": {name: self.noise[name][seeds] for name in names}}
        found = judge_differences(values, chosen, level=level, margin=margin)
        best = recommend(found, chosen)
        return ComparisonResult(
            source="simulated",
            imbalance="none",
            model="none",
            baseline=chosen,
            objectives=names,
            seeds=seeds,
            test_images=0,
            shot_rule="",
            runs=[],
            rows=[],
            differences=found,
            per_class=[],
            verdicts=[best.sentence],
            recommended=best.objective,
            certainty=best.certainty,
            method="",
            notes=[],
        )


def exploratory(found: ComparisonResult) -> bool:
    return found.verdicts[-1].startswith("Exploratory")


def share_false(trials: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of folders in which any command claims a difference; each command is given again until no run crashes."""
    rng, count = np.random.default_rng(0), 0

    @cache
    def jobs(root: Path, objectives: tuple[str, ...], seeds: range) -> list[Job]:
        return make_grid(root, BASE, objectives=objectives, seeds=seeds)

    monkeypatch.setattr(
        f"{SEQUENCE}.make_grid", lambda root, _, *, objectives, seeds: jobs(root, tuple(objectives), seeds)
    )
    for _ in range(trials):
        made, claimed = Simulated(rng), False
        monkeypatch.setattr(f"{SEQUENCE}.compare_runs", made.compare)
        for number, command in enumerate(COMMANDS):
            plan = Plan(folder, BASE, table=None, **command)  # type: ignore[arg-type]
            failed = True
            while failed:
                found, failures = compare_sequentially(plan, made.run)
                failed = bool(failures)
                claimed |= not exploratory(found) and wrong(found.differences, {})
            assert number or not exploratory(found), "what crashed spends nothing"
        (folder / INTERIM_ANALYSES).unlink()
        count += claimed
    return count / trials


def test_crashes_and_other_commands_in_a_folder_make_false_claims_in_at_most_5_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_false(FOLDERS, tmp_path, monkeypatch) <= limit(FOLDERS)


@pytest.mark.slow
def test_crashes_and_other_commands_in_a_folder_make_false_claims_in_at_most_5_percent_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_false(LONG, tmp_path, monkeypatch) <= limit(LONG)
