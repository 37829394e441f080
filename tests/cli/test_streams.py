"""Standard streams that are closed, full, or of an encoding with few letters: no exception, and no silent loss."""

import io
import os
import sys
from pathlib import Path

import pytest

from evenhand.cli import main
from tests.trained import Trained

COMMANDS = [
    "predict {run} {image}",
    "inspect {photos}",
    "objectives",
    "config show",
    "cache",
    "evaluate {run}",
    "guide",
]
Patch = pytest.MonkeyPatch


def run(command: str, photos_run: Trained, monkeypatch: Patch) -> int:
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    places = {"run": photos_run.run, "photos": photos_run.photos, "image": image}
    monkeypatch.setattr(sys, "argv", ["evenhand", *(part.format(**places) for part in command.split())])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0  # type: ignore[return-value]


@pytest.mark.parametrize("closed", [("stdout",), ("stderr",), ("stdout", "stderr")], ids=str)
@pytest.mark.parametrize("command", COMMANDS)
def test_closed_streams(photos_run: Trained, command: str, closed: tuple[str, ...], monkeypatch: Patch) -> None:
    """As with `>&-` in a shell, or without a console on Windows."""
    for name in closed:
        monkeypatch.setattr(sys, name, None)
    assert run(command, photos_run, monkeypatch) == 0


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.parametrize("command", COMMANDS)
def test_streams_with_few_letters(photos_run: Trained, command: str, encoding: str, monkeypatch: Patch) -> None:
    """The bars of a table are no letters of a Windows code page."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    assert run(command, photos_run, monkeypatch) == 0
    assert written.getvalue()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_for_stdout(
    photos_run: Trained, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - to close it is to write what is left
    monkeypatch.setattr(sys, "stdout", full)
    assert run(command, photos_run, monkeypatch) == 2
    assert capsys.readouterr().err.endswith("evenhand: No space left on device.\n")
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space"):
        full.close()
