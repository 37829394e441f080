"""Plain arrays in a `.npz`; the declared sizes are checked before anything is unpacked."""

import io
import os
import zipfile
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular
from evenhand.core.text import clipped, some

MOST_UNPACKED = 2**26
"""Bytes by which arrays may exceed the size of their file: `array_bytes` does not compress."""
_LONGEST_HEAD, _PART = 2**16, 2**20


def array_bytes(**arrays: NDArray[Any]) -> bytes:
    """Return the content of a `.npz`; equal arrays give equal bytes."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()  # copies nothing; Python 3.12.1 can crash over a `getbuffer` in a traceback


def read_arrays(
    path: Path | str,
    keys: Iterable[str],
    what: str = "file of arrays",
    advice: str = "",
    *,
    optional: Iterable[str] = (),
    within: Path | str | None = None,
) -> dict[str, NDArray[Any]]:
    """Read arrays that `numpy.savez` wrote. Other arrays in the file are ignored; pickled ones are never read.

    Args:
        path: the file.
        keys: names of the arrays.
        what: what the file should be, for messages.
        advice: what to do if it is not, for messages.
        optional: names of arrays that need not be there.
        within: a folder above the file, below which no link is followed.

    Raises:
        EvenhandError: the file is missing, damaged or of another kind, or would unpack to far more than its size.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evenhand.core.arrays import array_bytes, read_arrays
        >>> path = Path(tempfile.mkdtemp()) / "some.npz"
        >>> _ = path.write_bytes(array_bytes(counts=np.arange(3), names=np.array(["a", "b", "c"])))
        >>> read_arrays(path, ["counts"])
        {'counts': array([0, 1, 2])}
    """
    path, keys = Path(path), list(keys)
    try:
        with open_regular(path, within=within) as file, zipfile.ZipFile(file) as archive:
            held = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [key for key in keys if key not in held]
            if missing:
                raise EvenhandError(f"it lacks {some(missing)}, so it is not a {what}.")
            keys += [key for key in optional if key in held]
            refuse_bomb([held[key] for key in keys], os.fstat(file.fileno()).st_size)
            return {key: _read_array(archive, held[key], key) for key in keys}
    except EvenhandError as error:
        raise EvenhandError(f"Cannot read {path}: {error}") from error
    except OSError as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error
    except MemoryError as error:
        raise EvenhandError(f"Cannot read {path}: it does not fit in memory.") from error
    # Damaged archives fail in many ways (BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError,
    # EOFError, ...), so nothing narrower is safe.
    except Exception as error:
        why = f"it is damaged or not a {what} ({reason(error, 120)})"
        raise EvenhandError(f"Cannot read {path}: {why}{'; ' * bool(advice)}{advice}.") from error


def refuse_bomb(members: Iterable[zipfile.ZipInfo], size: int, times: int = 1) -> None:
    """Refuse members of an archive whose declared size is far larger than the archive.

    Args:
        members: the members that will be read.
        size: bytes of the archive.
        times: they may be this many times larger, plus `MOST_UNPACKED`.
    """
    members = list(members)
    declared = sum(info.file_size for info in members)
    if declared > times * size + MOST_UNPACKED:
        raise EvenhandError(f"it has {size:,} bytes and would unpack to {declared:,}, more than is allowed.")
    # Other compression methods cannot be unpacked in chunks.
    strange = [
        info.filename for info in members if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    ]
    if strange:
        raise EvenhandError(f"{some(strange)} is not compressed as numpy.savez does it.")


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, key: str) -> NDArray[Any]:
    with archive.open(info) as member:
        head = member.read(_LONGEST_HEAD)
        file = io.BytesIO(head)
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise EvenhandError(f"its array {key!r} is not a plain one as numpy.savez writes it.")
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape: tuple[int, ...]
        shape, fortran_order, dtype = read_header(file)
        if dtype.hasobject:
            raise EvenhandError(
                f"its array {key!r} holds pickled objects, which can run code when read; save plain arrays."
            )
        # Before memory is allocated: a shape can ask for any amount.
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
    """Return `size` bytes, of which some are read already; None: there are fewer."""
    content = bytearray(size)
    done = min(len(begun), size)
    content[:done] = begun[:done]
    while done < size:
        # In chunks: otherwise zipfile copies its buffer again and again.
        part = member.read(min(_PART, size - done))
        if not part:
            return None
        content[done : done + len(part)] = part
        done += len(part)
    return content  # zipfile has checked the checksum at the last byte
