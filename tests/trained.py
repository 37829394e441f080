"""A small run on a folder of pictures, trained once, for the tests of what is done with a trained model."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.cli import main
from evenhand.runs.config import Config, make_config
from evenhand.training.run import train_run

COLOURS = {"cat, tabby": (200, 60, 40), "dog": (40, 180, 60), "öwl [bold]": (50, 60, 200)}
COUNTS = {"cat, tabby": 30, "dog": 20, "öwl [bold]": 10}


@dataclass(frozen=True)
class Trained:
    """A finished run and the pictures it was trained on; tests must leave both as they are."""

    run: Path
    photos: Path

    def ids(self) -> list[str]:
        """Return the ids of its test images."""
        with np.load(self.run / "predictions.npz") as content:
            return [str(each) for each in content["ids"]]


def draw(root: Path, counts: dict[str, int], seed: int = 0) -> Path:
    """Write noisy pictures of several shapes, a colour a class."""
    rng = np.random.default_rng(seed)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            shape = (20 + number % 3, 26 - number % 2, 3)
            colour = rng.normal(COLOURS.get(name, (128, 128, 128)), 60)  # so that some are mistaken
            noisy = rng.normal(colour, 40, shape)
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(root / name / f"{number}.png")
    return root


def config(source: Path, **flags: object) -> Config:
    settings = {
        "objective": "cce",
        "data__image_size": 16,
        "epochs": 2,
        "compute__precision": "float32",
        "batch_size": 16,
    }
    return make_config(data__source=str(source), **{**settings, **flags})


def make(folder: Path) -> Trained:
    """Draw pictures and train on them."""
    photos = draw(folder / "photos", COUNTS)
    return Trained(train_run(config(photos), folder / "run").path, photos)


def evenhand(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str | os.PathLike[str]
) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command."""
    monkeypatch.setattr(sys, "argv", ["evenhand", *map(os.fspath, args)])
    monkeypatch.setenv("COLUMNS", "120")
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return (ended.value.code if isinstance(ended.value.code, int) else 0), out, err


def assert_one_sentence(result: tuple[int, str, str], words: str) -> None:
    code, out, err = result
    assert (code, out) == (2, "")
    *begun, told = err.splitlines()
    assert words in told
    assert told.startswith("evenhand: ")
    assert all(line.startswith("evenhand: ") and line.endswith(" ...") for line in begun)  # what was begun before
