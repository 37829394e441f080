"""`evenhand.compare` as Python users call it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.table import SampleTable
from evenhand.experiments.api import plan_comparison
from evenhand.runs.config import make_config
from tests.experiments.grids import Heard
from tests.trained import draw
from tests.training.runs import tiny


def test_it_compares_and_goes_on_from_the_runs_that_are_there(tmp_path: Path) -> None:
    heard = Heard()
    found = evenhand.compare(config=tiny(epochs=1), objectives=["ce", "cce"], seeds=1, out=tmp_path, callback=heard)
    assert (found.objectives, found.seeds, len(heard.ends)) == (["ce", "cce"], [0], 2)
    assert json.loads((tmp_path / "comparison.json").read_text("utf-8"))["objectives"] == ["ce", "cce"]
    heard = Heard()
    found = evenhand.compare(config=tiny(epochs=1), objectives=["ce", "cce"], seeds=2, out=tmp_path, callback=heard)
    assert (found.seeds, len(heard.ends)) == ([0, 1], 2)
    assert {run.folder for run in found.runs} > set(heard.ends)


def test_the_source_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def count(source: str, **options: Any) -> SampleTable:
        opened.append(source)
        return load_source(source, **options)

    for module in [each for name, each in sys.modules.items() if name.startswith("evenhand.")]:
        if hasattr(module, "load_source"):
            monkeypatch.setattr(module, "load_source", count)
    evenhand.compare(config=tiny(epochs=1), objectives=["ce", "cce"], seeds=2, out=tmp_path, jobs=1)
    assert opened == ["digits"]


def test_a_note_names_what_was_trained_longer(tmp_path: Path) -> None:
    objectives = ["ce", "balanced-softmax+crt:epochs=1"]
    found = evenhand.compare(config=tiny(epochs=1), objectives=objectives, seeds=1, out=tmp_path, jobs=1)
    assert found.objectives == objectives
    assert found.notes[0].startswith("balanced-softmax+crt:epochs=1 was trained longer than the others")


def test_a_run_that_fails_is_named_in_the_notes(tmp_path: Path) -> None:
    found = evenhand.compare(
        config=tiny(epochs=1), objectives=["ce", "cce", "cce:gamma=1e30"], seeds=1, out=tmp_path, jobs=1
    )
    assert found.notes[0].startswith("cce:gamma=1e+30 with seed 0 failed and is left out: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"objectives": ["ce"]}, "at least 2 objectives, got 'ce'"),
        ({"objectives": ["ce", "post-hoc"], "settings": ["select=last"]}, "chooses tau on validation images"),
        ({"seeds": 0}, "at least 1 seed"),
        ({"margin": -1}, "a fraction from 0 to 1, such as 0.01 for one point, got -1"),
        ({"margin": 1.0}, "a fraction from 0 to 1, such as 0.01 for one point, got 1"),
        ({"margin": float("nan")}, "a fraction from 0 to 1, such as 0.01 for one point, got nan"),
        ({"baseline": "ldam"}, "The baseline 'ldam' is not among the objectives"),
        ({"engine": "pbs"}, "The engine is local, ray or slurm, got 'pbs'."),
        ({"engine": "ray", "jobs": 2}, "leave out --jobs 2"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(EvenhandError, match=words):
        evenhand.compare("digits", out=tmp_path / "new", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_classes_that_cannot_be_split_are_refused_before_anything_runs(tmp_path: Path) -> None:
    photos = draw(tmp_path / "photos", {"cat": 6, "dog": 1})
    with pytest.raises(EvenhandError, match="too few images of 'dog' for both training and test; add images"):
        plan_comparison(make_config(data__source=str(photos)), out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
