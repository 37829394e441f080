"""`evenhand doctor` says what is here, what computes the loss, and why."""

import json
import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evenhand.losses import set_backend
from evenhand.losses.kernels import backend, native
from evenhand.training import doctor
from tests.trained import evenhand

Capture, Patch = pytest.CaptureFixture[str], pytest.MonkeyPatch


def asked(capsys: Capture, patch: Patch) -> dict:
    code, out, err = evenhand(capsys, patch, "doctor", "--json")
    assert code == 0, err
    return json.loads(out)


def test_one_screen_with_everything(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("EVENHAND_DATA", str(tmp_path / "nowhere" / "data"))
    code, out, _ = evenhand(capsys, monkeypatch, "doctor")
    assert code == 0
    assert len(out.splitlines()) <= 24
    for part in (
        platform.python_version(),
        torch.__version__,
        "native",
        "triton",
        "data",
        "does not exist yet",
        "GB free",
    ):
        assert part in out
    assert str(tmp_path / "nowhere" / "data") in out


def test_json_holds_the_same(capsys: Capture, monkeypatch: Patch) -> None:
    found = asked(capsys, monkeypatch)
    assert found["versions"]["torch"] == torch.__version__
    assert found["backend"] == "auto"
    by_name = {each["name"]: each for each in found["backends"]}
    kernel = "native" if native.level else "eager"
    assert [name for name, each in by_name.items() if "cpu" in each["used_for"]] == [kernel]
    assert by_name["native"]["why_not"] == native.why_not
    assert all(folder["writable"] for folder in found["folders"] if folder["use"] == "cache")


def test_a_choice_is_named_as_the_reason(capsys: Capture, monkeypatch: Patch) -> None:
    set_backend("eager")
    try:
        found = {each["name"]: each for each in asked(capsys, monkeypatch)["backends"]}
    finally:
        set_backend("auto")
    assert found["eager"]["used_for"] == ["cpu"]
    assert found["native"]["used_for"] == []
    assert found["native"]["why_not"]


def test_a_kernel_that_was_not_built(capsys: Capture, monkeypatch: Patch) -> None:
    for name, value in (("level", 0), ("why_not", "it was not built")):
        monkeypatch.setattr(native, name, value)
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    set_backend("auto")
    try:
        found = asked(capsys, monkeypatch)
        code, out, _ = evenhand(capsys, monkeypatch, "doctor")
    finally:
        monkeypatch.undo()
        set_backend("auto")
    assert backend.chosen.cpu == ("native" if native.level else "eager")
    assert code == 0
    assert "native: not used: it was not built" in out
    assert "C compiler" in [each["name"] for each in found["missing"]]


def test_what_an_extra_lacks_is_named_with_the_command(monkeypatch: Patch) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: None if name == "ray" else "1.0")
    assert [(each.name, each.how) for each in doctor.examine().missing] == [("ray", "pip install 'ray>=2.9'")]


def test_the_environment_variable(monkeypatch: Patch) -> None:
    """It is read when the kernels are imported, so they are read anew here."""
    monkeypatch.setenv("EVENHAND_BACKEND", "eager")
    anew = runpy.run_path(backend.__file__)
    assert (anew["get_backend"](), anew["chosen"].cpu) == ("eager", "eager")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("eager", "backend 'eager'", marks=pytest.mark.slow),
        ("fast", "backend must be one of auto, eager"),
    ],
)
def test_the_environment_variable_of_a_process(value: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evenhand", "doctor"],
        env=os.environ | {"EVENHAND_BACKEND": value},
        capture_output=True,
        text=True,
    )
    assert shown in done.stdout + done.stderr
    assert (done.returncode == 0) == (value == "eager")
    assert "Traceback" not in done.stderr
