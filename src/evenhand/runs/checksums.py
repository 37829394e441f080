"""Checksums of weights, state and predictions, to detect silent damage."""

import hashlib
import json
import os
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import hash_file, read_json, write_bytes, write_json
from evenhand.core.opening import is_regular, open_regular
from evenhand.runs.filenames import CHECKED, CHECKSUMS, FOLDERS


def write_checked(path: Path, content: bytes) -> None:
    """Write a file of a run, and store its checksum.

    The new checksum is stored before the file gets its name, and the old one until after: whenever the process is
    killed, the file on disk has a checksum.
    """
    folder, name = _place(path)
    if name not in CHECKED:
        write_bytes(path, content, within=folder)
        return
    new = hashlib.sha256(content).hexdigest()
    known: dict[str, list[str]] = {}
    with suppress(EvenhandError):  # damaged checksums are discarded
        known = _known(folder)
    write_json(folder / CHECKSUMS, {**known, name: [new, *known.get(name, [])]}, within=folder)
    write_bytes(path, content, within=folder)
    write_json(folder / CHECKSUMS, {**known, name: [new]}, within=folder)


def check(path: Path, *, within: Path | None = None) -> None:
    """Compare a file of a run with its checksum, if there is one; no link is followed below `within`.

    Its size is compared with its content first, since hashing gigabytes that were appended to a file takes seconds.

    Raises:
        EvenhandError: the size or the checksum differs, or cannot be found.
    """
    check_size(path, within=within)
    folder, name = _place(path)
    expected = _known(folder).get(name) if is_regular(folder / CHECKSUMS, within=folder) else None
    if expected is None:
        return
    try:
        found = hash_file(path, within=within)
    except OSError as error:
        raise EvenhandError(f"{reason(error)}.") from error
    if found not in expected:
        raise EvenhandError(f"its checksum differs from {CHECKSUMS}, so it changed after it was written.")


def check_size(path: Path, *, within: Path | None = None) -> None:
    """Refuse a `.npz` or `.safetensors` that is longer or shorter than its directory says, which reads little of it.

    Raises:
        EvenhandError: the size differs, or the directory cannot be read.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evenhand.runs.checksums import check_size
        >>> path = Path(tempfile.mkdtemp()) / "some.npz"
        >>> np.savez(path, counts=np.arange(3))
        >>> check_size(path)
        >>> with path.open("ab") as file:
        ...     _ = file.truncate(2**31)
        >>> check_size(path)
        Traceback (most recent call last):
        evenhand.core.errors.EvenhandError: it is damaged: it has 2,147,483,648 bytes, not those of its content.
    """
    try:
        with open_regular(path, within=within) as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix == ".npz":
                complete = _is_whole_archive(file, size)
            elif path.suffix == ".safetensors":
                complete = _is_whole_safetensors(file, size)
            else:
                return
    except (OSError, ValueError) as error:
        raise EvenhandError(f"{reason(error)}.") from error
    if not complete:
        raise EvenhandError(f"it is damaged: it has {size:,} bytes, not those of its content.")


def _is_whole_archive(file: BinaryIO, size: int) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
    except Exception:  # a damaged directory fails in many ways
        return False
    # Names are stored twice, each with heads and extra fields of less than 2**10 bytes.
    held = sum(each.compress_size + 2 * len(os.fsencode(each.filename)) + 2**10 for each in members)
    return size <= held + 2**16


def _is_whole_safetensors(file: BinaryIO, size: int) -> bool:
    length = int.from_bytes(file.read(8), "little")
    if length > 2**24:
        return False
    try:
        header = json.loads(file.read(length))
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        return bool(size == 8 + length + max(ends, default=0))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return False


def _place(path: Path) -> tuple[Path, str]:
    """Return the run folder of a file, and the file's name in it."""
    folder = path.parent.parent if path.parent.name in FOLDERS else path.parent
    return folder, path.relative_to(folder).as_posix()


def _known(folder: Path) -> dict[str, list[str]]:
    path = folder / CHECKSUMS
    content = read_json(path, 2**16, within=folder)
    if not all(isinstance(own, list) and all(isinstance(each, str) for each in own) for own in content.values()):
        raise EvenhandError(f"Cannot read {path}: expected lists of checksums; delete it to skip the check.")
    return content
