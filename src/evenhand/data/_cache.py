"""Cache of decoded pixels on disk: one file per state of a source and its settings.

An entry is a plain uncompressed zip archive: `header.json`, `sizes` (N x 2 int64) and, unless the images are streamed,
`pixels` (uint8, each image as height x width x channels, concatenated). The checksums of the archive detect damage, and
nothing in it is executed. It is read into memory rather than mapped: the checksum needs every byte anyway, and a file
that changes later does no harm.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.arrays import refuse_bomb
from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing
from evenhand.core.opening import open_regular
from evenhand.data.table import FilePixels

FORMAT = 1
"""Increased whenever the same files would give other pixels or another layout, so that old entries are not used."""

LIMIT = 20 * 2**30
"""Maximum bytes of all entries; beyond it the least recently used are removed."""

_BLOCK = 2**20
_logger = logging.getLogger("evenhand")


@dataclass(eq=False)
class Entry:
    """Sizes of a source's images, and which of them are unreadable."""

    image_size: int
    channels: int
    sizes: NDArray[np.int64]
    """(N, 2): height and width of each image as stored."""
    bad: dict[int, str]
    """Row -> why its image cannot be used."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of all pixels."""
        return int(self.sizes.prod(1).sum()) * self.channels


def fingerprint(pixels: FilePixels, image_size: int | None, interpolation: str = "bilinear") -> str:
    """Return a hash of relative paths, file sizes, modification times, boxes and the resize settings."""
    other = "" if interpolation == "bilinear" else f" {interpolation}"
    digest = hashlib.sha256(f"{FORMAT} {image_size} {pixels.stretch} {len(pixels)}{other}\n".encode())
    for row, path in enumerate(pixels.paths):
        digest.update(f"{path}\0{pixels.state(row)}\n".encode("utf-8", "surrogateescape"))
    if pixels.boxes is not None:
        digest.update(np.ascontiguousarray(pixels.boxes, np.int64).tobytes())
    return digest.hexdigest()[:32]


def load_entry(folder: Path, key: str, rows: int) -> Entry | None:
    """Read an entry without its pixels; None if it is missing or damaged."""
    path = _path(folder, key)
    with _damage(path), open_regular(path) as file, zipfile.ZipFile(file) as archive:
        refuse_bomb((archive.getinfo(name) for name in ("header.json", "sizes")), path.stat().st_size)
        header: dict[str, Any] = json.loads(archive.read("header.json"))
        sizes = np.frombuffer(archive.read("sizes"), np.int64).reshape(-1, 2).copy()
        bad = {int(row): str(reason) for row, reason in header["bad"].items()}
        entry = Entry(int(header["image_size"]), int(header["channels"]), sizes, bad)
        if header["key"] != key or len(sizes) != rows or sizes.min() < 1 or entry.channels not in (1, 3):
            raise ValueError("it belongs to another source")
        with contextlib.suppress(OSError):
            os.utime(path)  # so that the least recently used entries are known
        return entry
    return None


def load_pixels(folder: Path, key: str, entry: Entry) -> NDArray[np.uint8] | None:
    """Read the pixels of an entry, (bytes,); None if they are missing or damaged."""
    path = _path(folder, key)
    with _damage(path), open_regular(path) as file, zipfile.ZipFile(file) as archive:
        if "pixels" not in archive.namelist():
            return None
        if archive.getinfo("pixels").file_size != entry.nbytes:
            raise ValueError("its length is wrong")
        pixels = np.empty(entry.nbytes, np.uint8)
        with archive.open("pixels") as member:
            for start in range(0, len(pixels), _BLOCK):
                block = pixels[start : start + _BLOCK]
                block[:] = np.frombuffer(member.read(len(block)), np.uint8)
        return pixels
    return None


def save(folder: Path, key: str, entry: Entry, pixels: NDArray[np.uint8] | None) -> None:
    """Write an entry, with the pixels if given; log a warning if that fails."""
    header = {
        "key": key,
        "image_size": entry.image_size,
        "channels": entry.channels,
        "bad": {str(row): reason for row, reason in entry.bad.items()},
    }
    try:
        with replacing(_path(folder, key)) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr("header.json", json.dumps(header))
            archive.writestr("sizes", np.ascontiguousarray(entry.sizes, np.int64).tobytes())
            if pixels is not None:
                with archive.open("pixels", "w", force_zip64=True) as member:
                    for start in range(0, len(pixels), _BLOCK):
                        member.write(pixels[start : start + _BLOCK].data)
        _prune(folder, keep=_path(folder, key))
    except (EvenhandError, OSError) as error:
        _logger.warning("Decoded images are not cached for the next run. %s", error)


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.pixels"


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Leave the block silently if there is no entry, and with a warning if it is damaged."""
    try:
        yield
    except OSError:
        pass
    except Exception as error:  # zipfile and json raise nearly anything on damaged files
        _logger.warning("The cached images in %s are damaged (%s) and are decoded again.", path, error)


def _prune(folder: Path, keep: Path) -> None:
    """Remove partial files of killed processes, and the least recently used entries beyond the limit."""
    for leftover in folder.glob(".*.pixels.*.part"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > 86400:
                leftover.unlink()
    total = keep.stat().st_size
    entries = [(path.stat(), path) for path in folder.glob("*.pixels") if path != keep]
    for found, path in sorted(entries, key=lambda entry: entry[0].st_mtime_ns, reverse=True):
        total += found.st_size
        if total > LIMIT:
            path.unlink(missing_ok=True)
