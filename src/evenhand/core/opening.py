"""Opening of files: only regular ones are read, and inside a folder that may come from others no link is followed.

`within` names such a folder, of a run or a comparison. The folder itself may be a link, since the user named it; each
step below it is opened from the folder above, so that nobody can exchange a folder for a link in between.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LINK = "it is a link, and links inside the folder of a run or comparison are not followed"
# Not on Windows. Without O_NONBLOCK, opening a pipe would wait for a writer.
_NONBLOCK, _NOFOLLOW = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
_READ = os.O_RDONLY | _NONBLOCK | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_HAS_DESCRIPTORS = {os.open, os.mkdir, os.stat, os.rename, os.unlink} <= os.supports_dir_fd


def open_regular(path: Path | str, *, within: Path | str | None = None) -> BinaryIO:
    """Open a regular file for reading; folders, pipes, sockets and devices are refused, since they may never end.

    Args:
        path: the file.
        within: a folder above it, below which no link is followed; None: all links are.

    Raises:
        OSError: it cannot be opened, or is not a regular file; `strerror` is the reason in words.

    Example:
        >>> import os, tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.opening import open_regular
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "note").write_text("some")
        >>> with open_regular(folder / "note") as file:
        ...     file.read()
        b'some'
        >>> (folder / "link").symlink_to("note")
        >>> open_regular(folder / "link", within=folder)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        OSError: [Errno ...] it is a link, and links inside the folder of a run or comparison are not followed: ...
        >>> os.mkfifo(folder / "pipe")
        >>> open_regular(folder / "pipe")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        OSError: [Errno 22] it is not a regular file: ...
    """
    with opened_parent(path, within) as (folder, name):
        if within is not None:
            _refuse_link(name, folder, path)
        try:
            handle = os.open(name, _READ | (_NOFOLLOW if within is not None else 0), dir_fd=folder)
        except OSError as error:  # a socket, or a device without a driver
            if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
                raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path)) from error
            raise _named(error, path) from error
    try:
        refuse_special(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def refuse_special(mode: int, path: Path | str) -> None:
    """Refuse all but regular files by their mode, as `os.stat` gives it."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def is_regular(path: Path | str, *, within: Path | str | None = None) -> bool:
    """Return whether a path is a regular file that :func:`open_regular` would open."""
    try:
        if within is not None and link_within(path, within) is not None:
            return False
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def link_within(path: Path | str, within: Path | str) -> Path | None:
    """Return the first step from a folder to a path that is a link; None: none is.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.opening import link_within
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "weights").symlink_to("/elsewhere")
        >>> link_within(folder / "weights" / "some.file", folder).name
        'weights'
    """
    step = Path(within)
    for part in _steps(path, within):
        step = step / part
        if step.is_symlink():
            return step
    return None


@contextmanager
def opened_parent(
    path: Path | str, within: Path | str | None, *, make: bool = False
) -> Iterator[tuple[int | None, str]]:
    """Yield the folder of a file as a descriptor, and the name of the file in it, for the functions of `os`.

    Args:
        path: the file, which need not exist.
        within: a folder above it, below which no link is followed; None: the descriptor is None, the name the path.
        make: create missing folders.

    Raises:
        OSError: a folder is missing or a link.
    """
    if within is None:
        yield None, os.fspath(path)
        return
    *folders, name = _steps(path, within)
    if make:
        Path(within).mkdir(parents=True, exist_ok=True)
    if not _HAS_DESCRIPTORS:
        if (link := link_within(Path(path).parent, within)) is not None:
            raise OSError(errno.ELOOP, LINK, os.fspath(link))
        if make:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        yield None, os.fspath(path)
        return
    handle = os.open(within, _FOLDER)
    try:
        step = Path(within)
        for folder in folders:
            step = step / folder
            above, handle = handle, _open_step(handle, folder, step, make=make)
            os.close(above)
        yield handle, name
    finally:
        os.close(handle)


def make_folder(path: Path | str, *, within: Path | str) -> None:
    """Create a folder, and those above it, without following links below `within`.

    Raises:
        OSError: it cannot be created, or a link is in the way.
    """
    with opened_parent(Path(path) / "any", within, make=True):
        pass


def open_log(path: Path | str, *, within: Path | str) -> BinaryIO:
    """Open a file to append to; a link, a special file, or one with other names is replaced by a new file."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW | _NONBLOCK
    with opened_parent(path, within) as (folder, name):
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.unlink(name, dir_fd=folder)
        return os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "ab")


def remove_file(path: Path | str, *, within: Path | str) -> None:
    """Remove a file or a link, if it is there, without following links below `within`."""
    with suppress(FileNotFoundError), opened_parent(path, within) as (folder, name):
        os.unlink(name, dir_fd=folder)


def _open_step(above: int, name: str, path: Path, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
    try:
        return os.open(name, _FOLDER | _NOFOLLOW, dir_fd=above)
    except OSError as error:
        _refuse_link(name, above, path)
        raise _named(error, path) from error


def _refuse_link(name: str, folder: int | None, path: Path | str) -> None:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError as error:
        raise _named(error, path) from error
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, LINK, os.fspath(path))


def _steps(path: Path | str, within: Path | str) -> tuple[str, ...]:
    steps = Path(path).relative_to(within).parts
    if not steps or ".." in steps:
        raise OSError(errno.EINVAL, f"it is not inside {within}", os.fspath(path))
    return steps


def _named(error: OSError, path: Path | str) -> OSError:
    """Return the error with the whole path, not just the last step."""
    return OSError(error.errno, error.strerror, os.fspath(path))  # of the subclass for that number
