"""A grid on one machine: what it keeps, continues, tells, and survives."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import claimed, is_locked
from evenhand.experiments.grid import _worker as one_run
from evenhand.experiments.grid import local, threads
from evenhand.experiments.grid._engine import End
from evenhand.experiments.grid._worker import do_run
from evenhand.experiments.grid.jobs import Failure, Job, Status, make_grid, status, write_failure
from evenhand.experiments.grid.local import LocalEngine, default_workers, run_jobs
from evenhand.experiments.grid.naming import run_name
from evenhand.experiments.grid.progress import GridProgress, JobState, job_states, time_left
from evenhand.runs.config import load_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.loop import Callback
from evenhand.training.run import train_run
from tests.experiments.grids import EPOCHS, Heard, small_grid, times_of
from tests.fabricated import write_run
from tests.training.runs import Interrupted, StopAfter, assert_same_run, tiny


def assert_same_grid(jobs: list[Job], whole: list[Job]) -> None:
    assert [job.folder.name for job in jobs] == [job.folder.name for job in whole]
    for job, other in zip(jobs, whole, strict=True):
        assert_same_run(job.folder, other.folder)


def bad_job(root: Path) -> Job:
    """A run whose source is a folder with nothing in it."""
    (root.parent / "empty").mkdir(exist_ok=True)
    (job,) = make_grid(root, tiny(data__source=str(root.parent / "empty")), objectives=["ce"], seeds=[0])
    return job


def test_a_grid_keeps_continues_begins_and_isolates_failures(tmp_path: Path, whole: list[Job]) -> None:
    """One run is finished already, one was stopped, one was killed before its config was there, one is impossible."""
    jobs = small_grid(tmp_path / "runs")
    train_run(jobs[0].config, jobs[0].folder)
    with pytest.raises(Interrupted):
        train_run(jobs[1].config, jobs[1].folder, callback=StopAfter(10))
    jobs[2].folder.mkdir()
    (jobs[2].folder / ".config.yaml.abc.part").write_text("half")
    bad = bad_job(tmp_path / "runs")
    before, heard = times_of(jobs[0].folder), Heard()
    progress = GridProgress([bad, *jobs], workers=2)
    assert (progress.count(Status.DONE), progress.epochs_done) == (1, EPOCHS + 1)

    failures = run_jobs([bad, *jobs, jobs[3]], workers=2, command="evenhand compare", callback=heard)

    assert failures == heard.failures == [Failure(bad, failures[0].reason)]
    assert "empty" in failures[0].reason
    assert failures[0].reason.endswith(".")
    assert times_of(jobs[0].folder) == before
    assert sorted(heard.ends) == sorted(job.folder for job in jobs[1:])
    assert sorted(heard.starts) == sorted([bad.folder, *heard.ends])
    first = {jobs[1].folder: 2, jobs[2].folder: 1, jobs[3].folder: 1}
    assert sorted(heard.epochs) == sorted((f, e) for f, start in first.items() for e in range(start, EPOCHS + 1))
    assert_same_grid(jobs, whole)
    assert [status(job) for job in (bad, *jobs)] == [Status.FAILED] + 4 * [Status.DONE]
    assert (jobs[3].folder / "config.yaml").read_text().startswith("# evenhand compare\n")
    assert Run(jobs[3].folder).config == jobs[3].config
    assert not any(line for job in jobs[1:] for line in job.log.read_text().splitlines())


def test_two_grids_at_once_do_no_run_twice(tmp_path: Path, whole: list[Job]) -> None:
    jobs, heard = small_grid(tmp_path), [Heard(), Heard()]
    grids = [threading.Thread(target=run_jobs, args=(jobs,), kwargs={"workers": 2, "callback": each}) for each in heard]
    for grid in grids:
        grid.start()
    for grid in grids:
        grid.join(120)
    together = heard[0].epochs + heard[1].epochs
    assert sorted(together) == sorted((job.folder, epoch) for job in jobs for epoch in range(1, EPOCHS + 1))
    assert heard[0].waits + heard[1].waits
    assert heard[0].failures == heard[1].failures == []
    assert_same_grid(jobs, whole)


class Killer(Heard):
    """Kills the process of the first run it hears of, so many times."""

    def __init__(self, kills: int, number: int = signal.SIGKILL) -> None:
        super().__init__()
        self.kills, self.number = kills, number

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        if self.kills and job.folder == self.starts[0]:
            self.kills -= 1
            for process in multiprocessing.active_children():
                if process.name == job.folder.name and process.pid:
                    os.kill(process.pid, self.number)


def test_a_lost_worker_is_replaced_once(tmp_path: Path, whole: list[Job]) -> None:
    jobs, killer = small_grid(tmp_path, epochs=EPOCHS)[:2], Killer(kills=1)
    assert run_jobs(jobs, workers=1, callback=killer) == []
    assert killer.starts == [jobs[0].folder, jobs[0].folder, jobs[1].folder]
    assert_same_grid(jobs, whole[:2])


def test_a_worker_lost_twice_is_a_failure_and_tried_by_the_next_call(tmp_path: Path, whole: list[Job]) -> None:
    jobs, killer = small_grid(tmp_path)[:1], Killer(kills=2)
    failures = run_jobs(jobs, workers=1, callback=killer)
    assert [failure.reason for failure in failures] == [
        "Its process was ended by SIGKILL twice; if it was out of memory, lower --jobs."
    ]
    assert status(jobs[0]) is Status.FAILED
    assert run_jobs(jobs) == []
    assert status(jobs[0]) is Status.DONE
    assert not jobs[0].failure.exists()
    assert_same_grid(jobs, whole[:1])


def test_a_library_that_aborts_may_be_out_of_memory(tmp_path: Path) -> None:
    jobs = small_grid(tmp_path)[:1]
    (failure,) = run_jobs(jobs, workers=1, callback=Killer(kills=2, number=signal.SIGABRT))
    assert failure.reason == (
        f"Its process was ended by SIGABRT twice; it may be out of memory: lower --jobs, or see {jobs[0].log}."
    )
    assert "Fatal Python error: Aborted" in jobs[0].log.read_text()


def test_an_unforeseen_error_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    job = small_grid(tmp_path)[0]
    monkeypatch.setattr(one_run, "begin_run", broken)
    assert do_run(job) == End("failed", "ZeroDivisionError: by zero")
    assert "in broken" in json.loads(job.failure.read_text())["traceback"]


def test_a_run_that_someone_works_on_is_busy(tmp_path: Path) -> None:
    job = small_grid(tmp_path)[0]
    with claimed(job.folder):
        assert do_run(job) == End("busy")


def test_a_finished_run_is_not_begun_again_after_waiting(whole: list[Job]) -> None:
    before = times_of(whole[0].folder)
    write_failure(Failure(whole[0], "Long ago."))
    assert do_run(whole[0]) == End("done")
    assert times_of(whole[0].folder) == before
    assert status(whole[0]) is Status.DONE


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    job = small_grid(tmp_path)[0]
    job.folder.mkdir()
    (job.folder / "thesis.txt").write_text("mine")
    end = do_run(job)
    assert end.kind == "failed"
    assert "is not an empty folder" in end.reason
    assert (job.folder / "thesis.txt").read_text() == "mine"


def test_an_edited_config_is_refused_but_moved_data_are_not(tmp_path: Path, whole: list[Job]) -> None:
    job = small_grid(tmp_path)[0]
    with pytest.raises(Interrupted):
        train_run(job.config, job.folder, callback=StopAfter(10))
    path = job.folder / "config.yaml"
    text = path.read_text()
    path.write_text(text.replace("lr: 0.1", "lr: 0.2"))
    end = do_run(job)
    assert end == End(
        "failed", f"The config in {job.folder} was changed after the run began; remove that folder to start again."
    )
    path.write_text(text)
    data = job.config.data.model_copy(update={"root": str(tmp_path)})
    moved = Job(job.config.model_copy(update={"data": data}), job.folder)
    assert run_name(moved.config) == run_name(job.config)
    assert do_run(moved) == End("done")
    assert load_config(path) == moved.config
    assert_same_run(job.folder, whole[0].folder)


def test_data_are_loaded_by_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held while a run prepares and free once it trains."""
    job, locked = small_grid(tmp_path)[0], []

    def look(_: object, __: object, *, callback: Callback, **___: object) -> None:
        (path,) = job.log.parent.glob("data-*.lock")
        for _step in range(2):
            locked.append(is_locked(path))
            callback.step(1, 1, 1)
        callback.epoch({"epoch": 1})

    monkeypatch.setattr(one_run, "begin_run", look)
    assert do_run(job) == End("done")
    assert locked == [True, False]


