"""tools/study.py: planned runs, their records, and no run made twice."""

import importlib.util
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from evenhand.experiments.grid.jobs import Failure, Job
from evenhand.runs.record import records_in
from evenhand.training.run import train_run

PLAN = """
first:
  config: { recipe: small, source: digits, imbalance: exp:20, epochs: 1, select: last }
  objectives: [ce, cce]
  seeds: [4, 5]
  except: { cce: [5] }
"""


def load_study_tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import tools/study.py, which sets the number of threads for its own runs."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    spec = importlib.util.spec_from_file_location("study_tool", Path(__file__).parents[1] / "tools" / "study.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_recorded_run_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, trained = load_study_tool(monkeypatch), []

    def run_jobs(jobs: Sequence[Job], **_: object) -> list[Failure]:
        for job in jobs:
            train_run(job.config, job.folder)
            trained.append((job.config.objective, job.config.seed))
        return []

    def study(*arguments: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["study.py", *arguments, "--out", str(tmp_path / "out")])
        tool.main()
        return capsys.readouterr().out.splitlines()

    monkeypatch.setattr(tool, "run_jobs", run_jobs)
    monkeypatch.setattr(tool, "RESULTS", tmp_path)
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert study("status") == ["first: 3 missing"]
    study("run")
    assert trained == [("ce", 4), ("cce", 4), ("ce", 5)]
    assert len(study("keep")) == 3
    assert {(each.config.objective, each.config.seed) for each in records_in(tmp_path / "data")} == set(trained)
    shutil.rmtree(tmp_path / "out")
    assert study("status") == ["first: 3 kept"]
    study("run")
    assert len(trained) == 3
    repeated = next(job for _, job in tool.planned(tmp_path / "out"))
    train_run(repeated.config, repeated.folder)
    assert study("check") == [f"{repeated.folder.name}: identical"]
    record = tmp_path / "data" / "runs" / "first" / f"{repeated.folder.name}.json"
    content = json.loads(record.read_text())
    content["history"]["train_loss"][0] += 0.001
    record.write_text(json.dumps(content))
    assert study("check") == [f"{repeated.folder.name}: differs"]


def test_an_unknown_block_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_study_tool(monkeypatch)
    monkeypatch.setattr("sys.argv", ["study.py", "status", "--out", "out", "--only", "nonsense"])
    with pytest.raises(SystemExit, match=r"plan\.yaml has no block nonsense"):
        tool.main()


def test_a_run_of_two_blocks_is_planned_once_and_drives_are_drawn_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load_study_tool(monkeypatch)
    jobs = [job for _, job in tool.planned(Path("out"), only=["road", "figures", "fair"])]
    assert len({job.folder for job in jobs}) == len(jobs)
    # figure-overview needs the runs of Fashion-MNIST that `fair` plans, figure-convergence those of `road`.
    figures = [job.config.data for _, job in tool.planned(Path("out"), only=["figures"])]
    assert {(data.source, data.imbalance) for data in figures} == {
        ("cifar10", "exp:100"),
        ("cifar10", "exp:10"),
        ("fashion-mnist", "exp:10"),
    }
    drives = [job.config for job in jobs if "split=runs" in job.config.data.source]
    assert drives
    assert all(config.data.split_seed == config.seed for config in drives)
