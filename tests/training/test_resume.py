"""A run that was stopped or killed, at whatever moment, ends as if nothing had happened."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.runs.config import Config, save_config
from evenhand.training._checkpoint import load_state, save_state
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, Notes, StopAfter, assert_same_run, files_of, tiny

# Each way to end is tried in a process of its own, made by `fork` before torch has done anything: importing torch once
# is what makes this affordable. Steps are counted over the run: 7 an epoch, so the tenth is in the second epoch.
KILLER = """
import json
import os
import pathlib
import signal
import sys

import sklearn.datasets

from evenhand import cli
from evenhand.training import trainer
from evenhand.training.run import train_run
from tests.training.runs import SETTINGS, tiny

here = pathlib.Path(sys.argv[1])


def end(number=signal.SIGKILL):
    os.kill(os.getpid(), number)


def at(count, action):
    calls = iter(range(1, 10**6))
    return lambda: action() if next(calls) == count else None


def before(owner, name, call):
    real = getattr(owner, name)

    def wrapped(*args, **kwargs):
        call()
        return real(*args, **kwargs)

    setattr(owner, name, wrapped)


def mid_epoch(folder):
    before(trainer.Callback, "step", at(10, end))
    train_run(tiny(), folder)


def first_epoch(folder):
    before(trainer.Callback, "step", at(3, end))
    train_run(tiny(), folder)


def before_splits(folder):
    from evenhand.runs.folder import Run

    before(Run, "write_splits", end)
    train_run(tiny(), folder)


