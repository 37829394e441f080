"""A grid on a Ray cluster of this machine: the same runs, also when a worker is killed."""

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.grid import _on_ray as on_ray
from evenhand.experiments.grid._engine import End
from evenhand.experiments.grid._on_ray import run_on_ray
from evenhand.experiments.grid._shared_storage import with_absolute_paths
from evenhand.experiments.grid.jobs import Failure, Job, Status, make_grid, status
from evenhand.runs.schemas import EpochRow
from evenhand.training.run import train_run
from tests.experiments.grids import EPOCHS, Heard, becomes, is_alive, small_grid, times_of, undisturbed
from tests.training.runs import assert_same_run, tiny

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'evenhand[ray]'")
LONGER = 40


def test_ray_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise ImportError

    monkeypatch.setattr(on_ray, "import_module", missing)
    with pytest.raises(EvenhandError, match=r"^A grid on Ray needs the package ray: pip install 'ray>=2.9'\.$"):
        run_on_ray(small_grid(tmp_path))


def test_paths_mean_the_same_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENHAND_DATA", raising=False)
    plain, rooted = small_grid(Path("runs"))[0], small_grid(Path("runs"), data__root="data")[0]
    assert with_absolute_paths(plain) == Job(plain.config, tmp_path / plain.folder)
    assert with_absolute_paths(rooted).config.data.root == str(tmp_path / "data")
    monkeypatch.setenv("EVENHAND_DATA", "shared")
    assert with_absolute_paths(plain).config.data.root == str(tmp_path / "shared")


class FakeTask:
    """What `ray.remote` makes of a function; a call of it waits for its turn."""

    def __init__(self, function: Callable[..., End]) -> None:
        self.function = function

    def remote(self, *args: object, **given: object) -> Callable[[], End]:
        return partial(self.function, *args, **given)


class LostTaskError(Exception):
    """Stands for an error of Ray."""


class FakeRay:
    """A cluster in this process, which does one task at a time when it is waited for, and loses every first one."""

    exceptions = SimpleNamespace(RayError=LostTaskError)

    def __init__(self) -> None:
        self.asked: dict[str, int] = {}
        self.lost: set[Path] = set()
        self.ends: dict[partial[End], End] = {}

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0, "GPU": 1.0}

    def remote(self, **asked: int) -> Callable[[Callable[..., End]], FakeTask]:
        self.asked = asked
        return FakeTask

    def wait(self, tasks: list[partial[End]], *, timeout: float) -> tuple[list[partial[End]], list[partial[End]]]:
        assert 0 < timeout < 10
        if (folder := tasks[0].args[0].folder) in self.lost:
            self.ends[tasks[0]] = tasks[0]()
        self.lost.add(folder)
        return tasks[:1], tasks[1:]

    def get(self, task: partial[End]) -> End:
        if task not in self.ends:
            raise LostTaskError("The worker died.")
        return self.ends[task]


