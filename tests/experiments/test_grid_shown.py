"""Progress of a grid in a terminal and in a pipe."""

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli import grid_progress
from evenhand.cli.grid_progress import ShownGrid, show_failures, show_status, watching_grid
from evenhand.core.errors import EvenhandError
from evenhand.core.locks import claimed
from evenhand.experiments.grid.jobs import Failure, write_failure
from evenhand.experiments.grid.running import run_on_engine
from evenhand.training.run import train_run
from tests.experiments.grids import EPOCHS, small_grid
from tests.training.runs import Interrupted, StopAfter


def test_a_pipe_hears_of_finished_and_failed_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = small_grid(tmp_path)
    with watching_grid(workers=2) as shown:
        shown.begin(jobs)
        shown.started(jobs[0])
        shown.progress(jobs[0], {"epoch": 1, "seconds": 2.0})
        shown.done(jobs[0])
        shown.waiting(jobs[1])
        shown.failed(Failure(jobs[2], "No."))
    out, err = capsys.readouterr()
    assert out == ""
    names = [f"{job.config.objective}, seed {job.config.seed}" for job in jobs]
    patterns = [
        r"4 runs to do, up to 2 at a time",
        rf"run 1/4  {names[0]} done  \d+ s left",
        rf"run 1/4  {names[1]} is locked by another process  \d+ s left",
        rf"run 2/4  {names[2]} failed  \d+ s left",
    ]
    for line, pattern in zip(err.splitlines(), patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_a_long_run_is_heard_of_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_progress, "EVERY", -1.0)
    shown = ShownGrid(workers=1)
    shown.begin(small_grid(tmp_path))
    capsys.readouterr()
    shown.progress(shown.jobs[0], {"epoch": 1, "seconds": 6000.0})
    assert capsys.readouterr().err == f"run 0/4  1 of {4 * EPOCHS} epochs  {(4 * EPOCHS - 1) / 0.6:.1f} h left\n"


def test_quiet_is_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = small_grid(tmp_path)
    with watching_grid(quiet=True) as shown:
        shown.begin(jobs)
        shown.done(jobs[0])
        shown.message("Nothing.")
        shown.end()
    assert capsys.readouterr() == ("", "")


def test_a_terminal_sees_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    jobs = small_grid(tmp_path)
    with watching_grid() as shown:
        shown.begin(jobs)
        shown.done(jobs[0])
        shown.end()
    err = capsys.readouterr().err
    assert "runs 1/4" in err
    assert jobs[0].folder.name not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals, code: int
) -> None:
    before = signal.getsignal(number)

    def interrupt() -> None:
        with watching_grid() as shown:
            shown.begin(small_grid(tmp_path))
            capsys.readouterr()
            signal.raise_signal(number)

    with pytest.raises(SystemExit) as ended:
        interrupt()
    assert ended.value.code == code
    expected = "evenhand: stopped; 0 of 4 runs are done, and the same command continues\n"
    assert capsys.readouterr().err == expected
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"engine": "pbs"}, "The engine is local, ray or slurm, got 'pbs'."),
        ({"address": "auto"}, "--ray-address auto needs --engine ray."),
        (
            {"engine": "ray", "workers": 2},
            "A Ray cluster decides how many runs it takes; leave out --jobs 2.",
        ),
        ({"workers": 0}, "At least 1 run at a time is needed, got --jobs 0."),
    ],
)
def test_what_no_engine_can_do_is_one_sentence(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EvenhandError) as refused:
        run_on_engine(small_grid(tmp_path / "runs"), **options)
    assert str(refused.value) == sentence
    assert not (tmp_path / "runs").exists()


def test_a_grid_is_run_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_progress, "EVERY", 1e9)  # a busy machine takes longer than that
    jobs = small_grid(tmp_path)[:1]
    with watching_grid() as shown:
        assert run_on_engine(jobs, command="evenhand compare", callback=shown) == []
    expected = f"1 run to do, up to 1 at a time\nrun 1/1  {jobs[0].config.objective}, seed {jobs[0].config.seed} done\n"
    assert capsys.readouterr().err == expected
    with watching_grid() as shown:
        assert run_on_engine(jobs, callback=shown) == []
    assert capsys.readouterr() == ("", "")


def test_failures_are_printed_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = small_grid(tmp_path)[0]
    show_failures([])
    assert capsys.readouterr().err == ""
    show_failures([Failure(job, "No.")])
    assert capsys.readouterr().err.splitlines() == [
        f"evenhand: {job.folder.name} failed: No.",
        "evenhand: 1 run failed; the same command tries again",
    ]


def test_the_status_of_a_grid_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = small_grid(tmp_path)
    train_run(jobs[0].config, jobs[0].folder)
    with pytest.raises(Interrupted):
        train_run(jobs[1].config, jobs[1].folder, callback=StopAfter(10))
    write_failure(Failure(jobs[2], "It was [bold]."))
    capsys.readouterr()
    with claimed(jobs[3].folder):
        show_status(jobs, workers=1)
    lines = capsys.readouterr().out.splitlines()
    states = [("done", EPOCHS), ("interrupted", 1), ("failed", 0), ("running", 0)]
    assert lines[0].split() == ["run", "status", "epochs", "s/epoch"]
    for line, job, (state, epochs) in zip(lines[1:], jobs, states, strict=False):
        assert line.split()[:3] == [job.folder.name, state, f"{epochs}/{EPOCHS}"]
    assert re.fullmatch(r"4 runs: 1 done, 1 running, 1 interrupted, 1 failed(  \d+ s left)?", lines[5])
    assert lines[6] == f"{jobs[2].folder.name} failed: It was [bold]."
