"""A grid as jobs of submitit: the same runs, also when jobs are killed, reach their limit, or lose their submitter."""

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.grid_progress import show_status
from evenhand.core.errors import EvenhandError
from evenhand.core.locks import claimed
from evenhand.experiments.grid import _on_slurm as on_slurm
from evenhand.experiments.grid import _slurm_cluster as slurm_cluster
from evenhand.experiments.grid._on_slurm import SlurmEngine, queued_jobs, run_on_slurm
from evenhand.experiments.grid._slurm_cluster import IDLE_ATTEMPTS, Attempt, require_slurm
from evenhand.experiments.grid._slurm_options import SlurmOptions, parse_slurm_options
from evenhand.experiments.grid.jobs import Job, Status, make_grid, read_failure, status, write_failure
from evenhand.experiments.grid.running import check_engine
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training.run import train_run
from tests.experiments.clusters import (
    LocalCluster,
    SlowAttempt,
    kill,
    processes,
    run_locally,
    submitted,
)
from tests.experiments.grids import EPOCHS, Heard, becomes, small_grid
from tests.training.runs import StopAfter, assert_same_run, tiny

needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="submitit is not installed")
needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="jobs are looked up in /proc")


def slurm_answers() -> bool:
    return shutil.which("sbatch") is not None and subprocess.run(["squeue"], capture_output=True).returncode == 0


needs_slurm = pytest.mark.skipif(not slurm_answers(), reason="there is no SLURM cluster")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "POLL", 0.1)
    monkeypatch.setattr(on_slurm, "QUEUE_SECONDS", 0.3)
    monkeypatch.chdir(Path(__file__).parents[2])  # where the jobs find the classes of these tests


@needs_submitit
@needs_proc
def test_a_run_as_a_job_equals_one_without(tmp_path: Path) -> None:
    job, heard = small_grid(tmp_path)[0], Heard()
    plain = train_run(job.config, tmp_path / "plain").path
    assert run_locally([job], heard=heard) == []
    assert (heard.starts, heard.ends) == ([job.folder], [job.folder])
    assert heard.epochs == [(job.folder, epoch) for epoch in range(1, EPOCHS + 1)]
    assert_same_run(job.folder, plain)


class Limits(Heard):
    """Signals the end of the time limit, as the cluster does, after the second and the fifth epoch of a run."""

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        if row["epoch"] in (2, 5):
            for pid in processes("submitit.core._submit", submitted(job.folder.parent)):
                os.kill(pid, signal.SIGUSR2)


class Strikes(Heard):
    """Kills the job of a run after its second epoch, and again after its fourth."""

    def __init__(self) -> None:
        super().__init__()
        self.killed: list[int] = []

    def progress(self, job: Job, row: EpochRow) -> None:
        super().progress(job, row)
        if row["epoch"] in (2, 4):
            self.killed += kill(job.folder.parent)


@needs_submitit
@needs_proc
@pytest.mark.slow
def test_a_killed_job_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "Attempt", SlowAttempt)
    job, heard = small_grid(tmp_path / "runs")[0], Strikes()
    plain = train_run(job.config, tmp_path / "plain").path
    assert run_locally([job], heard=heard) == []
    assert len(heard.killed) == 4  # twice a process and the one that looks after it
    assert len(list(submitted(tmp_path / "runs").glob("*_submitted.pkl"))) == 3
    assert_same_run(job.folder, plain)


@needs_submitit
@needs_proc
@pytest.mark.slow
def test_a_job_at_its_time_limit_is_requeued_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "Attempt", SlowAttempt)
    job, heard = small_grid(tmp_path / "runs", epochs=8)[0], Limits()
    plain = train_run(job.config, tmp_path / "plain").path
    assert run_locally([job], heard=heard) == []
    logs = "".join(path.read_text() for path in submitted(tmp_path / "runs").glob("*_log.*"))
    assert logs.count("Requeued job") == 2
    assert "this job is timed-out" in logs
    assert len(list(submitted(tmp_path / "runs").glob("*_submitted.pkl"))) == 1  # the same job, not another one
    assert heard.epochs == [(job.folder, epoch) for epoch in range(1, 9)]
    assert_same_run(job.folder, plain)


