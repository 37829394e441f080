"""Fetching and unpacking: complete and verified, or nothing and one sentence."""

import gzip
import hashlib
import io
import os
import socket
import stat
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

from evenhand.core.errors import EvenhandError
from evenhand.data import download as download
from evenhand.data.download import Remote, fetch, unpack, verify

CONTENT = gzip.compress(load_digits().data.astype("uint8").tobytes(), mtime=0)
MD5 = "md5:" + hashlib.md5(CONTENT).hexdigest()
SHA256 = "sha256:" + hashlib.sha256(CONTENT).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved/digits.gz":
            self.send_response(302)
            self.send_header("Location", "/digits.gz")
            self.end_headers()
            return
        if self.path == "/missing/digits.gz":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized/digits.gz":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:1000] if self.path == "/short/digits.gz" else CONTENT)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("place", ["", "/moved", "/unsized"])
@pytest.mark.parametrize("checksum", [MD5, SHA256])
def test_a_good_file_arrives(server: str, tmp_path: Path, place: str, checksum: str) -> None:
    folder = tmp_path / "new" / "folder"
    fetch("digits", [Remote(f"{server}{place}/digits.gz", checksum)], folder)
    assert (folder / "digits.gz").read_bytes() == CONTENT
    assert os.listdir(folder) == ["digits.gz"]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "digits.gz").write_bytes(b"mine")
    fetch("digits", [Remote("http://127.0.0.1:1/digits.gz", MD5)], tmp_path)
    assert (tmp_path / "digits.gz").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("place", "checksum", "message"),
    [
        ("", MD5[:-1] + "x", "is not the known digits.gz of digits .its md5 differs.; try again later, or put"),
        ("", SHA256[:-1] + "x", "its sha256 differs"),
        ("/short", MD5, rf"the connection broke after 1,000 of {len(CONTENT):,} bytes"),
        ("/missing", MD5, "the server answered 404"),
    ],
)
def test_a_bad_file_leaves_nothing(server: str, tmp_path: Path, place: str, checksum: str, message: str) -> None:
    with pytest.raises(EvenhandError, match=message) as caught:
        fetch("digits", [Remote(f"{server}{place}/digits.gz", checksum)], tmp_path)
    assert str(caught.value).endswith(f"put digits.gz into {tmp_path}.")
    assert os.listdir(tmp_path) == []


def test_nobody_answers(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EvenhandError, match="connection refused"):
        fetch("digits", [Remote(f"http://127.0.0.1:{port}/digits.gz", MD5)], tmp_path)
    assert os.listdir(tmp_path) == []


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def urlopen(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError(socket.gaierror(-3, "Temporary failure in name resolution"))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    remotes = [Remote("http://nowhere/a.mat", MD5), Remote("http://nowhere/b.mat", MD5)]
    with pytest.raises(EvenhandError) as caught:
        fetch("svhn", remotes, tmp_path)
    assert str(caught.value) == f"Cannot download svhn (no network); put a.mat and b.mat into {tmp_path}."


def test_a_silent_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_TIMEOUT", 0.2)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(EvenhandError, match="no answer in time"):
            fetch("digits", [Remote(f"http://127.0.0.1:{mute.getsockname()[1]}/digits.gz", MD5)], tmp_path)


def test_a_folder_that_cannot_be_written(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EvenhandError, match="Cannot write"):
        fetch("digits", [Remote(f"{server}/digits.gz", MD5)], tmp_path / "file")


def test_the_progress_bar_is_for_terminals(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch("digits", [Remote(f"{server}/digits.gz", MD5)], tmp_path / "pipe")
    assert capsys.readouterr() == ("", "")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    fetch("digits", [Remote(f"{server}/digits.gz", MD5)], tmp_path / "terminal")
    assert "Downloading digits.gz" in sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert capsys.readouterr().out == ""


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_unpack(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "set.zip", ("set/", b""), ("set/a/1.txt", b"one"), ("readme", b"x"))
    unpack(archive, tmp_path / "root" / "set")
    assert (tmp_path / "root" / "set" / "a" / "1.txt").read_bytes() == b"one"
    assert os.listdir(tmp_path / "root") == ["set"]


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "member", ["../evil", "set/../../evil", "/etc/evil", "..\\evil", "set\\..\\..\\evil", link("set/evil")]
)
def test_members_that_leave_are_refused(tmp_path: Path, member: str | zipfile.ZipInfo) -> None:
    archive = zipped(tmp_path / "set.zip", ("set/a", b"a"), (member, b"/etc/passwd"))
    (tmp_path / "root").mkdir()
    with pytest.raises(EvenhandError, match="would leave its folder"):
        unpack(archive, tmp_path / "root" / "set")
    assert os.listdir(tmp_path / "root") == []
    assert sorted(os.listdir(tmp_path)) == ["root", "set.zip"]


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(tmp_path / "set.zip", ("set/a", bytes(3_000_000)))
    assert archive.stat().st_size < 10_000
    monkeypatch.setattr(download, "_MOST_BYTES", 1_000_000)
    with pytest.raises(EvenhandError, match="would unpack to 3,000,000 bytes"):
        unpack(archive, tmp_path / "root" / "set")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("damage", ["cut", "text", "byte", "other"])
def test_damaged_archives_leave_nothing(tmp_path: Path, damage: str) -> None:
    archive = zipped(tmp_path / "set.zip", ("other/a" if damage == "other" else "set/a", os.urandom(5000)))
    content = archive.read_bytes()
    changed = {"cut": content[:3000], "text": b"<html>", "byte": content[:2000] + b"?!" + content[2002:]}
    archive.write_bytes(changed.get(damage, content))
    (tmp_path / "root").mkdir()
    with pytest.raises(EvenhandError, match=r"set\.zip"):
        unpack(archive, tmp_path / "root" / "set")
    assert os.listdir(tmp_path / "root") == []


def test_verify(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(CONTENT)
    assert verify(tmp_path / "file", MD5)
    assert verify(tmp_path / "file", SHA256)
    assert not verify(tmp_path / "file", "md5:" + "0" * 32)
