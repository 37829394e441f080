"""A folder of photos as a new user has it: train, compare, predict and export, with the real weights."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from evenhand.runs.run import Run
from tests.data.pictures import encode, noise, write
from tests.trained import evenhand

pytestmark = pytest.mark.usefixtures("undrawn")
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
SMALL = (
    "--image-size",
    "64",
    "--epochs",
    "3",
    "--set",
    "compute.accelerator=cpu",
    "--set",
    "compute.precision=float32",
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli") / "photos"
    for k, (name, number) in enumerate({"red": 24, "green": 16}.items()):
        for i in range(number):
            image = noise(100, 130, seed=100 * k + i) // 2
            image[:, :, k] = np.minimum(image[:, :, k].astype(int) + 60, 255)
            write(root, {f"{name}/{i}.jpg": encode(image, "JPEG", quality=90)})
    return root


def test_train_says_in_its_first_line_what_it_does_and_how_to_do_otherwise(
    capsys: Capture, monkeypatch: Patch, photos: Path, tmp_path: Path
) -> None:
    code, _, err = evenhand(capsys, monkeypatch, "train", photos, *SMALL, "--out", tmp_path / "run")
    assert code == 0
    first = err.splitlines()[0]
    assert "photos of 130 x 100 px in the median" in first
    assert "the last layer of lite0+lite1+lite2 on their ImageNet features, one view" in first
    assert "--model lite0 is quicker" in first
    assert "--recipe small" in first
    config = Run(tmp_path / "run").config
    assert (config.model.name, config.model.pretrained, config.start.train) == ("lite0+lite1+lite2", True, "head")
    # All of it, from the trained head.
    code, _, err = evenhand(
        capsys, monkeypatch, "train", photos, *SMALL, "--train", "all", "--weights", tmp_path / "run", "--epochs", "1",
        "--out", tmp_path / "tuned",
    )  # fmt: skip
    assert code == 0, err
    tuned = Run(tmp_path / "tuned")
    assert (tuned.config.start.load, tuned.config.start.train, tuned.config.optimizer.layer_decay) == (
        "all",
        "all",
        0.1,
    )


def test_a_comparison_ends_with_a_model(capsys: Capture, monkeypatch: Patch, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    code, out, _ = evenhand(
        capsys, monkeypatch, "compare", photos, *SMALL, "--objectives", "ce,ldam,cce+mixup", "--seeds", "2",
        "--jobs", "1", "--out", folder,
    )  # fmt: skip
    assert code == 0
    assert "Each seed is tested on a different fold" in " ".join(out.split())
    kept = json.loads((folder / "comparison.json").read_text())
    objective = kept["recommended"] + " (undecided)" * (kept["certainty"] == "undecided")
    for options, told in (((), "seed"), (("--ensemble",), "mean of 2 seeds")):
        code, out, err = evenhand(capsys, monkeypatch, "predict", folder, photos / "red", *options)
        assert code == 0
        (line,) = err.splitlines()
        assert line.startswith(f"evenhand: using the recommended objective {objective}: ")
        assert told in line
        rows = list(csv.DictReader(io.StringIO(out)))
        assert len(rows) == 24
        assert {row["class"] for row in rows} <= {"red", "green"}