@needs_submitit
@needs_proc
@pytest.mark.slow
def test_ctrl_c_leaves_jobs_that_the_next_call_finds(tmp_path: Path) -> None:
    job = small_grid(tmp_path / "runs", epochs=20)[0]
    plain = train_run(job.config, tmp_path / "plain").path
    with (tmp_path / "printed").open("w") as printed:  # not a pipe: the job has it too, and would be waited for
        command = [sys.executable, "-m", "tests.experiments.clusters", str(tmp_path / "runs"), "20"]
        submitting = subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
    assert becomes(lambda: "_ce_" in (tmp_path / "printed").read_text() or submitting.poll() is not None, 500)
    submitting.send_signal(signal.SIGINT)
    assert submitting.wait(60) != 0
    (alone,) = processes("submitit.core._submit", submitted(tmp_path / "runs"))
    assert 1 <= len(Run(job.folder).history) < 20
    heard = Heard()
    assert run_locally([job], heard=heard) == []
    assert len(list(submitted(tmp_path / "runs").glob("*_submitted.pkl"))) == 1
    assert heard.epochs[-1] == (job.folder, 20)
    # The run is finished before its process is gone.
    assert becomes(lambda: alone not in processes("submitit.core._submit", submitted(tmp_path / "runs")), 60)
    assert_same_run(job.folder, plain)


class Deadly(LocalCluster):
    """Kills every job as soon as it is asked about them."""

    def __init__(self, root: Path) -> None:
        self.root, self.killed = root, 0

    def states(self) -> dict[str, str]:
        self.killed += len(kill(self.root))
        return {}


@needs_submitit
@needs_proc
@pytest.mark.slow
def test_a_cluster_that_kills_all_jobs_is_one_sentence_and_loses_nothing(tmp_path: Path) -> None:
    job = small_grid(tmp_path / "runs")[0]
    plain = train_run(job.config, tmp_path / "plain").path
    with pytest.raises(RuntimeError, match="step 3 of"):
        train_run(job.config, job.folder, callback=Burst(10))
    before = Run(job.folder).history
    cluster = Deadly(tmp_path / "runs")
    (failure,) = run_locally([job], cluster)
    assert cluster.killed >= 4
    assert failure.reason.startswith("Its process ended without a result 4 times; see ")
    assert "\n" not in failure.reason
    assert read_failure(job) == failure
    assert status(job) is Status.FAILED
    assert Run(job.folder).history == before != []
    assert run_locally([job]) == []
    assert_same_run(job.folder, plain)


class Burst(StopAfter):
    """Stops a run after so many steps, by an error."""

    def step(self, epoch: int, done: int, total: int) -> None:
        self.done += 1
        if self.done == self.steps:
            raise RuntimeError(f"epoch {epoch}, step {done} of {total}")


@needs_submitit
@needs_proc
@pytest.mark.slow
def test_a_failing_run_does_not_stop_the_others(tmp_path: Path) -> None:
    good = small_grid(tmp_path / "runs")[0]
    (tmp_path / "empty").mkdir()
    (bad,) = make_grid(tmp_path / "runs", tiny(data__source=str(tmp_path / "empty")), objectives=["ce"], seeds=[0])
    (failure,) = run_locally([bad, good], workers=1)
    assert failure.job == bad
    assert "empty" in failure.reason
    assert [status(bad), status(good)] == [Status.FAILED, Status.DONE]


@needs_slurm
@needs_submitit
@pytest.mark.slow
def test_a_grid_on_slurm_equals_one_without(tmp_path: Path) -> None:
    jobs, heard = small_grid(tmp_path / "runs")[:2], Heard()
    plain = [train_run(job.config, tmp_path / "plain" / job.folder.name).path for job in jobs]
    assert run_on_slurm(jobs, options=SlurmOptions(time=5), callback=heard) == []
    assert sorted(heard.ends) == sorted(job.folder for job in jobs)
    for job, other in zip(jobs, plain, strict=True):
        assert_same_run(job.folder, other)


# What submitit is not needed for: an executor whose jobs are only files.


class Paths:
    def __init__(self, folder: Path, job_id: str) -> None:
        self.job_id, self.stderr = job_id, folder / f"{job_id}_0_log.err"
        self.result_pickle = folder / f"{job_id}_0_result.pkl"


class Submitted:
    def __init__(self, folder: Path, job_id: str) -> None:
        self.job_id, self.paths = job_id, Paths(folder, job_id)


class Scripted:
    """A cluster of which every word is scripted; it is its own executor."""

    def __init__(self, *, most: int = 99, answer: str = "RUNNING") -> None:
        self.attempts: list[Attempt] = []
        self.most, self.answer, self.folder = most, answer, Path()
        self.known: dict[str, str] = {}

    def executor(self, folder: Path) -> Any:
        self.folder = folder
        return self

    def submit(self, attempt: Attempt) -> Any:
        if sum(state == "RUNNING" for state in self.known.values()) >= self.most:
            raise RuntimeError(
                "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: limit"
            )
        self.attempts.append(attempt)
        job_id = str(len(self.attempts))
        self.known[job_id] = self.answer
        return Submitted(self.folder, job_id)

    def states(self) -> dict[str, str] | None:
        return self.known


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return small_grid(tmp_path)[0]


