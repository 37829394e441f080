"""Writing files so that a real name never holds half a file, and reading them without being led into a trap."""

import csv
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.text import plain_cell

_ELSEWHERE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_ADVICE = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EFBIG: "this disk or a limit of the system allows no file as large; choose another folder",
    errno.EISDIR: "choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}
MOST_BRACKETS = 2_000_000
"""Lists and objects in a JSON file: each takes twenty times the memory that its two characters take on disk."""


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary file to write; rename it to `path` at the end, or remove it if the work fails.

    Missing folders are made. Of a link, what it leads to is replaced. What is no regular file (a pipe, a terminal,
    `/dev/null`) stays what it is, and the content is written into it; disks and sockets are refused. Whatever keeps the
    file from being written becomes an `EvenhandError`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.files import replacing
        >>> target = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("whole or not at all")
        >>> target.read_text()
        'whole or not at all'
    """
    path = Path(path)
    try:
        through = _is_written_through(path)
        real = path if through else Path(os.path.realpath(path))
        if not through:
            real.parent.mkdir(parents=True, exist_ok=True)
        folder = None if through else real.parent
        handle, name = tempfile.mkstemp(prefix=f".{real.name[:40]}.", suffix=".part", dir=folder)
        os.close(handle)
    except (OSError, ValueError) as error:  # ValueError: no file can have such a name
        raise cannot_write(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        try:
            if through:
                _write_through(temporary, path)
            else:
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, real)
        except OSError as error:
            raise cannot_write(path, error) from error
    except OSError as error:
        if _is_about(error, temporary):
            raise cannot_write(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_target(path: Path | str) -> None:
    """Refuse a file that cannot be written, as far as that can be seen without writing: before it is worked out.

    Raises:
        EvenhandError: as by :func:`replacing`.
    """
    try:
        _is_written_through(Path(path))
    except (OSError, ValueError) as error:
        raise cannot_write(path, error) from error


def check_folder(path: Path | str, *, make: bool = False) -> None:
    """Refuse a folder for results that is something else, or cannot be one.

    Args:
        path: the folder, which need not be there.
        make: it, too.

    Raises:
        EvenhandError: in one sentence, with the reason.
    """
    try:
        os.fspath(path).encode()  # some of the libraries that write into it know no other names
        if make:
            Path(path).mkdir(parents=True, exist_ok=True)
        elif not stat.S_ISDIR(Path(path).stat().st_mode):
            raise FileExistsError
    except FileNotFoundError:
        if make:
            raise EvenhandError(f"Cannot make the folder {path}; choose another with --out.") from None
    except FileExistsError:
        raise EvenhandError(f"{path} exists and is no folder; choose another with --out.") from None
    except (OSError, ValueError) as error:
        raise EvenhandError(f"Cannot use the folder {path}: {reason(error)}; choose another with --out.") from error


def cannot_write(path: Path | str, error: Exception) -> EvenhandError:
    """Return the sentence for a file that could not be written."""
    advice = _ADVICE.get(getattr(error, "errno", None) or 0, "choose another folder")
    return EvenhandError(f"Cannot write {path}: {reason(error)}; {advice}.")


def write_text(path: Path | str, text: str) -> None:
    """Write a text as UTF-8, whole or not at all."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair: a file name that was no UTF-8, for instance
        raise EvenhandError(
            f"Cannot write {path}: {text[error.start]!r} is no character; rename what holds it."
        ) from error
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path | str, content: Mapping[str, Any], *, indent: int = 2) -> None:
    """Write plain values as JSON that every reader takes: UTF-8, without NaN.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.files import read_json, write_json
        >>> path = Path(tempfile.mkdtemp()) / "some.json"
        >>> write_json(path, {"name": "Löwe", "recall": 0.5})
        >>> read_json(path)
        {'name': 'Löwe', 'recall': 0.5}
    """
    write_text(path, json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False) + "\n")


def write_csv(path: Path | str, rows: Sequence[Mapping[str, Any]], *, raw: bool = False) -> None:
    """Write rows with the same keys as CSV, with every digit; unless `raw`, no text is one that a spreadsheet runs."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv_writer(file)
        heading = list(rows[0]) if rows else []
        writer(heading)
        for row in rows:
            writer([row[key] if raw else plain_cell(row[key]) for key in heading])


def csv_writer(file: IO[str]) -> Callable[[Sequence[object]], object]:
    r"""Return what writes a row of CSV, ended by a line feed.

    A carriage return in a cell is quoted as a line feed is, or a reader would take what follows it for a new row.

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
    """Which characters are quoted, `csv` takes from how lines end; here they end otherwise."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(line.removesuffix("\r\n") + "\n")


def read_bytes(path: Path | str, most: int) -> bytes:
    """Read a regular file of at most so many bytes; a pipe would be waited for, and a device may have no end.

    Raises:
        EvenhandError: it is missing, no file, too large, or cannot be read.
    """
    path = Path(path)
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise EvenhandError(f"Cannot read {path}: it is {'a folder' if stat.S_ISDIR(info.st_mode) else 'no file'}.")
        if info.st_size > most:
            raise EvenhandError(
                f"Cannot read {path}: it has {info.st_size:,} bytes, and more than {most:,} are not read."
            )
        with path.open("rb") as file:
            return file.read(most)
    except (OSError, ValueError, MemoryError) as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error


def read_json(path: Path | str, most: int = 2**25) -> dict[str, Any]:
    """Read a JSON object of at most so many bytes.

    Raises:
        EvenhandError: as by :func:`read_bytes`, or it is no JSON object.
    """
    content = read_json_bytes(path, most)
    try:
        read = json.loads(content, parse_int=_whole, parse_constant=_refuse_constant)
    except (ValueError, RecursionError, MemoryError) as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error
    if not isinstance(read, dict):
        raise EvenhandError(f"Cannot read {path}: expected names and values, got {type(read).__name__}.")
    return read


def read_json_bytes(path: Path | str, most: int) -> bytes:
    """Read the bytes of a JSON file that will not take much more memory when parsed."""
    content = read_bytes(path, most)
    brackets = content.count(b"[") + content.count(b"{")
    if brackets > MOST_BRACKETS:
        raise EvenhandError(f"Cannot read {path}: it holds {brackets:,} lists and objects, more than are read.")
    return content


def _whole(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")


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
    # Without waiting: a pipe that nobody reads would be waited for without end.
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    os.set_blocking(handle, True)
    with temporary.open("rb") as source, os.fdopen(handle, "wb") as target:
        shutil.copyfileobj(source, target)


def _is_about(error: OSError, temporary: Path) -> bool:
    """Return whether an error inside the block is about the file being written, not what it is made from."""
    if isinstance(error, ConnectionError | TimeoutError) or error.errno is None or error.errno in _ELSEWHERE:
        return False
    # Writing names no file; opening names one. Errors of TLS and of names in the network have numbers of their own.
    named = error.filename is None or os.fspath(error.filename) == os.fspath(temporary)
    return named and type(error).__module__ == "builtins"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
