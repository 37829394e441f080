"""Writing files so that a real name never holds half a file."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evenhand.core.errors import EvenhandError


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """Give a temporary file to write; rename it to `path` at the end, or remove it if the work fails.

    Missing folders are made. A full disk or a folder that cannot be written to becomes an `EvenhandError`.

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
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".part", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise _cannot_write(path, error) from error
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
            raise _cannot_write(path, error) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot_write(path: Path, error: OSError) -> EvenhandError:
    return EvenhandError(f"Cannot write {path}: {error.strerror or error}; free some space or choose another folder.")