def drain(engine: SlurmEngine) -> list[Any]:
    """Return the first ends that an engine reports."""
    for _ in range(50):
        if events := [event for event in engine.wait(0.01) if event.content != "started"]:
            return events
    raise AssertionError("nothing ended")


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("TIMEOUT", "lost", "was ended by SLURM (TIMEOUT)"),
        ("NODE_FAIL", "lost", "was ended by SLURM (NODE_FAIL)"),
        ("CANCELLED", "failed", "Its SLURM job 1 was cancelled; the same command submits it again."),
        ("OUT_OF_MEMORY", "failed", "Its SLURM job 1 ran out of memory; raise mem in --slurm."),
    ],
)
def test_what_slurm_says_of_a_job_is_said(
    job: Job, state: str, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_slurm, "QUEUE_SECONDS", 0.0)
    cluster = Scripted()
    engine = SlurmEngine(cluster, threads=1)
    engine.submit(job)
    assert engine.wait(0.01) == []
    cluster.known["1"] = state
    assert engine.wait(0.01) == []  # it may be on its way back into the queue
    (event,) = engine.wait(0.01)
    assert (event.content.kind, event.content.reason) == (kind, words)
    assert (read_failure(job) is not None) == (kind == "failed")


def test_a_requeued_job_is_not_lost(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_slurm, "QUEUE_SECONDS", 0.0)
    cluster = Scripted()
    engine = SlurmEngine(cluster, threads=1)
    engine.submit(job)
    for state in ("PREEMPTED", "PENDING", "NODE_FAIL", "PENDING", "RUNNING", "COMPLETING"):
        cluster.known["1"] = state
        assert engine.wait(0.01) == []
    monkeypatch.setattr(cluster, "states", lambda: None)  # the controller is away for a while
    for _ in range(5):
        assert engine.wait(0.01) == []


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    one, other = small_grid(tmp_path)[:2]
    cluster = Scripted(most=1)
    engine = SlurmEngine(cluster, threads=1)
    engine.submit(one)
    engine.submit(other)
    assert len(cluster.attempts) == 1
    assert not engine.has_room
    one.folder.mkdir(parents=True)
    (one.folder / "summary.json").touch()
    cluster.known["1"] = "COMPLETED"
    assert [event.job for event in drain(engine)] == [one]
    engine.wait(0.01)
    assert len(cluster.attempts) == 2
    assert engine.has_room


def test_a_refusal_is_one_sentence(job: Job) -> None:
    class Refusing(Scripted):
        def submit(self, attempt: Attempt) -> Any:
            del attempt
            raise RuntimeError(
                "Command failed\nsbatch: error: invalid partition specified: gpu\nsbatch: error: Batch job "
                "submission failed: Invalid partition name specified"
            )

    with pytest.raises(
        EvenhandError, match=r"^SLURM refused a job: .*Invalid partition name specified; jobs that"
    ) as refused:
        SlurmEngine(Refusing(), threads=1).submit(job)
    assert "\n" not in str(refused.value)


def test_status_names_the_jobs_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = small_grid(tmp_path)[:3]
    engine = SlurmEngine(Scripted(), threads=1)
    for job in jobs[:2]:
        engine.submit(job)
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\necho '1 PENDING'\necho '2 COMPLETED'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=os.pathsep)
    show_status(jobs)
    lines = capsys.readouterr().out.splitlines()
    assert "missing (SLURM job 1 pending)" in next(line for line in lines if jobs[0].folder.name in line)
    assert all("SLURM" not in line for line in lines if jobs[0].folder.name not in line)
    squeue.write_text("#!/bin/sh\nexit 1\n")
    assert queued_jobs(jobs) == {
        job.folder: f"SLURM job {place}, but squeue does not answer" for place, job in enumerate(jobs[:2], start=1)
    }
    squeue.write_text("#!/bin/sh\ntouch asked\n")
    assert queued_jobs(jobs[2:]) == {}
    assert not Path("asked").exists()


