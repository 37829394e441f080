"""A grid that was stopped or killed is finished by the same call, as if nothing had happened."""

import json
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from evenhand.experiments.grid.jobs import Job, Status, status
from evenhand.experiments.grid.local import _context, _end_with_parent, run_jobs
from evenhand.runs.schemas import EpochRow
from tests.experiments.grids import Heard, becomes, is_alive, small_grid, start, times_of, undisturbed
from tests.training.runs import assert_same_run

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
LONGER = 30


def next_line(grid: "subprocess.Popen[str]") -> list[int]:
    """Wait until an epoch is done somewhere; return which processes are at work."""
    assert grid.stdout is not None
    line = grid.stdout.readline()
    return [int(pid) for pid in json.loads(line)] if line else []


def finished(jobs: list[Job]) -> dict[Path, dict[str, int]]:
    return {job.folder: times_of(job.folder) for job in jobs if status(job) is Status.DONE}


def finish(jobs: list[Job], whole: list[Job]) -> None:
    """The same call finishes the grid; what was done is not done again, and all of it equals the undisturbed one."""
    before, heard = finished(jobs), Heard()
    assert run_jobs(jobs, workers=2, callback=heard) == []
    assert set(heard.starts) == {job.folder for job in jobs} - set(before)
    assert len(heard.epochs) == len(set(heard.epochs))
    for folder, times in before.items():
        assert times_of(folder) == times
    for job, other in zip(jobs, whole, strict=True):
        assert_same_run(job.folder, other.folder)


def fake_grid(sender: Connection) -> None:
    """A process whose worker has nothing to do but to notice its end."""
    worker = multiprocessing.get_context("fork").Process(target=_end_with_parent)
    worker.start()
    sender.send(worker.pid)
    worker.join()


def test_a_worker_ends_with_a_killed_grid() -> None:
    context = _context()
    heard, sender = context.Pipe(duplex=False)
    grid = context.Process(target=fake_grid, args=(sender,), daemon=False)
    grid.start()
    assert heard.poll(60)
    worker = heard.recv()
    try:
        assert not becomes(lambda: not is_alive(worker), 0.2), "it works as long as its grid does"
        grid.kill()
        grid.join(30)
        assert becomes(lambda: not is_alive(worker))
    finally:
        if is_alive(worker):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.slow
def test_workers_end_with_a_killed_grid_and_the_same_call_finishes_it(tmp_path: Path, whole: list[Job]) -> None:
    jobs = small_grid(tmp_path)
    with start(tmp_path) as grid:
        workers = next_line(grid)
        assert workers
        becomes(lambda: False, np.random.default_rng().uniform(0, 1))
        grid.kill()  # only the grid: its workers have to notice
        assert grid.wait(30) in (-signal.SIGKILL, 0)
    assert becomes(lambda: not any(map(is_alive, workers)))
    assert becomes(lambda: Status.RUNNING not in map(status, jobs))
    assert Status.FAILED not in map(status, jobs)
    finish(jobs, whole)


class Ends(Heard):
    """Ends the grid after the first epoch it hears of, as a terminal or a system does: a signal to every process."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self.number = number
        self.workers: list[int] = []

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        self.workers = [process.pid for process in multiprocessing.active_children() if process.pid]
        for pid in self.workers:
            os.kill(pid, self.number)
        time.sleep(0.2)
        signal.raise_signal(self.number)
        time.sleep(5)  # not reached


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM], ids=lambda each: each.name
)
def test_signals_leave_what_the_same_call_finishes(tmp_path: Path, whole: list[Job], number: signal.Signals) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals come to the main thread")
    jobs, ends = small_grid(tmp_path), Ends(number)
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        with pytest.raises(KeyboardInterrupt):
            run_jobs(jobs, workers=2, callback=ends)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert ends.workers
    assert not any(map(is_alive, ends.workers))
    found = [status(job) for job in jobs]
    assert Status.RUNNING not in found
    assert Status.FAILED not in found
    assert Status.MISSING in found
    assert not list(tmp_path.rglob("*.part"))
    finish(jobs, whole)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_ends_every_process(tmp_path: Path) -> None:
    with start(tmp_path) as grid:
        workers = next_line(grid)
        os.killpg(grid.pid, signal.SIGINT)
        assert grid.wait(30) == 130
    assert workers
    assert not any(map(is_alive, workers))


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    whole = undisturbed(tmp_path / "whole", epochs=LONGER)
    rng, kills, number, seen = np.random.default_rng(), 0, 0, {}
    while kills < 10:
        root = tmp_path / f"grid{number}"
        jobs = small_grid(root, epochs=LONGER)
        while kills < 10 and not all(status(job) is Status.DONE for job in jobs):
            with start(root, epochs=LONGER) as grid:
                assert becomes(lambda: Status.RUNNING in map(status, jobs) or grid.poll() is not None, 60)  # noqa: B023
                becomes(lambda: grid.poll() is not None, rng.uniform(0, 2))
                if kills % 2:
                    grid.kill()
                else:
                    os.killpg(grid.pid, signal.SIGKILL)
                kills += grid.wait() == -signal.SIGKILL
            assert becomes(lambda: Status.RUNNING not in map(status, jobs))  # noqa: B023
            now = finished(jobs)
            assert all(now[folder] == times for folder, times in seen.items())
            seen = now
        finish(jobs, whole)
        number, seen = number + 1, {}
