"""Locks end with their process, and a run's folder belongs to one process at a time."""

import multiprocessing
import os
import re
import signal
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import LOCK, Busy, claimed, is_locked, take_lock


def test_looking_makes_no_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path / "a.lock")
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the holder of the lock is forked")
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        kept = take_lock(path)
        os.write(tell, b"x" if kept else b"-")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(told, 1) == b"x"
        assert is_locked(path)
        assert take_lock(path) is None
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not is_locked(path)
    lock = take_lock(path)
    assert lock is not None
    lock.release()
    lock.release()
    os.close(told)
    os.close(tell)


def test_what_cannot_be_locked_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EvenhandError, match=r"^Cannot lock .*; choose another folder\.$"):
        take_lock(tmp_path / "file" / "a.lock")


def test_a_claimed_folder_is_held_and_left_clean(tmp_path: Path) -> None:
    with claimed(tmp_path / "new") as folder:
        assert is_locked(folder / LOCK)
        sentence = f"Another process is at work in {folder}; wait until it ends, or choose another folder."
        with pytest.raises(Busy, match=f"^{re.escape(sentence)}$"), claimed(folder):
            pass
        assert is_locked(folder / LOCK)
        (folder / "kept.txt").touch()
    assert [path.name for path in folder.iterdir()] == ["kept.txt"]
    with claimed(folder):
        pass
    assert [path.name for path in folder.iterdir()] == ["kept.txt"]


def test_a_folder_that_stays_empty_goes_again_if_it_was_not_there(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("mine", "new"):
        with claimed(tmp_path / name):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_lock_left_by_a_killed_process_is_free(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with claimed(tmp_path):
        pass
    assert not any(tmp_path.iterdir())


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EvenhandError, match=r"is not an empty folder; choose another with --out\.$"):
        claimed(tmp_path / "file").__enter__()
    with pytest.raises(EvenhandError, match=r"^Cannot create .*; choose another with --out\.$"):
        claimed(tmp_path / "file" / "run", number=True).__enter__()


def _claim(folder: Path, go: Connection, told: Connection) -> None:
    go.recv()
    with claimed(folder, number=True) as path:
        told.send(path.name)
        go.recv()


def test_processes_that_come_at_once_get_a_folder_each(tmp_path: Path) -> None:
    context, crew = multiprocessing.get_context("spawn"), []
    for _ in range(4):
        (go_here, go_there), (told_here, told_there) = context.Pipe(), context.Pipe()
        process = context.Process(target=_claim, args=(tmp_path / "run", go_there, told_there), daemon=True)
        process.start()
        crew.append((process, go_here, told_here))
    for _, go, _ in crew:
        go.send("now")
    names = sorted(told.recv() for _, _, told in crew)
    assert names == ["run", "run_2", "run_3", "run_4"]
    for process, go, _ in crew:
        go.send("end")
        process.join(20)
    assert not any(tmp_path.iterdir())