def mid_save(folder):
    real, count = pathlib.Path.write_bytes, iter(range(1, 100))

    def half(path, content):
        if ".state.pt." in path.name and next(count) == 2:
            real(path, content[: len(content) // 2])
            end()
        return real(path, content)

    pathlib.Path.write_bytes = half
    train_run(tiny(), folder)


def before_renaming(folder):
    real, count = os.replace, iter(range(1, 100))

    def never(source, target):
        if target.name == "state.pt" and next(count) == 2:
            end()
        real(source, target)

    os.replace = never
    train_run(tiny(), folder)


def between_files(folder):
    from evenhand.runs.folder import Run

    before(Run, "write_history", at(2, end))  # the best weights are those of the second epoch by now
    train_run(tiny(), folder)


def between_epochs(folder):
    before(trainer.Callback, "epoch", at(2, end))
    train_run(tiny(), folder)


def mid_validation(folder):
    before(trainer.Trainer, "_gather", at(4, end))  # three of them are one evaluation
    train_run(tiny(), folder)


def mid_judging(folder):
    from evenhand.training import run

    before(run, "summarise", end)
    train_run(tiny(), folder)


def by_signal(number):
    def run(folder):
        from evenhand.training.objectives.objective import Objective

        before(Objective, "step", at(10, lambda: end(number)))
        options = [part for setting in SETTINGS for part in ("--set", setting)]
        sys.argv = ["evenhand", "train", "digits", "--imbalance", "exp:20", "--epochs", "3", "--out", str(folder)]
        sys.argv += options
        sys.stderr = open(f"{folder}.txt", "w")
        cli.main()

    return run


ways = [mid_epoch, first_epoch, before_splits, mid_save, before_renaming, between_files, between_epochs]
ways += [mid_validation, mid_judging]
ways = {way.__name__: way for way in ways}
ways |= {"ctrl_c": by_signal(signal.SIGINT), "terminated": by_signal(signal.SIGTERM)}
ends = {}
for name, way in ways.items():
    child = os.fork()
    if child == 0:
        try:
            way(here / name)
            os._exit(0)
        except SystemExit as stop:
            sys.stderr.flush()
            os._exit(stop.code)
        except BaseException:
            import traceback

            traceback.print_exc(file=sys.__stderr__)
            os._exit(99)
    ends[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(ends))
"""
KILLED = {
    "mid_epoch": 1,
    "first_epoch": None,
    "before_splits": None,
    "mid_save": 1,
    "before_renaming": 1,
    "between_files": 1,
    "between_epochs": 2,
    "mid_validation": 1,
    "mid_judging": 3,
}
"""A moment, and the last epoch whose state must have survived it."""


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the runs to be killed are forked")


@dataclass(frozen=True)
class Broken:
    """Runs that ended before their time."""

    here: Path
    ends: dict[str, int]
    """How their processes ended."""
    left: dict[str, set[str]]
    """The files each of them left."""


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Broken:
    """End runs in every way."""
    here = tmp_path_factory.mktemp("broken")
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(here)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout.splitlines()[-1])
    return Broken(here, ends, {name: files_of(here / name) for name in ends})


@needs_fork
@pytest.mark.parametrize(("moment", "epoch"), KILLED.items())
def test_kill_costs_at_most_an_epoch(broken: Broken, whole: Path, moment: str, epoch: int | None) -> None:
    folder = broken.here / moment
    assert broken.ends[moment] == -signal.SIGKILL
    assert "summary.json" not in broken.left[moment]
    state = folder / "state" / "state.pt"
    if epoch is None:
        assert not state.exists()
    else:
        assert load_state(state)["epoch"] == epoch
    notes = Notes()
    resume_run(folder, callback=notes)
    assert [row["epoch"] for row in notes.rows] == list(range((epoch or 0) + 1, 4))
    assert_same_run(folder, whole)


@needs_fork
@pytest.mark.parametrize("moment", ["mid_save", "before_renaming"])
def test_a_killed_save_leaves_its_part_under_another_name(broken: Broken, moment: str) -> None:
    parts = [name for name in broken.left[moment] if name.endswith(".part")]
    assert len(parts) == 1
    assert parts[0].startswith("state/.state.pt.")


@needs_fork
@pytest.mark.parametrize(("name", "code"), [("ctrl_c", 130), ("terminated", 143)])
def test_signals_stop_a_run_that_can_be_continued(broken: Broken, whole: Path, name: str, code: int) -> None:
    folder = broken.here / name
    assert broken.ends[name] == code
    said = Path(f"{folder}.txt").read_text().splitlines()
    assert said[-1] == f"evenhand: stopped; continue with evenhand train --resume {folder}"
    assert load_state(folder / "state" / "state.pt")["epoch"] == 1
    assert not any(left == "summary.json" or left.endswith(".part") for left in broken.left[name])
    resume_run(folder)
    assert_same_run(folder, whole)


def network_with_dropout(name: str, *, num_classes: int, channels: int, image_size: int, **_: object) -> Classifier:
    body = nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, 32), nn.ReLU(), nn.Dropout(0.5))
    return Classifier(BodyAndHead(body, nn.Linear(32, num_classes)), name=name, stem="small", num_features=32)


def stopped_run(config: Config, folder: Path, steps: int) -> Path:
    with pytest.raises(Interrupted):
        train_run(config, folder, callback=StopAfter(steps))
    return folder


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"objective": "cot"}, id="two optimizers"),
        pytest.param({"objective": "cot:forwards=1"}, id="one forward"),
        pytest.param({"select": "last", "track_test": True}, id="select last"),
        pytest.param({"model__name": "resnet8", "objective": "focal"}, id="dropout"),
    ],
)
def test_resumed_twice_equals_uninterrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, object]
) -> None:
    if "model__name" in flags:
        monkeypatch.setattr("evenhand.training.trainer.build_model", network_with_dropout)
    config = tiny(**flags)
    plain = train_run(config, tmp_path / "plain").path
    torch.manual_seed(5)  # what else a process drew must not matter
    folder = stopped_run(config, tmp_path / "stopped", steps=9)
    torch.manual_seed(6)
    with pytest.raises(Interrupted):
        resume_run(folder, callback=StopAfter(9))
    assert load_state(folder / "state" / "state.pt")["epoch"] == 2
    torch.manual_seed(7)
    resume_run(folder)
    assert_same_run(folder, plain)


@pytest.mark.parametrize("part", ["rng", "optimizers"])
def test_equality_needs_all_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """The tests above would notice if the random state or a momentum were left out."""
    monkeypatch.setattr("evenhand.training.trainer.build_model", network_with_dropout)
    config = tiny(model__name="resnet8", objective="cot", epochs=2)
    plain = train_run(config, tmp_path / "plain").path
    folder = stopped_run(config, tmp_path / "stopped", steps=9)
    path = folder / "state" / "state.pt"
    state = load_state(path)
    if part == "rng":
        state["rng"] = torch.Generator().manual_seed(1).get_state()
    else:
        for buffers in state["optimizers"][1]["state"].values():
            buffers["momentum_buffer"].zero_()
    save_state(path, state)
    resume_run(folder)
    last = "weights/last.safetensors"
    assert (folder / last).read_bytes() != (plain / last).read_bytes()


def test_finished_run_is_left_as_it_is(whole: Path) -> None:
    before = {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)}
    notes = Notes()
    assert resume_run(whole, callback=notes).summary.epochs == 3
    assert {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)} == before
    assert notes.rows == []


def test_changed_images_are_refused(tmp_path: Path) -> None:
    folder = stopped_run(tiny(), tmp_path / "run", steps=9)
    splits = json.loads((folder / "splits.json").read_text())
    splits["train"].pop()
    (folder / "splits.json").write_text(json.dumps(splits))
    with pytest.raises(EvenhandError, match=r"^digits has changed since .* began; start the run anew\.$"):
        resume_run(folder)


@pytest.mark.slow
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """A run of many epochs is killed again and again, whenever it happens to be."""
    config = tiny(epochs=60)
    plain = train_run(config, tmp_path / "plain").path
    folder = tmp_path / "killed"
    save_config(config, folder / "config.yaml")
    rng, kills = np.random.default_rng(0), 0
    script = f"from evenhand.training.run import resume_run; print('go', flush=True); resume_run({str(folder)!r})"
    while not (folder / "summary.json").exists():
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.5, 2.5) if kills < 12 else 120)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 3
    assert_same_run(folder, plain)


def test_a_run_is_continued_in_the_precision_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that would choose another one."""
    config = tiny("compute.precision=auto")
    monkeypatch.setattr("evenhand.training.run._precision", lambda *_: "32-true")
    with pytest.raises(Interrupted):
        train_run(config, tmp_path / "run", callback=StopAfter(10))
    monkeypatch.undo()
    asked = []

    def precision(wanted: str, _: str) -> str:
        asked.append(wanted)
        return "32-true"

    monkeypatch.setattr("evenhand.training.run._precision", precision)
    run = resume_run(tmp_path / "run")
    assert asked == ["float32"]
    assert run.config == config