def test_workers_and_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs = small_grid(tmp_path)
    with pytest.raises(EvenhandError, match=r"^At least 1 run at a time is needed, got 0\.$"):
        run_jobs(jobs, workers=0)
    monkeypatch.setattr(local, "count_processors", lambda: 12)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert default_workers(jobs) == 4
    assert default_workers(3 * jobs) == 8
    assert default_workers([]) == 1


@pytest.mark.parametrize(
    ("given", "processors", "expected"), [("", 12, 1), ("", 64, 8), ("3", 12, 3), ("x", 16, 2), ("0", 2, 1)]
)
def test_all_runs_of_a_grid_have_one_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, processors: int, expected: int
) -> None:
    monkeypatch.setattr(threads, "count_processors", lambda: processors)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    jobs = small_grid(tmp_path)
    assert threads.grid_threads(jobs) == threads.grid_threads(jobs[:1]) == expected
    for job, used in zip(jobs, (5, 7, 5), strict=False):
        write_run(job.folder, job.config, environment={"threads": used})
    assert threads.grid_threads(jobs) == threads.grid_threads(jobs[-1:], wanted=9) == 5, "as most runs of the folder"


def test_each_gpu_gets_a_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With simulated GPUs: the environment of each worker counts."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    base = tiny("compute.accelerator=auto")
    jobs = make_grid(tmp_path, base, objectives=["ce", "cce", "cot"], seeds=[0])
    assert default_workers(jobs) == 2
    context = MagicMock()
    context.Pipe.side_effect = lambda **_: (MagicMock(), MagicMock())
    monkeypatch.setattr(local, "_context", lambda: context)
    for given, expected in (("", ["0", "1"]), ("3,GPU-5", ["3", "GPU-5"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        engine = LocalEngine(jobs, workers=2)
        context.Process.reset_mock()
        for job in jobs[:2]:
            engine.submit(job)
        devices = [call.kwargs["args"][3]["CUDA_VISIBLE_DEVICES"] for call in context.Process.call_args_list]
        assert devices == expected


def test_nothing_to_do_is_done_at_once(whole: list[Job]) -> None:
    heard = Heard()
    assert run_jobs([]) == run_jobs(whole, callback=heard) == []
    assert not heard.starts


def state_of(job: Job, found: Status, done: int, seconds: float | None) -> JobState:
    return JobState(job, found, done, 10, seconds)


def test_time_left_is_taken_from_the_runs_most_alike(tmp_path: Path) -> None:
    base = tiny(epochs=10)
    jobs = make_grid(tmp_path, base, objectives=["ce", "cot"], seeds=[0, 1], models=["resnet8", "resnet32"])
    ce, cot, ce_1, cot_1, ce_32, *_ = jobs
    assert time_left([state_of(ce, Status.MISSING, 0, None)]) is None
    assert time_left([]) == 0
    assert time_left([state_of(ce, Status.DONE, 10, 2.0), state_of(cot, Status.FAILED, 3, 4.0)]) == 0
    known = [state_of(ce, Status.DONE, 10, 2.0), state_of(cot, Status.RUNNING, 5, 4.0)]
    assert time_left(known) == pytest.approx(5 * 4)
    assert time_left([*known, state_of(ce_1, Status.MISSING, 0, None)]) == pytest.approx(20 + 10 * 2)
    assert time_left([*known, state_of(cot_1, Status.INTERRUPTED, 0, None)]) == pytest.approx(20 + 10 * 4)
    assert time_left([*known, state_of(ce_32, Status.MISSING, 0, None)]) == pytest.approx(20 + 10 * 3)
    two = [*known, state_of(cot_1, Status.MISSING, 0, None)]
    assert time_left(two, workers=2) == pytest.approx(40)  # the longest run cannot be divided
    assert time_left([*two, state_of(ce_1, Status.MISSING, 0, None)], workers=2) == pytest.approx(40)


def test_a_finished_grid_is_described(whole: list[Job]) -> None:
    states = job_states(whole)
    assert [(state.status, state.epochs_done, state.epochs) for state in states] == 4 * [(Status.DONE, EPOCHS, EPOCHS)]
    rows = np.genfromtxt(whole[0].folder / "history.csv", delimiter=",", names=True)
    assert states[0].seconds == pytest.approx(rows["seconds"].mean())
    assert time_left(states) == 0


def test_progress_counts_and_foresees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("evenhand.experiments.grid.progress.time.monotonic", lambda: clock[0])
    jobs = small_grid(tmp_path, epochs=10)[:3]
    progress = GridProgress(jobs, workers=1)
    assert (progress.epochs, progress.epochs_done, progress.seconds_left) == (30, 0, None)
    progress.started(jobs[0])
    clock[0] += 5 + 2
    progress.progress(jobs[0], {"epoch": 1, "seconds": 2.0})
    assert progress.seconds_left == pytest.approx(29 * 2 + 2 * 5)
    for epoch in range(2, 11):
        clock[0] += 3  # of which 2 are training
        progress.progress(jobs[0], {"epoch": epoch, "seconds": 2.0})
    assert progress.epochs_done == 10
    assert progress.seconds_left == pytest.approx(20 * 3 + 2 * 5)
    progress.done(jobs[0])
    progress.waiting(jobs[1])
    progress.started(jobs[2])
    progress.failed(Failure(jobs[2], "No."))
    counted = [progress.count(each) for each in (Status.DONE, Status.RUNNING, Status.FAILED, Status.MISSING)]
    assert counted == [1, 1, 1, 0]
    assert progress.seconds_left == pytest.approx(10 * 3)
    progress.done(jobs[1])
    assert progress.seconds_left == 0
    assert progress.epochs_done == progress.epochs


# The processes are started by another program, and look for modules in its folder first.
STARTED_OTHERWISE = """
import multiprocessing
import os
import sys
from pathlib import Path

from evenhand.experiments.grid.local import run_jobs
from tests.experiments.grids import small_grid

if __name__ == "__main__":
    program = Path(sys.argv[1])
    sys.path.insert(0, str(program.parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    multiprocessing.set_executable(str(program))
    for failure in run_jobs(small_grid(program.parent / "runs")[:2], workers=2):
        print(failure.reason)
"""
ABORTS = """
import os
os.write(2, b"memory allocation of 262144 bytes failed")
os.abort()
"""


@pytest.mark.parametrize("error", [OSError, EOFError])
def test_workers_that_cannot_start_fail_their_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    context, heard = MagicMock(), Heard()
    context.Pipe.side_effect = lambda **_: (MagicMock(), MagicMock())
    context.Process.return_value.start.side_effect = error
    monkeypatch.setattr(local, "_context", lambda: context)
    failures = run_jobs(small_grid(tmp_path)[:2], workers=2, callback=heard)
    sentence = "Its process could not be started twice; it may be out of memory: lower --jobs."
    assert [failure.reason for failure in failures] == 2 * [sentence]
    assert context.Process.return_value.start.call_count == 4
    assert heard.starts == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does it")
@pytest.mark.parametrize("cause", ["limit", "abort"])
def test_workers_without_memory_fail_their_runs(tmp_path: Path, cause: str) -> None:
    """The server of the workers cannot import the libraries: an import raises MemoryError or never ends, or one aborts.

    This process is not limited: which of its own small allocations would fail, and abort it, is chance.
    """
    program = tmp_path / "python"
    limit = "300000" if cause == "limit" else "unlimited"
    program.write_text(f'#!/bin/sh\nulimit -S -v {limit} && exec {sys.executable} "$@"\n')
    program.chmod(0o700)
    if cause == "abort":
        (tmp_path / "PIL.py").write_text(ABORTS)
    ended = subprocess.run(
        [sys.executable, "-c", STARTED_OTHERWISE, str(program)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    sentence = "Its process could not be started twice; it may be out of memory: lower --jobs.\n"
    assert (ended.stdout, ended.stderr, ended.returncode) == (2 * sentence, "", 0)
