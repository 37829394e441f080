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
from evenhand.training.checkpoint import load_state, save_state
from evenhand.training.run import resume_run, train_run
from tests.processes import call
from tests.training.endings import KILLED, ctrl_c, terminated
from tests.training.runs import Interrupted, Notes, StopAfter, assert_same_run, files_of, tiny

SIGNALS = {ctrl_c: 130, terminated: 143}
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
    ways = {way.__name__: way for way in (*KILLED, *SIGNALS)}
    ends = {name: call(way, here / name, log=here / f"{name}.txt") for name, way in ways.items()}
    return Broken(here, ends, {name: files_of(here / name) for name in ends})


@needs_fork
@pytest.mark.parametrize(("moment", "epoch"), [(way.__name__, epoch) for way, epoch in KILLED.items()])
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
@pytest.mark.parametrize(("name", "code"), [(way.__name__, code) for way, code in SIGNALS.items()])
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
        monkeypatch.setattr("evenhand.training.network.build_model", network_with_dropout)
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
    monkeypatch.setattr("evenhand.training.network.build_model", network_with_dropout)
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
    monkeypatch.setattr("evenhand.training.fabric.choose_precision", lambda *_: "32-true")
    with pytest.raises(Interrupted):
        train_run(config, tmp_path / "run", callback=StopAfter(10))
    monkeypatch.undo()
    asked = []

    def precision(wanted: str, _: str) -> str:
        asked.append(wanted)
        return "32-true"

    monkeypatch.setattr("evenhand.training.fabric.choose_precision", precision)
    run = resume_run(tmp_path / "run")
    assert asked == ["float32"]
    assert run.config == config
