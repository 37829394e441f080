"""The one state machine of grids, over an engine whose every word is scripted."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from evenhand.core.locks import claimed
from evenhand.experiments.grid import _engine as engines
from evenhand.experiments.grid._engine import End, Event, finish_jobs
from evenhand.experiments.grid.jobs import Job, Status, job_after, read_failure, status
from evenhand.experiments.grid.local import run_jobs
from evenhand.runs.config import make_config
from tests.experiments.grids import EPOCHS, Heard, small_grid

DONE, BUSY, LOST = End("done"), End("busy"), End("lost", "vanished", "; look there")


@dataclass
class Scripted:
    """Ends the attempts at each run as prescribed; finished runs are on disk."""

    script: dict[str, list[End]]
    room: int = 2
    retries: int = 1
    submitted: list[str] = field(default_factory=list)
    queue: deque[Job] = field(default_factory=deque)
    cancelled: bool = False

    @property
    def has_room(self) -> bool:
        return len(self.queue) < self.room

    def submit(self, job: Job) -> None:
        assert self.has_room
        self.submitted.append(job.folder.name)
        self.queue.append(job)

    def wait(self, _: float | None) -> Sequence[Event]:
        job = self.queue.popleft()
        end = self.script[job.folder.name].pop(0)
        if end.kind == "done":
            job.folder.mkdir(parents=True, exist_ok=True)
            (job.folder / "summary.json").touch()
        return [Event(job, "started"), Event(job, {"epoch": 1, "seconds": 1.0}), Event(job, end)]

    def cancel(self) -> None:
        self.cancelled = True


def job(root: Path, name: str, after: Job | None = None) -> Job:
    return Job(make_config(), root / name, after)


def test_lost_runs_are_begun_again_so_often_and_failed_ones_are_not(tmp_path: Path) -> None:
    jobs, heard = [job(tmp_path, name) for name in "abcd"], Heard()
    failed = End("failed", "It burst.")
    engine = Scripted({"a": [LOST, DONE], "b": [LOST, LOST], "c": [failed], "d": [DONE]}, room=1)
    failures = finish_jobs([*jobs, jobs[0]], engine, heard)
    assert engine.submitted == ["a", "a", "b", "b", "c", "d"]
    assert [(failure.job.folder.name, failure.reason) for failure in failures] == [
        ("b", "Its process vanished twice; look there."),
        ("c", "It burst."),
    ]
    assert heard.failures == failures
    assert [folder.name for folder in heard.ends] == ["a", "d"]
    assert len(heard.starts) == len(heard.epochs) == 6
    assert read_failure(jobs[1]) == failures[0]
    assert engine.cancelled


@pytest.mark.parametrize(("retries", "times"), [(0, "once"), (3, "4 times")])
def test_a_lost_run_is_retried_as_often_as_the_engine_allows(tmp_path: Path, retries: int, times: str) -> None:
    engine = Scripted({"a": 5 * [LOST]}, retries=retries)
    (failure,) = finish_jobs([job(tmp_path, "a")], engine, Heard())
    assert failure.reason == f"Its process vanished {times}; look there."
    assert len(engine.submitted) == retries + 1


def test_a_run_that_another_process_holds_is_looked_after_until_it_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, heard, looks = [job(tmp_path, name) for name in "ab"], Heard(), []
    engine = Scripted({"a": [BUSY, DONE], "b": [BUSY]})
    holders = [claimed(each.folder) for each in jobs]
    for holder in holders:
        holder.__enter__()

    def sleep(_: float) -> None:
        looks.append(list(engine.submitted))
        if len(looks) == 2:
            (jobs[1].folder / "summary.json").touch()  # the other process has finished this one, and given up that
            for holder in holders:
                holder.__exit__(None, None, None)

    monkeypatch.setattr(engines.time, "sleep", sleep)
    assert finish_jobs(jobs, engine, heard) == []
    assert looks == 2 * [["a", "b"]]
    assert engine.submitted == ["a", "b", "a"]
    assert heard.waits == [each.folder for each in jobs]
    assert sorted(heard.ends) == [each.folder for each in jobs]


def test_a_run_waits_for_the_one_it_starts_from(tmp_path: Path) -> None:
    first, other = job(tmp_path, "first"), job(tmp_path, "other")
    second = job(tmp_path, "second", first)
    third = job(tmp_path, "third", second)
    engine = Scripted({name: [DONE] for name in ("first", "second", "third", "other")})
    assert finish_jobs([third, second, first, other], engine, Heard()) == []
    assert engine.submitted == ["first", "other", "second", "third"]


def test_a_run_fails_with_the_one_it_starts_from_and_the_others_go_on(tmp_path: Path) -> None:
    first, other = job(tmp_path, "first"), job(tmp_path, "other")
    second = job(tmp_path, "second", first)
    third = job(tmp_path, "third", second)
    engine, heard = Scripted({"first": [End("failed", "No.")], "other": [DONE]}), Heard()
    failures = finish_jobs([third, second, first, other], engine, heard)
    assert {failure.job.folder.name: failure.reason for failure in failures} == {
        "first": "No.",
        "second": "It starts from first, which failed.",
        "third": "It starts from second, which failed.",
    }
    assert engine.submitted == ["first", "other"]
    assert [status(each) for each in (second, third)] == 2 * [Status.FAILED]


def test_what_a_run_waits_for_is_done_though_nobody_lists_it(tmp_path: Path) -> None:
    second = job(tmp_path, "second", job(tmp_path, "first"))
    engine = Scripted({"first": [DONE], "second": [DONE]})
    assert finish_jobs([second], engine, Heard()) == []
    assert engine.submitted == ["first", "second"]


def test_a_second_stage_lies_beside_the_first_and_is_found_again(tmp_path: Path) -> None:
    """Before the first is trained its name stands for its weights; afterwards their content does."""
    first = small_grid(tmp_path)[0]
    config = first.config.model_copy(update={"epochs": 2})
    second = job_after(first, config)
    assert second.folder.parent == tmp_path
    assert second == replace(job_after(first, config), after=first)
    heard = Heard()
    assert run_jobs([second, first], workers=2, callback=heard) == []
    assert heard.ends == [first.folder, second.folder]
    assert heard.epochs[-2:] == [(second.folder, 1), (second.folder, 2)]
    assert len(heard.epochs) == EPOCHS + 2
    again = job_after(first, config)
    assert (again.folder, status(again)) == (second.folder, Status.DONE)
