"""The end of a command says what it keeps on disk."""

import os
import shutil
from pathlib import Path

import pytest

from evenhand.runs.kept import readable_size
from tests.trained import Trained, evenhand


def test_a_command_says_what_it_keeps(
    photos_run: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(photos_run.run, tmp_path / "run")
    code, out, err = evenhand(capsys, monkeypatch, "train", "--resume", str(run))
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("kept: ")]
    (run / "report.html").stat()
    total = sum(os.lstat(path).st_size for path in run.rglob("*") if path.is_file())
    assert line.startswith(f"kept: {readable_size(total)}: ")
    assert "weights/" in line
