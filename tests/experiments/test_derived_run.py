"""A grid trains once what runs share, and second stages wait for the first."""

from pathlib import Path

import pytest

from evenhand.experiments.comparison._comparison import compare_runs
from evenhand.experiments.grid import runtime_estimate as estimating
from evenhand.experiments.grid.jobs import make_grid, with_dependencies
from evenhand.experiments.grid.local import run_jobs
from evenhand.experiments.grid.progress import GridCallback, GridProgress
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from tests.training.runs import tiny


class Trained(GridProgress):
    """Notes which objectives were trained, epoch by epoch."""

    def progress(self, job: object, row: EpochRow) -> None:
        super().progress(job, row)  # type: ignore[arg-type]
        seen.append(job.config.objective)  # type: ignore[attr-defined]


seen: list[str] = []


def test_training_is_shared_and_stages_wait(tmp_path: Path) -> None:
    seen.clear()
    objectives = ["ce+post-hoc:tau=1", "ce+post-hoc", "ce+crt:epochs=2", "cce"]
    jobs = make_grid(tmp_path, tiny(epochs=2), objectives=objectives, seeds=[0])
    assert [job.config.objective for job in with_dependencies(jobs)] == ["ce", *objectives]
    assert run_jobs(jobs, workers=2, callback=Trained(jobs, 2)) == []
    assert sorted(seen) == ["cce", "cce", "ce", "ce", "ce+crt:epochs=2", "ce+crt:epochs=2"]
    one, two, stage, _ = (Run(job.folder) for job in jobs)
    first = Run(with_dependencies(jobs)[0].folder)
    assert (one.predictions.logits == first.predictions.logits).all()
    assert one.summary.model_dump()["unadjusted"]["balanced_accuracy"] == first.summary.balanced_accuracy
    assert stage.config.start.weights == str(first.path)
    again = make_grid(tmp_path, tiny(epochs=2), objectives=objectives, seeds=[0])
    assert [job.folder for job in again] == [job.folder for job in jobs]  # also once the weights have a content
    seen.clear()
    assert run_jobs(again, workers=1, callback=Trained(again)) == []
    assert seen == []
    compared = compare_runs([first.path, *(run.path for run in (one, two, stage))], tune=False)
    assert compared.objectives == ["ce", *objectives[:3]]


def test_a_first_stage_that_fails_takes_its_seconds_with_it(tmp_path: Path) -> None:
    config = tiny("data.val_fraction=0", epochs=1)  # which leaves nothing to select by
    failures = run_jobs(make_grid(tmp_path, config, objectives=["ce+post-hoc"], seeds=[0]), callback=GridCallback())
    assert [failure.job.config.objective for failure in failures] == ["ce", "ce+post-hoc"]
    assert "which failed" in failures[1].reason


def test_shared_training_costs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images are counted, whatever time they take."""
    monkeypatch.setattr(estimating, "run_overhead", lambda: 1.0)
    monkeypatch.setattr(estimating, "seconds_per_image", lambda *_: 1e-3)

    def work(*objectives: str) -> int:
        return estimating.estimate(
            [make_config(objective=spec, data__imbalance="exp:20", epochs=1) for spec in objectives]
        ).trained

    assert work("ce", "ce+post-hoc", "ce+post-hoc:tau=2") == work("ce") == work("ce+post-hoc")
    assert work("ce", "cce") == pytest.approx(2 * work("ce"))
