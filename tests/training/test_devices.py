"""Two processes that share a batch train as one does, and judge every test image exactly once."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from evenhand.cli import main
from evenhand.metrics.predictions import load_predictions
from tests.processes import begin, end_of
from tests.trained import assert_one_sentence, evenhand

# Batch normalisation would see other batches in two processes than in one, so the network here has none.
SCRIPT = """
import sys

from torch import nn

from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.training import network
from evenhand.runs.config import make_config
from evenhand.training.run import train_run


def plain_network(name, *, num_classes, channels, **_):
    body = nn.Sequential(
        nn.Conv2d(channels, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 32), nn.ReLU()
    )
    return Classifier(BodyAndHead(body, nn.Linear(32, num_classes)), name=name, stem="small", num_features=32)


network.build_model = plain_network
objective, out = sys.argv[1:]
settings = ["compute.precision=float32", "batch_size=50", "optimizer.lr=0.05"]
train_run(make_config(objective=objective, epochs=3, data__imbalance="exp:20", settings=settings), out)
"""


def run(script: Path, processes: int, *args: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    done = subprocess.run([sys.executable, *launcher, str(script), *args], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["cce+sampling", "cot"])
def test_two_processes_train_as_one(tmp_path: Path, objective: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for processes in (1, 2):
        run(script, processes, objective, str(tmp_path / f"{processes}"))
    one, two = (load_file(tmp_path / f"{processes}" / "weights" / "last.safetensors") for processes in (1, 2))
    for name, weights in one.items():
        np.testing.assert_allclose(two[name], weights, atol=1e-5, err_msg=name)
    alone, shared = (load_predictions(tmp_path / f"{processes}" / "predictions.npz") for processes in (1, 2))
    assert shared.ids.tolist() == alone.ids.tolist()
    assert (shared.targets == alone.targets).all()
    np.testing.assert_allclose(shared.logits, alone.logits, atol=1e-3)


@pytest.mark.slow
def test_the_command_line_starts_its_processes_itself(tmp_path: Path) -> None:
    command = ["train", "digits", "--imbalance", "exp:20", "--epochs", "2", "--devices", "2", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "evenhand", *command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\nrun: ") == 1
    assert len(load_predictions(tmp_path / "run" / "predictions.npz")) == 359


@pytest.mark.parametrize("option", [("--sync-batchnorm",), ("--devices", "x")])
def test_what_devices_cannot_do_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = evenhand(capsys, monkeypatch, "train", "digits", "--epochs", "1", *option)
    assert_one_sentence(asked, option[0].removeprefix("--"))


@pytest.mark.parametrize("asked", ["900", "1024", "compute.devices=64", "compute.nodes=2", "compute.nodes=1024"])
def test_no_more_devices_than_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    option = ["--set", asked] if "=" in asked else ["--devices", asked]
    found = evenhand(capsys, monkeypatch, "train", "digits", "--epochs", "1", *option)
    assert_one_sentence(found, "more than the 2 cores" if "nodes" not in asked else "torchrun")
    assert not list(tmp_path.iterdir())


def few_images(folder: Path) -> list[str]:
    """Six images of one class and four of the other leave one for validation, and two for testing.

    Returns:
        The arguments of `evenhand` that train on them.
    """
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 1), np.uint8)
    np.savez(folder / "few.npz", train_images=images, train_labels=[0] * 6 + [1] * 4)
    out = str(folder / "run")
    return ["train", str(folder / "few.npz"), "--epochs", "2", "--set", "batch_size=7", "--out", out]


def command_line(arguments: list[str]) -> None:
    sys.argv = ["evenhand", *arguments]
    main()


def test_a_process_without_a_validation_image_waits_for_the_other(tmp_path: Path) -> None:
    """What torchrun would tell two processes is told here; the slow test starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    told |= {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "none"}
    arguments, log = few_images(tmp_path), tmp_path / "log.txt"
    both = [
        begin(command_line, arguments, log=log, environment={**told, "RANK": rank, "LOCAL_RANK": rank})
        for rank in ("0", "1")
    ]
    assert [end_of(process) for process in both] == [0, 0], log.read_text()[-3000:]
    assert len(load_predictions(tmp_path / "run" / "predictions.npz")) == 2
    assert log.read_text().count("\nrun: ") == 1


@pytest.mark.slow
def test_torchrun_starts_them_too(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "evenhand"]
    done = subprocess.run(
        [sys.executable, *launcher, *few_images(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(load_predictions(tmp_path / "run" / "predictions.npz")) == 2
