"""Checksums of weights, state and predictions, to detect silent damage."""

import hashlib
from contextlib import suppress
from pathlib import Path

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import hash_file, read_json, write_bytes, write_json
from evenhand.core.opening import is_regular
from evenhand.runs.filenames import CHECKED, CHECKSUMS, FOLDERS


def write_checked(path: Path, content: "bytes | memoryview") -> None:
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


def check(path: Path) -> None:
    """Compare a file of a run with its checksum, if there is one.

    Raises:
        EvenhandError: the checksum differs, or cannot be computed.
    """
    folder, name = _place(path)
    expected = _known(folder).get(name) if is_regular(folder / CHECKSUMS, within=folder) else None
    if expected is None:
        return
    try:
        found = hash_file(path)
    except OSError as error:
        raise EvenhandError(f"{reason(error)}.") from error
    if found not in expected:
        raise EvenhandError(f"its checksum differs from {CHECKSUMS}, so it changed after it was written.")


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
