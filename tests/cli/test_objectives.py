"""What objectives can be made of is listed from the registry, and a second stage is begun from a finished run."""

import json
from pathlib import Path

import pytest

from evenhand.objectives import list_objectives
from evenhand.runs.run import Run
from evenhand.training.run import train_run
from tests.trained import evenhand
from tests.training.runs import tiny

Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def test_every_part_is_listed(capsys: Capture, monkeypatch: Patch) -> None:
    code, out, _ = evenhand(capsys, monkeypatch, "objectives")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 100
    out = " ".join(out.split())
    assert "ldam:margin= a number above 0 and up to 2 (default 0.5): margin of the rarest class, in cosines" in out
    assert "compare --tune also tries label-smoothing:eps=0.05, label-smoothing:eps=0.2" in out
    code, out, _ = evenhand(capsys, monkeypatch, "objectives", "--json")
    assert [part["name"] for part in json.loads(out)] == list_objectives()


@pytest.mark.usefixtures("undrawn")
def test_a_second_stage_on_the_command_line(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    first = train_run(tiny(epochs=1), tmp_path / "first").path
    arguments = ("train", "--from", first, "--stage", "crt", "--epochs", "1", "--out", tmp_path / "second")
    code, _, err = evenhand(capsys, monkeypatch, *arguments)
    assert code == 0, err
    assert "crt:epochs=1: only the last layer is trained" in err
    assert Run(tmp_path / "second").config.start.weights == str(first)
    for wrong in (("--stage", "crt"), ("--from", first), ("--from", first, "--stage", "crt", "--seed", "1")):
        code, _, err = evenhand(capsys, monkeypatch, "train", *wrong)
        assert code == 2
        assert "A second stage is --from RUN --stage crt or lws" in err
    weights = Run(first).best_weights
    _, _, err = evenhand(capsys, monkeypatch, "train", "--from", weights, "--stage", "crt")
    assert f"{weights} is no run: it is a file; give the folder of a run." in err
    Run(first).last_weights.unlink()
    _, _, err = evenhand(capsys, monkeypatch, "train", "--from", first, "--stage", "crt")
    assert err.rstrip().endswith(f"predict and export also take {weights}, the best epoch so far.")


def test_adjusting_on_the_command_line(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    run = train_run(tiny(objective="ce", epochs=2), tmp_path / "run").path
    code, out, _ = evenhand(capsys, monkeypatch, "evaluate", run, "--adjust", "1")
    assert code == 0
    assert "Adjusted after training: post-hoc, tau 1; unadjusted balanced accuracy:" in out
    code, _, err = evenhand(capsys, monkeypatch, "evaluate", run, "digits", "--adjust", "1")
    assert code == 2
    assert "leave SOURCE out" in err
