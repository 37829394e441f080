"""`evenhand serve` as a person types it."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from evenhand import report
from tests.report.served_runs import write_run
from tests.trained import assert_one_sentence, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("lacking", ["starlette", "uvicorn"])
def test_without_the_extra(capsys: Capture, monkeypatch: Patch, tmp_path: Path, lacking: str) -> None:
    loaded = [name for name in sys.modules if name.split(".")[0] == lacking or name == "evenhand.report.serving"]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, lacking, None)  # the import of None fails as that of a missing module does
    monkeypatch.delattr(report, "serving", raising=False)
    assert_one_sentence(
        evenhand(capsys, monkeypatch, "serve", tmp_path), "pip install 'starlette>=0.40' 'uvicorn>=0.30'"
    )


def test_mistakes_are_one_sentence(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    serving = pytest.importorskip("evenhand.report.serving", reason="needs the extra: pip install 'evenhand[serve]'")
    result = evenhand(capsys, monkeypatch, "serve", tmp_path / "nowhere")
    assert_one_sentence(result, "There is no folder")
    with serving.listen("127.0.0.1") as taken:
        port = str(taken.getsockname()[1])
        result = evenhand(capsys, monkeypatch, "serve", tmp_path, "--port", port)
    assert_one_sentence(result, f"Cannot listen on 127.0.0.1:{port}")
    result = evenhand(capsys, monkeypatch, "serve", tmp_path, "--host", "203.0.113.7")
    assert_one_sentence(result, "Cannot listen on 203.0.113.7")


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal only there")
def test_it_prints_where_it_is_and_ends_quietly_with_ctrl_c(tmp_path: Path) -> None:
    pytest.importorskip("evenhand.report.serving", reason="needs the extra: pip install 'evenhand[serve]'")
    write_run(tmp_path / "a")
    command = [sys.executable, "-m", "evenhand", "serve", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        assert "Ctrl-C" in line
        with urllib.request.urlopen(found.group(), timeout=20) as page:
            assert page.status == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode in (0, 130)
    assert (out, err) == ("", "")


def test_who_opens_it_to_others_is_told(capsys: Capture, monkeypatch: Patch, tmp_path: Path) -> None:
    serving = pytest.importorskip("evenhand.report.serving", reason="needs the extra: pip install 'evenhand[serve]'")
    monkeypatch.setattr(serving.uvicorn.Server, "run", lambda *_, **__: None)
    code, out, err = evenhand(capsys, monkeypatch, "serve", tmp_path, "--host", "0.0.0.0")
    assert code == 0
    assert "is served at http://0.0.0.0:" in out
    assert "anyone who can reach 0.0.0.0 can read these runs" in err
    assert evenhand(capsys, monkeypatch, "serve", tmp_path)[2] == ""
