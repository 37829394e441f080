"""`evenhand config` as a person types it."""

from pathlib import Path

import pytest

from evenhand.runs.config import RECIPES, make_config, read_recipe
from tests.trained import assert_one_sentence, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def test_recipes_are_listed_with_what_they_are_for(capsys: Capture, monkeypatch: Patch) -> None:
    code, out, _ = evenhand(capsys, monkeypatch, "config", "show")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()[1 : 1 + len(RECIPES)]]
    assert [line.split()[0] for line in lines] == list(RECIPES)
    assert "without a GPU" in lines[0]
    assert "#" not in out


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_copied_recipe_is_the_recipe(capsys: Capture, monkeypatch: Patch, tmp_path: Path, recipe: str) -> None:
    code, shown, _ = evenhand(capsys, monkeypatch, "config", "show", recipe)
    assert code == 0
    target = tmp_path / "my.yaml"
    code, out, _ = evenhand(capsys, monkeypatch, "config", "copy", recipe, target)
    assert code == 0
    assert f"--config {target}" in out
    assert target.read_text() == shown == read_recipe(recipe)
    assert make_config("small", target).epochs == make_config(recipe).epochs


def test_nothing_is_overwritten(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    target.write_text("epochs: 7\n")
    assert_one_sentence(evenhand(capsys, monkeypatch, "config", "copy", "small", target), "exists")
    assert target.read_text() == "epochs: 7\n"


def test_mistakes_are_one_sentence(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    assert_one_sentence(evenhand(capsys, monkeypatch, "config", "show", "smal"), "no recipe 'smal'")
    assert_one_sentence(evenhand(capsys, monkeypatch, "config", "copy", "large", tmp_path / "x"), "no recipe 'large'")
    nowhere = tmp_path / "no" / "x.yaml"
    assert_one_sentence(evenhand(capsys, monkeypatch, "config", "copy", "small", nowhere), "Cannot write")
