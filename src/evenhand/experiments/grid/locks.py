"""Locks on files that end with the process that holds them, however it ends."""

import contextlib
import os
import sys
import time
from pathlib import Path
from types import TracebackType

from evenhand.core.errors import EvenhandError

POLL = 0.1
"""Seconds between two attempts where a lock is waited for."""

if sys.platform == "win32":
    import msvcrt

    def _take(handle: int, *, shared: bool) -> None:  # noqa: ARG001 - Windows knows no shared locks
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)

    def _give_back(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _take(handle: int, *, shared: bool) -> None:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)

    def _give_back(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)


class Lock:
    """A lock that this process holds."""

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._handle is not None:
            with contextlib.suppress(OSError):
                _give_back(self._handle)  # closing is not enough where a forked process has the file open as well
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> "Lock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take_lock(path: Path) -> Lock | None:
    """Lock a file, which is made if it is missing and never removed; None if another process holds it.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.experiments.grid.locks import is_locked, take_lock
        >>> path = Path(tempfile.mkdtemp()) / "run.lock"
        >>> with take_lock(path):
        ...     is_locked(path), take_lock(path)
        (True, None)
        >>> is_locked(path)
        False
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise EvenhandError(f"Cannot write {path}: {error.strerror}; choose another folder.") from error
    try:
        _take(handle, shared=False)
    except (BlockingIOError, PermissionError):  # the latter is how Windows says that another process holds it
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise EvenhandError(f"Cannot lock {path}: {error.strerror}; choose a folder on another disk.") from error
    return Lock(handle)


def wait_for_lock(path: Path) -> Lock:
    """Lock a file as soon as no other process holds it."""
    while (lock := take_lock(path)) is None:
        time.sleep(POLL)
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a living process holds the lock on a file."""
    try:
        handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    except OSError:
        return False
    try:
        _take(handle, shared=True)
        _give_back(handle)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