def test_a_job_in_the_queue_is_found_again_but_an_old_one_is_not(job: Job) -> None:
    pytest.importorskip("submitit")
    cluster = Scripted()
    write_failure(on_slurm.Failure(job, "an old one"))
    SlurmEngine(cluster, threads=1).submit(job)
    assert read_failure(job) is None
    SlurmEngine(cluster, threads=1).submit(job)
    assert len(cluster.attempts) == 1
    cluster.known["1"] = "FAILED"
    SlurmEngine(cluster, threads=1).submit(job)
    assert len(cluster.attempts) == 2
    job.submission.write_text("[]")
    SlurmEngine(cluster, threads=1).submit(job)
    assert len(cluster.attempts) == 3


def test_a_run_that_someone_else_works_on_is_busy(job: Job) -> None:
    cluster = Scripted()
    engine = SlurmEngine(cluster, threads=1)
    engine.submit(job)
    with claimed(job.folder):
        (cluster.folder / "1_0_result.pkl").touch()
        (event,) = drain(engine)
    assert event.content.kind == "busy"


def test_a_run_without_progress_is_not_requeued_forever(job: Job) -> None:
    submitit = pytest.importorskip("submitit")
    attempt = Attempt(job, "", 1)
    for _ in range(IDLE_ATTEMPTS - 1):
        assert isinstance(attempt.checkpoint(), submitit.helpers.DelayedSubmission)
    train_run(job.config.model_copy(update={"epochs": 1}), job.folder)
    for _ in range(IDLE_ATTEMPTS):
        again = attempt.checkpoint()
    assert again.function is attempt
    with pytest.raises(EvenhandError, match="stopped 3 times in a row before an epoch was finished; give it more time"):
        attempt.checkpoint()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("partition", "--slurm is KEY=VALUE joined by commas, such as partition=gpu,time=60, got 'partition'."),
        ("partition=", "got 'partition='"),
        ("partition=gpu,,time=5", "got 'partition=gpu,,time=5'"),
        ("nodes=2", "--slurm has no key 'nodes'; it has partition, time, "),
        ("time=5,time=6", "--slurm has time twice"),
        ("time=0", "The time of --slurm must be a minute or more, as minutes, HH:MM:SS or D-HH:MM:SS, got '0'."),
        ("time=1h", "got '1h'"),
        ("cpus=0", "The cpus of --slurm must be a whole number from 1 to 1024, got '0'."),
        ("gpus=2", "must be 0 or 1, since each run uses one device, got '2'"),
        ("mem=lots", "such as 8G, got 'lots'"),
        ("partition=a b", "The partition of --slurm must be a name without spaces, got 'a b'."),
        ("partition=a\n#SBATCH --uid=0", "must be a name without spaces"),
    ],
)
def test_options_are_checked_before_anything_else(text: str, words: str) -> None:
    with pytest.raises(EvenhandError) as refused:
        parse_slurm_options(text)
    assert words in str(refused.value)


def test_options_become_those_of_sbatch() -> None:
    submitit = pytest.importorskip("submitit.slurm.slurm")
    options = parse_slurm_options("partition=gpu,time=1-0,account=a,gpus=1,mem=8G,reservation=r,constraint=a100|h100")
    script = submitit._make_sbatch_string(command="do", folder="/tmp/x", **options.to_sbatch(threads=3))
    for line in (
        "#SBATCH --partition=gpu",
        "#SBATCH --time=1440",
        "#SBATCH --cpus-per-task=3",
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --mem=8G",
        "#SBATCH --requeue",
        "#SBATCH --reservation=r",
        "#SBATCH --constraint='a100|h100'",
        "#SBATCH --signal=USR2@90",
    ):
        assert line in script.splitlines()
    short = parse_slurm_options("cpus=4,time=2").to_sbatch(threads=1)
    assert (short["cpus_per_task"], short["signal_delay_s"]) == (4, 30)
    assert parse_slurm_options("") == SlurmOptions()


def test_what_is_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_cluster, "import_submitit", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        EvenhandError, match=r"^--engine slurm needs the command sbatch, which is not found; use a login"
    ):
        check_engine("slurm")

    def missing(_: str) -> Any:
        raise ImportError

    monkeypatch.undo()
    monkeypatch.setattr(slurm_cluster, "import_module", missing)
    with pytest.raises(EvenhandError, match=r"^A grid on SLURM needs the package submitit: pip install "):
        require_slurm()


def test_options_of_other_engines_are_refused() -> None:
    with pytest.raises(EvenhandError, match="--slurm time=5 needs --engine slurm"):
        check_engine("local", slurm="time=5")
    with pytest.raises(EvenhandError, match="needs --engine ray"):
        check_engine("slurm", slurm="time=5", address="auto")
    with pytest.raises(EvenhandError, match="The engine is local, ray or slurm, got 'pbs'"):
        check_engine("pbs")
