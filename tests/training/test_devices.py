"""Two processes that share a batch train as one does, and judge every test image exactly once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from evenhand.metrics.predictions import load_predictions
from tests.trained import assert_one_sentence

# Batch normalisation would see other batches in two processes than in one, so the network here has none.
SCRIPT = """
import sys

from torch import nn

from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.training import trainer
from evenhand.runs.config import make_config
from evenhand.training.run import train_run


def plain_network(name, *, num_classes, channels, **_):
    body = nn.Sequential(
        nn.Conv2d(channels, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(192, 32), nn.ReLU()
    )
    return Classifier(BodyAndHead(body, nn.Linear(32, num_classes)), name=name, stem="small", num_features=32)


trainer.build_model = plain_network
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


def test_what_devices_cannot_do_is_one_sentence(tmp_path: Path) -> None:
    for option in (["--sync-batchnorm"], ["--devices", "x"]):
        command = [sys.executable, "-m", "evenhand", "train", "digits", "--epochs", "1", *option]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert_one_sentence((done.returncode, done.stdout, done.stderr), option[0].removeprefix("--"))


def test_a_process_without_a_validation_image_waits_for_the_other(tmp_path: Path) -> None:
    """Six images of one class and four of the other leave one for validation, and two for testing."""
    images = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "few.npz", train_images=images, train_labels=[0] * 6 + [1] * 4)
    command = ["-m", "evenhand", "train", "few.npz", "--epochs", "2", "--set", "batch_size=7", "--out", "run"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *launcher, *command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(load_predictions(tmp_path / "run" / "predictions.npz")) == 2
