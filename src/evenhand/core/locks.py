"""File locks that end with their process, and run folders locked by one process."""

import contextlib
import os
import stat
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from evenhand.core.errors import EvenhandError, reason

LOCK = ".lock"
"""In the folder of a run while a process works on it; the file of a killed process is not locked."""

MOMENT = 0.2
"""Seconds to try a lock: `is_locked` holds one for a moment."""

Lock = BaseFileLock


class Busy(EvenhandError):  # noqa: N818 - a state, not a mistake
    """Another process works on a run."""


def take_lock(path: Path, *, wait: bool = False) -> Lock | None:
    """Lock a file, which is created if missing; None: another process holds the lock.

    Args:
        path: the file.
        wait: wait for the other process.

    Returns:
        The lock; it ends with `release`, which may be called twice, or with the process.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.locks import is_locked, take_lock
        >>> path = Path(tempfile.mkdtemp()) / "run.lock"
        >>> lock = take_lock(path)
        >>> is_locked(path), take_lock(path)
        (True, None)
        >>> lock.release()
        >>> is_locked(path)
        False
    """
    lock = FileLock(path, thread_local=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_foreign(path)
        lock.acquire(timeout=-1 if wait else MOMENT)
    except Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        raise EvenhandError(f"Cannot lock {path}: {reason(error)}; choose another folder.") from error
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a running process holds the lock of a file."""
    try:
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode) or before.st_nlink > 1:  # no lock of ours
            return False
        with FileLock(path, thread_local=False).acquire(timeout=0):
            after = path.stat()
            if (after.st_ino, after.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
                path.unlink()  # its holder removed it meanwhile, and this check created it again
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # not accessible, or on a disk without locks
        return False


@contextlib.contextmanager
def claimed(folder: Path | str, *, number: bool = False) -> Iterator[Path]:
    """Lock the folder of a run; it is created if missing, and removed again if it stays empty.

    Args:
        folder: of the run.
        number: use `folder_2`, `folder_3`, ... if it exists, so that each process gets a folder of its own.

    Raises:
        Busy: another process holds the lock.
        EvenhandError: the folder cannot be created.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.locks import claimed
        >>> root = Path(tempfile.mkdtemp())
        >>> with claimed(root / "run", number=True) as one, claimed(root / "run", number=True) as other:
        ...     one.name, other.name
        ('run', 'run_2')
        >>> list(root.iterdir())
        []
    """
    path = Path(folder)
    try:
        os.fspath(path).encode()  # some of the libraries that write into it know no other names
        made = [each for each in path.parents if not each.exists()]
        there = path.exists()
    except (OSError, ValueError) as error:  # not a possible name, or not accessible
        raise EvenhandError(f"Cannot read {path}: {reason(error)}; choose another folder with --out.") from error
    path = _numbered(path) if number else path
    if number or not there:
        made.insert(0, path)
    elif not path.is_dir():
        raise EvenhandError(f"{path} is not an empty folder; choose another with --out.")
    lock = take_lock(path / LOCK)
    if lock is None:
        raise Busy(f"Another process is at work in {path}; wait until it ends, or choose another folder.")
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            (path / LOCK).unlink()  # before the release, so that it is not another process's file
        lock.release()
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()  # only if it is empty


def remove_foreign(path: Path) -> None:
    """Remove a link or pipe in the place of a lock; some versions of filelock would empty its target."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1):
            path.unlink()


def _numbered(folder: Path) -> Path:
    """Create the first folder that does not exist of this name, or of this name and a number."""
    try:
        for number in count(1):
            path = folder if number == 1 else folder.with_name(f"{folder.name}_{number}")
            with contextlib.suppress(FileExistsError):
                path.mkdir(parents=True)
                return path
    except OSError as error:
        raise EvenhandError(f"Cannot create {folder}: {error.strerror}; choose another with --out.") from error
    raise AssertionError("numbers do not end")
