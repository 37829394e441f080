"""Predictions of validation and calibration images that somebody changed, without checksums to tell by."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.runs import filenames as names
from evenhand.runs.run import Run
from evenhand.training.run import train_run
from tests.trained import Trained, config, draw


@pytest.fixture(scope="module", params=["cce", "ce+post-hoc:tau=1"])
def own(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Trained:
    """Train a run with calibration images."""
    root = tmp_path_factory.mktemp("held-out")
    photos = draw(root / "photos", {"cat, tabby": 70, "dog": 60})
    return Trained(
        train_run(config(photos, data__calibration_fraction=0.3, objective=request.param), root / "run").path, photos
    )


def nan(content: dict[str, np.ndarray]) -> None:
    content["logits"][0, 0] = np.nan


def infinite(content: dict[str, np.ndarray]) -> None:
    content["logits"][:] = np.inf


def reversed_targets(content: dict[str, np.ndarray]) -> None:
    content["targets"] = 1 - content["targets"]


def one_target(content: dict[str, np.ndarray]) -> None:
    content["targets"][0] = 1 - content["targets"][0]


def swapped_targets(content: dict[str, np.ndarray]) -> None:
    right = content["logits"].argmax(1) == content["targets"]
    for k in range(2):  # an image of each class
        content["targets"][np.flatnonzero(right & (content["logits"].argmax(1) == k))[:1]] = 1 - k


def far_targets(content: dict[str, np.ndarray]) -> None:
    content["targets"] = content["targets"] + 7


def negative_targets(content: dict[str, np.ndarray]) -> None:
    content["targets"] = content["targets"] - 3


def zero_counts(content: dict[str, np.ndarray]) -> None:
    content["train_counts"] = content["train_counts"] * 0


def negative_counts(content: dict[str, np.ndarray]) -> None:
    content["train_counts"] = -content["train_counts"]


def other_counts(content: dict[str, np.ndarray]) -> None:
    content["train_counts"] = content["train_counts"][::-1] + 1


def other_images(content: dict[str, np.ndarray]) -> None:
    content["ids"] = content["ids"][::-1].copy()
    content["ids"][0] = "elsewhere.png"


def one_class(content: dict[str, np.ndarray]) -> None:
    content["targets"] = content["targets"] * 0


def shuffled_logits(content: dict[str, np.ndarray]) -> None:
    content["logits"] = content["logits"][:, ::-1]


def same_logits(content: dict[str, np.ndarray]) -> None:
    content["logits"] = content["logits"] * 0


def fractional_counts(content: dict[str, np.ndarray]) -> None:
    content["train_counts"] = content["train_counts"] + 0.5


def fewer_rows(content: dict[str, np.ndarray]) -> None:
    content["logits"] = content["logits"][:-1]


def no_logits(content: dict[str, np.ndarray]) -> None:
    del content["logits"]


CHANGES = [nan, infinite, reversed_targets, far_targets, negative_targets, zero_counts, negative_counts]
CHANGES += [other_counts, other_images, fewer_rows, no_logits]
CHANGES += [one_target, swapped_targets, one_class, shuffled_logits, same_logits, fractional_counts]


CASES = [(name, each) for name in (names.VALIDATION, names.CALIBRATION) for each in CHANGES]


@pytest.mark.parametrize(("name", "change"), CASES)
def test_changed_content_is_refused(own: Trained, tmp_path: Path, name: str, change) -> None:
    folder = shutil.copytree(own.run, tmp_path / "run")
    (folder / names.CHECKSUMS).unlink()
    with np.load(folder / name) as stored:
        content = {key: stored[key].copy() for key in stored.files}
    change(content)
    np.savez(folder / name, **content)
    run = Run(folder)
    with pytest.raises(EvenhandError):
        _ = run.validation_predictions if name == names.VALIDATION else run.calibration_predictions
