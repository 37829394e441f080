"""Whatever a name stands for, writing to it does what is meant, or is refused in one true sentence."""

import contextlib
import errno
import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_bytes, read_json, replacing, write_csv, write_json, write_text

KINDS = [
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EFBIG,
    errno.EBUSY,
    errno.EISDIR,
    errno.EIO,
    errno.EMFILE,
    errno.ENAMETOOLONG,
    errno.ESTALE,
    errno.ENOTDIR,
]


def sentence(caught: pytest.ExceptionInfo[EvenhandError]) -> str:
    text = str(caught.value)
    assert text.count(".") >= 1
    assert text.endswith(".")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("number", KINDS)
@pytest.mark.parametrize("moment", ["making", "writing", "renaming"])
def test_any_failure_to_write_is_one_true_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, moment: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    if moment != "writing":
        monkeypatch.setattr({"making": "tempfile.mkstemp", "renaming": "os.replace"}[moment], fail)
    with pytest.raises(EvenhandError) as caught, replacing(tmp_path / "x") as temporary:  # noqa: PT012
        temporary.write_text("half")
        fail()
    text = sentence(caught)
    assert text.startswith(f"Cannot write {tmp_path / 'x'}: {os.strerror(number)}; ")
    assert ("free some space" in text) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(104, "reset"),
        TimeoutError(110, "slow"),
        socket.gaierror(-2, "no such name"),
        OSError(errno.EHOSTUNREACH, "no route"),
        FileNotFoundError(2, "no such file", "source.png"),
        ValueError("else"),
    ],
)
def test_what_fails_elsewhere_is_not_called_a_failure_to_write(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)), replacing(tmp_path / "x"):
        raise error
    assert list(tmp_path.iterdir()) == []


def test_of_a_link_the_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, dangling = tmp_path / "folder" / "target.txt", tmp_path / "folder" / "new.txt"
    target.write_text("old")
    for name, leads_to in (("link", target), ("dangling", dangling), ("of a link", tmp_path / "link")):
        (tmp_path / name).symlink_to(leads_to)
        write_text(tmp_path / name, f"by {name}")
        assert (tmp_path / name).is_symlink()
    assert (target.read_text(), dangling.read_text()) == ("by of a link", "by dangling")
    assert sorted(path.name for path in (tmp_path / "folder").iterdir()) == ["new.txt", "target.txt"]
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(EvenhandError, match="Cannot write"):
        write_text(tmp_path / "loop", "text")


def test_a_pipe_stays_a_pipe_and_gets_the_text(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    with pytest.raises(EvenhandError, match="Cannot write"):  # nobody reads it, and nobody is waited for
        write_text(pipe, "text")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = threading.Thread(target=write_text, args=(pipe, "text" * 50_000))  # more than a pipe holds
    writer.start()
    while writer.is_alive() or (got and got[-1]):
        with contextlib.suppress(BlockingIOError):
            got.append(os.read(reader, 4096))
    os.close(reader)
    assert b"".join(got).decode() == "text" * 50_000
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        device = Path("/dev/null")
    write_json(device, {"a": 1})
    assert stat.S_ISCHR(device.stat().st_mode)
    with pytest.raises(EvenhandError, match="Cannot write /dev/full: No space left on device; free some space"):
        write_text("/dev/full", "text")


def test_disks_sockets_and_folders_are_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(EvenhandError, match="it is a socket; choose another folder"):
            write_text(tmp_path / "socket", "text")
    for folder in (tmp_path, tmp_path / ".", Path(), Path("/")):
        with pytest.raises(EvenhandError, match="it is a folder"):
            write_text(folder, "text")
    disk = tmp_path / "disk"
    try:
        os.mknod(disk, 0o600 | stat.S_IFBLK, os.makedev(7, 200))
    except PermissionError:
        return
    with pytest.raises(EvenhandError, match="it is a disk"):
        write_text(disk, "text")


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "n" * 300])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(EvenhandError) as caught:
        write_text(tmp_path / name, "text")
    assert "Cannot write" in sentence(caught)


def test_texts_that_are_no_unicode_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="is not a valid character"):
        write_json(tmp_path / "x.json", {"name": "caf\udce9"})
    assert list(tmp_path.iterdir()) == []


def test_rows_keep_every_digit(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", [{"a": 0.1 + 0.2, "b": "x,y"}, {"a": float("nan"), "b": "ä"}])
    assert (tmp_path / "x.csv").read_bytes().decode() == 'a,b\n0.30000000000000004,"x,y"\nnan,ä\n'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "Expecting value"),
        (b"[1]", "expected names and values, got list"),
        (b'{"a": ' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"a": NaN}', "NaN is not a number"),
        (b'{"a": "\xff"}', "invalid start byte"),
        (b"{" + b"[]," * 800_000 + b"}", "Expecting property name"),
        (b'{"a": [' + b"[]," * 2_100_000 + b"[]]}", "2,100,003 lists and objects"),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(EvenhandError, match=told) as caught:
        read_json(tmp_path / "x.json")
    assert sentence(caught).startswith(f"Cannot read {tmp_path / 'x.json'}: ")


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    places: list[Any] = [
        (tmp_path, "folder"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "endless", "not a regular file"),
    ]
    places += [(tmp_path / "gone", "No such file"), (tmp_path / "a\0b", "embedded null")]
    for path, told in places:
        with pytest.raises(EvenhandError, match=told):
            read_bytes(path, 100)
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(EvenhandError, match="it has 101 bytes, more than the limit of 100"):
        read_bytes(tmp_path / "large", 100)
    assert json.loads(json.dumps(read_bytes(tmp_path / "large", 101).decode())) == "\0" * 101
