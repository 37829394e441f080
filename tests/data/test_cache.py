"""Decoded pixels on disk: found again, noticed when stale, rebuilt when damaged, done without when they must be."""

import errno
import logging
import os
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.data import _cache as disk
from evenhand.data import reading
from evenhand.data.images import MemoryImages, StreamedImages, open_images
from evenhand.data.table import SampleTable
from tests.processes import begin, end_of

from .pictures import encode, noise, table_of, write, written

FILES = {f"{label}/{i}.png": noise(8, 8, seed=10 * i + (label == "b")) for label in "ab" for i in range(6)}


@pytest.fixture
def table(tmp_path: Path) -> SampleTable:
    return written(tmp_path / "data", FILES)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were decoded, as a list that grows."""
    names: list[str] = []
    read = reading.read_image

    def noted(path: str, *args: object, **options: object) -> object:
        names.append(path)
        return read(path, *args, **options)

    monkeypatch.setattr(reading, "read_image", noted)
    return names


def check(images: object) -> None:
    assert isinstance(images, MemoryImages)
    for row, image in enumerate(FILES.values()):
        assert (images[row] == image).all()


def test_the_second_time_nothing_is_decoded(tmp_path: Path, table: SampleTable, decoded: list[str]) -> None:
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(decoded) == 12
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(decoded) == 12
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_moved_folder_is_recognised(tmp_path: Path, table: SampleTable, decoded: list[str]) -> None:
    open_images(table, cache=tmp_path / "cache")
    (tmp_path / "data").rename(tmp_path / "moved")
    check(open_images(table_of(tmp_path / "moved", list(FILES)), cache=tmp_path / "cache"))
    assert len(decoded) == 12


@pytest.mark.parametrize("change", ["time", "content", "size", "order", "boxes"])
def test_a_change_is_noticed(tmp_path: Path, table: SampleTable, decoded: list[str], change: str) -> None:
    open_images(table, cache=tmp_path / "cache")
    path = tmp_path / "data/a/3.png"
    found = path.stat()
    paths, boxes, image_size = list(FILES), None, None
    if change == "time":
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    elif change == "content":
        path.write_bytes(encode(noise(8, 8, seed=99)) + b"\0")
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))  # even if its time is put back
    elif change == "size":
        image_size = 8
    elif change == "order":
        paths.reverse()
    else:
        boxes = np.tile([0, 0, 8, 8], (12, 1))
    images = open_images(table_of(tmp_path / "data", paths, boxes), cache=tmp_path / "cache", image_size=image_size)
    assert len(decoded) == 24
    if change == "content":
        assert (images[3] == noise(8, 8, seed=99)).all()


def entry(folder: Path) -> Path:
    (path,) = folder.glob("*.pixels")
    return path


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_truncated_entry_is_rebuilt(
    tmp_path: Path, table: SampleTable, decoded: list[str], caplog: pytest.LogCaptureFixture, share: float
) -> None:
    open_images(table, cache=tmp_path / "cache")
    path = entry(tmp_path / "cache")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(decoded) == 24
    assert "decoded again" in caplog.text
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(decoded) == 24


def test_no_flipped_bit_changes_a_pixel(tmp_path: Path, table: SampleTable) -> None:
    """Wherever a byte of the file is damaged: the right pixels come out, from the file or decoded again."""
    open_images(table, cache=tmp_path / "cache")
    whole = entry(tmp_path / "cache").read_bytes()
    rebuilt = 0
    for position in range(0, len(whole), 7):
        path = entry(tmp_path / "cache")
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        check(open_images(table, cache=tmp_path / "cache", workers=1))
        rebuilt += path.read_bytes() != bytes(changed)
    assert rebuilt > 300


def test_an_entry_of_something_else_is_not_believed(tmp_path: Path, table: SampleTable) -> None:
    open_images(table, cache=tmp_path / "cache")
    path = entry(tmp_path / "cache")
    write(tmp_path / "data", {name: 255 - image for name, image in FILES.items()})
    open_images(table, cache=tmp_path / "other")
    path.write_bytes(entry(tmp_path / "other").read_bytes())
    write(tmp_path / "data", FILES)
    for name in FILES:  # the times of the first files
        os.utime(tmp_path / "data" / name, ns=(0, 0))
    assert disk.load_entry(tmp_path / "cache", path.stem, 12) is None
    check(open_images(table, cache=tmp_path / "cache"))


def test_nothing_pickled_is_in_an_entry(tmp_path: Path, table: SampleTable) -> None:
    open_images(table, cache=tmp_path / "cache")
    with zipfile.ZipFile(entry(tmp_path / "cache")) as archive:
        assert archive.namelist() == ["header.json", "sizes", "pixels"]
        assert archive.read("pixels") == b"".join(image.tobytes() for image in FILES.values())


def test_one_entry_serves_every_budget(tmp_path: Path, table: SampleTable, decoded: list[str]) -> None:
    assert isinstance(open_images(table, cache=tmp_path / "cache", budget=0), StreamedImages)
    assert len(decoded) == 12
    assert isinstance(open_images(table, cache=tmp_path / "cache", budget=0), StreamedImages)
    assert len(decoded) == 12  # the check for unreadable files is remembered
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(decoded) == 24
    assert isinstance(open_images(table, cache=tmp_path / "cache", budget=12 * 192 - 1), StreamedImages)
    check(open_images(table, cache=tmp_path / "cache", budget=12 * 192))
    assert len(decoded) == 24


def test_bad_files_are_remembered(tmp_path: Path, decoded: list[str]) -> None:
    table = written(tmp_path / "data", {**FILES, "c/cut.png": encode(noise(40, 40))[:999]})
    for _ in range(2):
        with pytest.raises(EvenhandError, match=r"1 of 13 images cannot be read: c/cut\.png"):
            open_images(table, cache=tmp_path / "cache")
    images = open_images(table, cache=tmp_path / "cache", skip_bad=True)
    assert list(images.bad) == [12]
    assert len(decoded) == 13


def test_a_cache_that_cannot_be_written(tmp_path: Path, table: SampleTable, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    with caplog.at_level(logging.WARNING, "evenhand"):
        check(open_images(table, cache=tmp_path / "file" / "cache"))
    (record,) = caplog.records
    assert record.name == "evenhand"
    assert record.getMessage().startswith("Decoded images are not cached for the next run. Cannot write ")
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_full_or_broken_disk(
    tmp_path: Path,
    table: SampleTable,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    write_member = zipfile.ZipFile.open

    def fail(archive: zipfile.ZipFile, name: str, mode: str = "r", **options: object) -> object:
        if mode == "w" and name == "pixels":
            raise OSError(number, os.strerror(number))
        return write_member(archive, name, mode, **options)

    monkeypatch.setattr(zipfile.ZipFile, "open", fail)
    check(open_images(table, cache=tmp_path / "cache"))
    assert len(caplog.records) == 1
    assert os.strerror(number) in caplog.text
    assert list((tmp_path / "cache").iterdir()) == []


def open_when_told(root: Path, number: int) -> None:
    (root / f"ready{number}").touch()
    while not (root / "go").exists():
        time.sleep(0.001)
    images = open_images(table_of(root / "data", list(FILES)), cache=root / "cache")
    (root / f"result{number}").write_text(f"{zlib.crc32(images.pixels.numpy())} {images.bad}")


def test_two_processes_at_once(tmp_path: Path, table: SampleTable, decoded: list[str]) -> None:
    log = tmp_path / "log.txt"
    processes = [begin(open_when_told, tmp_path, number, log=log) for number in range(2)]
    deadline = time.monotonic() + 60
    while not all((tmp_path / f"ready{number}").exists() for number in range(2)) and time.monotonic() < deadline:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert [end_of(process) for process in processes] == [0, 0], log.read_text()
    first, second = ((tmp_path / f"result{number}").read_text() for number in range(2))
    assert first == second
    assert log.read_text() == ""
    assert len(list((tmp_path / "cache").iterdir())) == 1
    check(open_images(table, cache=tmp_path / "cache"))
    assert decoded == []


def test_old_entries_and_leftovers_are_removed(
    tmp_path: Path, table: SampleTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    write(folder, {"old.pixels": bytes(5000), "new.pixels": bytes(3000), ".x.pixels.y.part": b"half", "mine": b"keep"})
    write(folder, {".z.pixels.y.part": b"being written"})
    for name, age in [("old.pixels", 9e5), ("new.pixels", 1e5), (".x.pixels.y.part", 1e5)]:
        at = (folder / name).stat().st_mtime - age
        os.utime(folder / name, (at, at))
    monkeypatch.setattr(disk, "LIMIT", 8000)
    open_images(table, cache=folder)
    names = {path.name for path in folder.iterdir()} - {entry.name for entry in folder.glob("????????????*.pixels")}
    assert names == {"new.pixels", ".z.pixels.y.part", "mine"}
