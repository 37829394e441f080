"""`evenhand compare`, killed, stopped or out of disk in the middle of an epoch, is finished by the same command."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.cli import app
from evenhand.runs.run import runs_in
from evenhand.training.run import train_run
from tests.experiments.grids import becomes
from tests.training.runs import assert_same_run

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
    pytest.mark.usefixtures("undrawn"),
]
COMPARE = (
    *("compare", "digits", "--imbalance", "exp:20", "--objectives", "ce,cce", "--seeds", "1", "--jobs", "2"),
    *("--quiet", "--set", "compute.precision=float32", "--set", "batch_size=8", "--epochs", "4", "--out", "both"),
)


def compare(folder: Path, before: Callable[[], None] | None = None) -> "subprocess.Popen[str]":
    """Begin a comparison in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "evenhand", *COMPARE],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=before,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def assert_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command finishes it, here in this process, and its runs are those that nothing disturbed."""
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        app([*COMPARE])
    assert not end.value.code
    runs = runs_in(folder / "both")
    assert len(runs) == 2
    for run in runs:
        assert_same_run(run.path, train_run(run.config, folder / "undisturbed" / run.path.name).path)


STOPS = {
    "kill": (signal.SIGKILL, True, -signal.SIGKILL),
    "kill of the first process": (signal.SIGKILL, False, -signal.SIGKILL),
    "terminated": (signal.SIGTERM, False, 143),
    "ctrl-c": (signal.SIGINT, True, 130),
}


@pytest.mark.parametrize("kind", ["kill", *(pytest.param(each, marks=pytest.mark.slow) for each in list(STOPS)[1:])])
def test_stopped_in_the_middle_of_an_epoch(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number, all_of_them, code = STOPS[kind]
    process = compare(tmp_path)
    # After the first epoch of a run: its next one is going on.
    assert becomes(lambda: any((tmp_path / "both").glob("*/state/state.pt")) or process.poll() is not None, 60)
    (os.killpg if all_of_them else os.kill)(process.pid, number)
    assert ended(process)[0] == code
    begun = runs_in(tmp_path / "both")
    assert any(run.can_resume and not run.finished for run in begun), "it was stopped in the middle of training"
    assert not (tmp_path / "both" / "comparison.json").exists()
    assert_finished(tmp_path, monkeypatch)


def least(size: int) -> Callable[[], None]:
    """Let no file become larger, as a disk or a quota does."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**9, 2**14, 2**18])
def test_a_disk_that_takes_no_more(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    code, err = ended(compare(tmp_path, least(size)))
    assert code in (1, 2)
    assert "Traceback" not in err
    assert "File too large; the file exceeds a limit of the disk or system; choose another folder." in err
    assert not list(tmp_path.rglob("*.part"))
    assert_finished(tmp_path, monkeypatch)


@pytest.mark.slow
def test_two_comparisons_at_once_share_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = [compare(tmp_path) for _ in range(2)]
    for process in crew:
        code, err = ended(process)
        assert code == 0, err
    assert_finished(tmp_path, monkeypatch)
