"""Atomic writing of files, and safe reading of untrusted ones."""

import csv
import errno
import hashlib
import io
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import link_within, open_regular, opened_parent
from evenhand.core.text import plain_cell

_ELSEWHERE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_ADVICE = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EFBIG: "the file exceeds a limit of the disk or system; choose another folder",
    errno.EISDIR: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}
MOST_BRACKETS = 2_000_000
"""Lists and objects in a JSON file: each takes twenty times more memory than its two characters on disk."""


@contextmanager
def replacing(path: Path | str, *, within: Path | str | None = None) -> Iterator[Path]:
    """Yield a temporary file to write; rename it to `path` at the end, or remove it after an error.

    Missing folders are created. For a link, its target is replaced. Special files (a pipe, a terminal, `/dev/null`) are
    written into; disks and sockets are refused. Errors of writing become an `EvenhandError`.

    Args:
        path: the file.
        within: a folder above it that may come from others: below it links and special files are replaced themselves,
            and folders that are links refused.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.files import replacing
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("complete or absent")
        >>> target.read_text()
        'complete or absent'
    """
    path, within = _written_alike(Path(path), within)
    try:
        through = within is None and _is_written_through(path)
        real = path if through or within is not None else Path(os.path.realpath(path))
        with opened_parent(path, within, make=True):  # refuses linked folders
            pass
        if not through:
            real.parent.mkdir(parents=True, exist_ok=True)
        folder = None if through else real.parent
        handle, name = tempfile.mkstemp(prefix=f".{real.name[:40]}.", suffix=".part", dir=folder)
        os.close(handle)
    except (OSError, ValueError) as error:  # ValueError: not a possible file name
        raise cannot_write(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        try:
            if through:
                _write_through(temporary, path)
            else:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(temporary, 0o666 & ~mask)
                os.replace(temporary, real)
        except OSError as error:
            raise cannot_write(path, error) from error
    except OSError as error:
        if _is_about(error, temporary):
            raise cannot_write(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path | str, content: bytes, *, within: Path | str | None = None) -> None:
    """Write a file atomically, as :func:`replacing` does."""
    if within is None:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        return
    path, within = _written_alike(Path(path), within)
    try:
        with opened_parent(path, within, make=True) as (folder, name):
            _replace_in(folder, name, content)
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def _replace_in(folder: int | None, name: str, content: bytes) -> None:
    above, last = os.path.split(name)
    temporary = os.path.join(above, f".{last[:40]}.{secrets.token_hex(8)}.part")
    try:
        _write_new(temporary, content, folder)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _write_new(name: str, content: bytes, folder: int | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as file:
        file.write(content)


def enclosing(path: Path | str, folders: Iterable[Path | str]) -> Path | None:
    """Return the first of some folders that a path lies in, however both are written, for `within`; None: none.

    Example:
        >>> from pathlib import Path
        >>> from evenhand.core.files import enclosing
        >>> enclosing("report.html", [Path.cwd()]) == Path.cwd(), enclosing("report.html", ["runs/a"])
        (True, None)
    """
    named = [Path(each) for each in folders if Path(each).is_dir()]
    above = reversed(Path(os.path.abspath(path)).parents)
    return next((each for each in above if any(_is_same(each, folder) for folder in named)), None)


def _is_same(folder: Path, other: Path) -> bool:
    return os.path.abspath(other) == os.fspath(folder) or (folder.is_dir() and os.path.samefile(folder, other))


def refuse_linked(path: Path | str, folders: Iterable[Path | str]) -> None:
    """Refuse an output below one of some folders that may come from others, if a link there leads elsewhere.

    Raises:
        EvenhandError: a folder above the output, or the output itself, is a link.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.files import refuse_linked
        >>> run = Path(tempfile.mkdtemp())
        >>> refuse_linked(run / "evaluated", [run])
    """
    within = enclosing(path, folders)
    link = None if within is None else link_within(os.path.abspath(path), os.path.abspath(within))
    if link is not None:
        raise EvenhandError(
            f"Cannot write {path}: {link} is a link; links inside a run or comparison are not followed."
        )


def check_target(path: Path | str) -> None:
    """Refuse a file that cannot be written, as far as known without writing, before its content is computed.

    Raises:
        EvenhandError: as by :func:`replacing`.
    """
    try:
        _is_written_through(Path(path))
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def check_folder(path: Path | str, *, make: bool = False) -> None:
    """Refuse an output folder that is something else or cannot be created.

    Args:
        path: the folder, which need not exist.
        make: create it.

    Raises:
        EvenhandError: it is not a folder, or cannot be created.
    """
    try:
        os.fspath(path).encode()  # some libraries need names that can be encoded
        if make:
            Path(path).mkdir(parents=True, exist_ok=True)
        elif not stat.S_ISDIR(Path(path).stat().st_mode):
            raise FileExistsError
    except FileNotFoundError:
        if make:
            raise EvenhandError(f"Cannot create the folder {path}; choose another with --out.") from None
    except FileExistsError:
        raise EvenhandError(f"{path} is not a folder; choose another with --out.") from None
    except (OSError, ValueError) as error:
        raise EvenhandError(f"Cannot use the folder {path}: {reason(error)}; choose another with --out.") from error


def cannot_write(path: Path | str, error: Exception) -> EvenhandError:
    """Return the error for a file that cannot be written."""
    advice = _ADVICE.get(getattr(error, "errno", None) or 0, "choose another folder")
    return EvenhandError(f"Cannot write {path}: {reason(error)}; {advice}.")


def write_text(path: Path | str, text: str, *, within: Path | str | None = None) -> None:
    """Write a text as UTF-8, atomically."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair, such as from a file name that is not UTF-8
        raise EvenhandError(
            f"Cannot write {path}: {text[error.start]!r} is not a valid character; rename the file or class with it."
        ) from error
    write_bytes(path, content, within=within)


def write_json(
    path: Path | str, content: Mapping[str, Any], *, indent: int = 2, within: Path | str | None = None
) -> None:
    """Write plain values as JSON in UTF-8, without NaN.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.files import read_json, write_json
        >>> path = Path(tempfile.mkdtemp()) / "some.json"
        >>> write_json(path, {"name": "Löwe", "recall": 0.5})
        >>> read_json(path)
        {'name': 'Löwe', 'recall': 0.5}
    """
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False) + "\n", within=within)


def write_csv(
    path: Path | str, rows: Sequence[Mapping[str, Any]], *, raw: bool = False, within: Path | str | None = None
) -> None:
    """Write rows with the same keys as CSV in full precision; unless `raw`, formulas are escaped."""
    text = io.StringIO(newline="")
    writer = csv_writer(text)
    heading = list(rows[0]) if rows else []
    writer(heading)
    for row in rows:
        writer([row[key] if raw else plain_cell(row[key]) for key in heading])
    write_text(path, text.getvalue(), within=within)


def csv_writer(file: IO[str]) -> Callable[[Sequence[object]], object]:
    r"""Return a function that writes a row of CSV, ended by a line feed.

    Cells with a carriage return are quoted too, so that no reader starts a new row there.

    Example:
        >>> import io
        >>> from evenhand.core.files import csv_writer
        >>> text = io.StringIO(newline="")
        >>> _ = csv_writer(text)(["a\r=1", 2])
        >>> text.getvalue()
        '"a\r=1",2\n'
    """
    return csv.writer(_LineFeeds(file), lineterminator="\r\n").writerow


class _LineFeeds:
    """Ends lines with a line feed: `csv` quotes carriage returns only if lines end with them."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(line.removesuffix("\r\n") + "\n")


def read_bytes(path: Path | str, most: int, *, within: Path | str | None = None) -> bytes:
    """Read a regular file of at most `most` bytes; pipes and devices are refused, since they may not end.

    Args:
        path: the file.
        most: the limit.
        within: a folder above it, below which no link is followed.

    Raises:
        EvenhandError: the file is missing, not regular, too large, or cannot be read.
    """
    try:
        with open_regular(path, within=within) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise EvenhandError(f"Cannot read {path}: it has {size:,} bytes, more than the limit of {most:,}.")
            return file.read(most)
    except (OSError, ValueError, MemoryError) as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error


def hash_file(path: Path, *, within: Path | str | None = None) -> str:
    """Return the SHA-256 of a regular file."""
    digest = hashlib.sha256()
    with open_regular(path, within=within) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def read_json(path: Path | str, most: int = 2**25, *, within: Path | str | None = None) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes.

    Raises:
        EvenhandError: as by :func:`read_bytes`, or it is not a JSON object.
    """
    content = read_json_bytes(path, most, within=within)
    try:
        read = json.loads(content, parse_int=_whole, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error
    if not isinstance(read, dict):
        raise EvenhandError(f"Cannot read {path}: expected names and values, got {type(read).__name__}.")
    return read


def read_json_bytes(path: Path | str, most: int, *, within: Path | str | None = None) -> bytes:
    """Read the bytes of a JSON file, and refuse one that would need far more memory when parsed."""
    content = read_bytes(path, most, within=within)
    brackets = content.count(b"[") + content.count(b"{")
    if brackets > MOST_BRACKETS:
        raise EvenhandError(
            f"Cannot read {path}: it has {brackets:,} lists and objects, more than the limit of {MOST_BRACKETS:,}."
        )
    return content


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _written_alike(path: Path, within: Path | str | None) -> tuple[Path, Path | str | None]:
    """Return a path and a folder above it, both from the root where the one does not begin with the other."""
    if within is None or (path.is_relative_to(within) and ".." not in path.relative_to(within).parts):
        return path, within
    return Path(os.path.abspath(path)), os.path.abspath(within)


def _is_written_through(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "it is a folder")
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a disk" if stat.S_ISBLK(mode) else "it is a socket")
    return not stat.S_ISREG(mode)


def _write_through(temporary: Path, path: Path) -> None:
    # Non-blocking: opening a pipe without a reader would hang.
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(handle, True)
    with temporary.open("rb") as source, os.fdopen(handle, "wb") as target:
        shutil.copyfileobj(source, target)


def _is_about(error: OSError, temporary: Path) -> bool:
    """Return whether an error inside the block is about the file being written, not about its source."""
    if isinstance(error, ConnectionError | TimeoutError) or error.errno is None or error.errno in _ELSEWHERE:
        return False
    # Errors of writing name no file, those of opening do. TLS and DNS errors have numbers of their own.
    named = error.filename is None or os.fspath(error.filename) == os.fspath(temporary)
    return named and type(error).__module__ == "builtins"