def test_tasks_are_done_lost_and_submitted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cluster: a lost task is tried again, a run that fails is named, and the others are done."""
    fake, heard = FakeRay(), Heard()
    monkeypatch.setattr(on_ray, "import_module", lambda _: fake)
    (tmp_path / "empty").mkdir()
    (bad,) = make_grid(tmp_path / "runs", tiny(data__source=str(tmp_path / "empty")), objectives=["ce"], seeds=[0])
    good = small_grid(tmp_path / "runs", epochs=2)[0]
    failures = run_on_ray([bad, good], command="evenhand compare", callback=heard)
    assert failures == heard.failures == [Failure(bad, failures[0].reason)]
    assert "empty" in failures[0].reason
    assert fake.lost == {bad.folder, good.folder}
    assert fake.asked == {"num_cpus": 1, "num_gpus": 0, "max_retries": 0}, "the runs are to be done on processors"
    assert heard.ends == [good.folder]
    assert heard.epochs == [(good.folder, 1), (good.folder, 2)]
    assert_same_run(good.folder, train_run(good.config, tmp_path / "plain").path)


@needs_ray
@pytest.mark.slow
def test_a_run_on_ray_equals_one_without(tmp_path: Path) -> None:
    job, heard = small_grid(tmp_path)[0], Heard()
    plain = train_run(job.config, tmp_path / "plain").path
    handler = signal.getsignal(signal.SIGTERM)
    assert run_on_ray([job], command="evenhand compare", callback=heard) == []
    assert (heard.starts, heard.ends) == ([job.folder], [job.folder])
    assert heard.epochs == [(job.folder, epoch) for epoch in range(1, EPOCHS + 1)]
    assert signal.getsignal(signal.SIGTERM) == handler
    assert_same_run(job.folder, plain)


@needs_ray
@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(tmp_path: Path) -> None:
    good, heard = small_grid(tmp_path / "runs")[0], Heard()
    (tmp_path / "empty").mkdir()
    (bad,) = make_grid(tmp_path / "runs", tiny(data__source=str(tmp_path / "empty")), objectives=["ce"], seeds=[0])
    failures = run_on_ray([bad, good], callback=heard)
    assert failures == heard.failures == [Failure(bad, failures[0].reason)]
    assert "empty" in failures[0].reason
    assert heard.ends == [good.folder]
    assert [status(bad), status(good)] == [Status.FAILED, Status.DONE]


@needs_ray
@pytest.mark.parametrize("prefix", ["", "ray://"])
def test_a_cluster_out_of_reach_is_one_sentence(tmp_path: Path, prefix: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"{prefix}127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(EvenhandError) as refused:
        run_on_ray(small_grid(tmp_path), address=address)
    assert str(refused.value).startswith(f"Cannot reach a Ray cluster at {address}: ")
    assert "\n" not in str(refused.value)


def holders(path: Path) -> Iterator[int]:
    """Yield the processes that have a file open."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is somebody else's
            if any(os.readlink(handle) == str(path) for handle in (process / "fd").iterdir()):
                yield int(process.name)


class Killer(Heard):
    """Kills the workers of the first two runs that it hears of, in the middle of their work."""

    def __init__(self) -> None:
        super().__init__()
        self.killed: dict[Path, int] = {}

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        if job.folder not in self.killed and len(self.killed) < 2 and row["epoch"] < LONGER - 5:
            for pid in holders(job.lock):
                os.kill(pid, signal.SIGKILL)
                self.killed[job.folder] = pid


@needs_ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="workers are looked up in /proc")
def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    whole, jobs, killer = undisturbed(tmp_path / "whole", epochs=LONGER), small_grid(tmp_path, epochs=LONGER), Killer()
    assert run_on_ray(jobs, callback=killer) == []
    assert len(set(killer.killed.values())) == 2
    assert not any(is_alive(pid) for pid in killer.killed.values())
    assert sorted(killer.epochs) == sorted((job.folder, epoch) for job in jobs for epoch in range(1, LONGER + 1))
    for job, other in zip(jobs, whole, strict=True):
        assert_same_run(job.folder, other.folder)
    before = [times_of(job.folder) for job in jobs]
    assert run_on_ray(jobs) == []
    assert [times_of(job.folder) for job in jobs] == before


class Stops(Heard):
    """Stands for a person who presses Ctrl-C after the first epoch."""

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        raise KeyboardInterrupt


@needs_ray
@pytest.mark.slow
def test_ctrl_c_leaves_what_the_same_call_finishes(tmp_path: Path) -> None:
    whole, jobs = undisturbed(tmp_path / "whole"), small_grid(tmp_path, epochs=EPOCHS)
    with pytest.raises(KeyboardInterrupt):
        run_on_ray(jobs, callback=Stops())
    assert becomes(lambda: Status.RUNNING not in map(status, jobs))
    assert run_on_ray(jobs) == []
    for job, other in zip(jobs, whole, strict=True):
        assert_same_run(job.folder, other.folder)
