"""Plain arrays in a `.npz`, of which nothing is unpacked before its declared size is known to be honest."""

import io
import zipfile
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import replacing
from evenhand.core.text import clipped, some

MOST_UNPACKED = 2**26
"""Bytes by which arrays may be larger in memory than their file is on disk: `write_arrays` packs nothing."""
_LONGEST_HEAD, _PART = 2**16, 2**20


def write_arrays(path: Path | str, **arrays: NDArray[Any]) -> None:
    """Write plain arrays, whole or not at all; equal arrays give equal bytes."""
    # An open file, because numpy adds .npz to a name without it and the temporary name has none.
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(
    path: Path | str,
    keys: Iterable[str],
    what: str = "file of arrays",
    advice: str = "",
    *,
    optional: Iterable[str] = (),
) -> dict[str, NDArray[Any]]:
    """Read arrays that `numpy.savez` wrote. Other arrays in the file are left alone; pickled ones are never read.

    Args:
        path: the file.
        keys: names of the arrays.
        what: what the file should be, for messages.
        advice: what to do if it is not, for messages.
        optional: names of arrays that need not be there.

    Raises:
        EvenhandError: there is no such file, it is damaged or foreign, or it would unpack to far more than it holds.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evenhand.core.arrays import read_arrays, write_arrays
        >>> path = Path(tempfile.mkdtemp()) / "some.npz"
        >>> write_arrays(path, counts=np.arange(3), names=np.array(["a", "b", "c"]))
        >>> read_arrays(path, ["counts"])
        {'counts': array([0, 1, 2])}
    """
    path, keys = Path(path), list(keys)
    try:
        if not path.is_file():
            raise EvenhandError("it is no file." if path.exists() else "there is no such file.")
        with zipfile.ZipFile(path) as archive:
            held = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [key for key in keys if key not in held]
            if missing:
                raise EvenhandError(f"it lacks {some(missing)}, so it is no {what}.")
            keys += [key for key in optional if key in held]
            refuse_bomb([held[key] for key in keys], path.stat().st_size)
            return {key: _read_array(archive, held[key], key) for key in keys}
    except EvenhandError as error:
        raise EvenhandError(f"Cannot read {path}: {error}") from error
    except MemoryError as error:
        raise EvenhandError(f"Cannot read {path}: it does not fit in memory.") from error
    # Damaged archives fail in many ways (BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError,
    # EOFError, ...), so nothing narrower is safe.
    except Exception as error:
        told = f"it is damaged or no {what} ({reason(error, 120)})"
        raise EvenhandError(f"Cannot read {path}: {told}{'; ' * bool(advice)}{advice}.") from error


def refuse_bomb(members: Iterable[zipfile.ZipInfo], size: int, times: int = 1) -> None:
    """Refuse members of an archive of so many bytes that say themselves that they would unpack to far more.

    Args:
        members: those that will be read.
        size: bytes of the archive.
        times: how many times larger than it they may be, and `MOST_UNPACKED` more.
    """
    members = list(members)
    declared = sum(info.file_size for info in members)
    if declared > times * size + MOST_UNPACKED:
        raise EvenhandError(f"it has {size:,} bytes and would unpack to {declared:,}, so it is no honest file.")
    # The other methods cannot be unpacked by so many bytes at a time.
    strange = [
        info.filename for info in members if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    ]
    if strange:
        raise EvenhandError(f"{some(strange)} is not packed as numpy.savez packs it.")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> NDArray[Any]:
    with archive.open(info) as member:
        head = member.read(_LONGEST_HEAD)
        file = io.BytesIO(head)
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise EvenhandError(f"its array {key!r} is no plain one as numpy.savez writes it.")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape: tuple[int, ...]
        shape, fortran_order, dtype = read_header(file)
        if dtype.hasobject:
            raise EvenhandError(
                f"its array {key!r} holds pickled objects, which can run code when read; save plain arrays."
            )
        # Before a byte is reserved for it: a shape can ask for any memory.
        size = int(prod(shape))
        fits = min(shape, default=0) >= 0 and size * dtype.itemsize == info.file_size - file.tell()
        if not fits or (dtype.itemsize == 0 and size):
            raise EvenhandError(f"its array {key!r} is not as long as its shape {clipped(str(shape))} says.")
        content = _rest(member, head[file.tell() :], info.file_size - file.tell())
    if content is None:
        raise EvenhandError(f"its array {key!r} ends too early.")
    flat = np.frombuffer(content, dtype) if size else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran_order else "C")


def _rest(member: IO[bytes], begun: bytes, size: int) -> bytearray | None:
    """Return so many bytes, of which some are read already and no more are unpacked; None where there are fewer."""
    content = bytearray(size)
    done = min(len(begun), size)
    content[:done] = begun[:done]
    while done < size:
        # By parts: all at once, zipfile would copy what it has for each few bytes of the file.
        part = member.read(min(_PART, size - done))
        if not part:
            return None
        content[done : done + len(part)] = part
        done += len(part)
    return content  # at the last byte zipfile has compared its checksum
