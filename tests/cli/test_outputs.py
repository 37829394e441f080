"""Whatever `--out` names, each verb writes what is meant into it, or refuses it in one sentence; nothing is lost."""

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trained import Trained, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Command = Callable[[Trained, str], tuple[str, ...]]

FILES: dict[str, Command] = {
    "predict": lambda own, out: ("predict", str(own.run), str(own.photos / "dog" / "0.png"), "--out", f"{out}.csv"),
    "report": lambda own, out: ("report", str(own.run), "--out", f"{out}.html"),
    "export": lambda own, out: ("export", str(own.run), "--onnx", f"{out}.onnx"),
    "inspect": lambda own, out: ("inspect", str(own.photos), "--figure", f"{out}.png"),
    "config": lambda _, out: ("config", "copy", "small", f"{out}.yaml"),
}
FOLDERS: dict[str, Command] = {
    "evaluate": lambda own, out: ("evaluate", str(own.run), str(own.photos), "--out", out),
    "train": lambda own, out: ("train", str(own.photos), "--recipe", "small", "--out", out),
    "compare": lambda own, out: ("compare", str(own.photos), "--recipe", "small", "--out", out),
    "reproduce": lambda _, out: ("reproduce", "figure-distributions", "--out", out),
}


def place(kind: str, folder: Path, ending: str = "") -> Path:
    """Make something of a kind, which no file or folder can be written to; return its path."""
    path = folder / f"it{ending}"
    if kind == "loop":
        path.symlink_to(path)
    elif kind == "below a file":
        (folder / "file").write_text("mine")
        path = folder / "file" / f"it{ending}"
    elif kind == "long name":
        path = folder / ("n" * 300 + ending)
    elif kind == "long path":
        path = folder / Path(*["abcdefghi"] * 500) / f"it{ending}"
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            os.chdir(folder)  # the name of a socket is short
            listening.bind(path.name)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        try:
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 200))
        except PermissionError:
            pytest.skip("only root makes devices")
    elif kind == "folder":
        path.mkdir()
    else:
        (folder / "folder").mkdir()
        path.symlink_to(folder / "folder")
    return path


def kinds(folder: Path) -> dict[str, int]:
    return {path.name: path.lstat().st_mode for path in folder.rglob("*")}


def assert_refused(result: tuple[int, str, str]) -> None:
    code, _, err = result
    assert code == 2
    *begun, told = err.splitlines()
    assert told.startswith("evenhand: ")
    assert told.endswith(".")
    assert all(line.endswith(" ...") for line in begun), "nothing was done before it was told"


@pytest.mark.parametrize("verb", FILES)
@pytest.mark.parametrize(
    "kind", ["folder", "link to a folder", "loop", "below a file", "long name", "long path", "socket", "device"]
)
def test_files(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path, verb: str, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    command = FILES[verb](photos_run, "it")
    path = place(kind, tmp_path, Path(command[-1]).suffix)
    if verb == "report" and "folder" in kind:
        pytest.skip("the page goes into that folder")
    before = kinds(tmp_path)
    assert_refused(evenhand(capsys, monkeypatch, *command[:-1], path))
    assert kinds(tmp_path) == before


@pytest.mark.parametrize("verb", FOLDERS)
@pytest.mark.parametrize("kind", ["pipe", "loop", "below a file", "long name", "long path", "socket", "device"])
def test_folders(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path, verb: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = place(kind, tmp_path)
    before = kinds(tmp_path)
    assert_refused(evenhand(capsys, monkeypatch, *FOLDERS[verb](photos_run, str(path))))
    assert kinds(tmp_path) == before


@pytest.mark.parametrize("verb", ["predict", "inspect"])
@pytest.mark.parametrize("kind", ["dangling link", "link to a file", "null", "pipe"])
def test_what_can_be_written_is_written_through(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path, verb: str, kind: str
) -> None:
    command = FILES[verb](photos_run, "it")
    path, target = tmp_path / command[-1], tmp_path / "new" / "target"
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    if kind == "pipe":
        os.mkfifo(path)
        reader.start()
    elif kind == "null":
        path.symlink_to("/dev/null")
    else:
        path.symlink_to(target)
        if kind == "link to a file":
            target.parent.mkdir()
            target.write_text("old")
    before = stat.S_IFMT(path.lstat().st_mode)
    code, _, err = evenhand(capsys, monkeypatch, *command[:-1], path)
    assert code == 0, err
    assert stat.S_IFMT(path.lstat().st_mode) == before
    if kind == "pipe":
        reader.join(20)
        assert got[0]
    elif kind != "null":
        assert len(target.read_bytes()) > 50
        assert [each.name for each in target.parent.iterdir()] == ["target"]
