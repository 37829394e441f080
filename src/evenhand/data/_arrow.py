"""Images in Arrow and Parquet files: read one by one from memory-mapped files, never as a whole."""

import hashlib
import os
import shutil
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.core.files import replacing
from evenhand.data._arrays import reading

FOLDER = "tables"
"""In the cache: Parquet files as Arrow files."""
BATCH = 64
"""Images that are copied at a time."""
MOST_TIMES = 100
"""Images may take this many times the bytes of their Parquet file: they are compressed already."""
LIMIT = 20 * 2**30
"""Bytes of all cached tables; beyond it the least recently used are removed."""
SPARE = 2**30
"""Bytes of the disk that are left free."""


def require_pyarrow() -> ModuleType:
    """Import pyarrow, or say in one sentence how to install it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise EvenhandError(
            f"Parquet files and datasets need the package pyarrow, which is missing: {how_to_install('datasets')}."
        ) from error
    module: ModuleType = pyarrow
    return module


@dataclass(frozen=True, eq=False)
class ArrowImages:
    """Rows of binary Arrow arrays."""

    chunks: tuple[Any, ...]
    """Binary arrays in order."""
    starts: tuple[int, ...]
    """The first row of each."""
    rows: NDArray[np.int64]
    fingerprint: str
    """Of the files that they come from."""

    def read(self, row: int) -> bytes:
        """Return the bytes of an image; none where the row has no image."""
        place = int(self.rows[row])
        chunk = bisect_right(self.starts, place) - 1
        buffer = self.chunks[chunk][place - self.starts[chunk]].as_buffer()
        return b"" if buffer is None else buffer.to_pybytes()

    def state(self, row: int) -> str:
        """Return the fingerprint of the files, and the row."""
        return f"{self.fingerprint} {self.rows[row]}"

    def take(self, rows: NDArray[np.int64]) -> "ArrowImages":
        """Return the images of the given rows."""
        return replace(self, rows=self.rows[rows])


def arrow_images(chunks: Sequence[Any], fingerprint: str) -> ArrowImages:
    """Return all rows of binary arrays."""
    sizes = np.array([len(chunk) for chunk in chunks], np.int64)
    starts = np.concatenate([[0], sizes.cumsum()[:-1]]) if len(sizes) else sizes
    kept = [place for place in range(len(chunks)) if sizes[place]]
    return ArrowImages(
        tuple(chunks[place] for place in kept),
        tuple(int(starts[place]) for place in kept),
        np.arange(int(sizes.sum())),
        fingerprint,
    )


def encoded(array: Any) -> Any:
    """Return the bytes of an image column as a binary array: of a struct, its field `bytes`."""
    pa = require_pyarrow()
    if pa.types.is_struct(array.type):
        array = pa.compute.struct_field(array, "bytes")  # a missing struct has missing bytes
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.large_binary())


def file_state(path: Path) -> str:
    """Return a hash of a file's path, size and modification time."""
    found = os.stat(path)
    return hashlib.sha256(f"{path.resolve()}\0{found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:32]


def parquet_images(path: Path, column: str) -> list[Any]:
    """Return the images of a Parquet file as memory-mapped binary arrays.

    Parquet is compressed in large blocks, so that no row can be read alone; its images are copied once, in small
    batches, to an Arrow file in the cache.

    Raises:
        EvenhandError: the file is damaged, or the disk has no room for the copy.
    """
    pa = require_pyarrow()
    folder = cache_root() / FOLDER
    key = hashlib.sha256(f"{file_state(path)} {column}".encode()).hexdigest()[:32]
    copy = folder / f"{key}.arrow"
    for attempt in (0, 1):
        if attempt or not copy.is_file():
            with replacing(copy) as temporary:
                _copy(path, column, temporary, folder)
            _prune(folder, copy)
        try:
            os.utime(copy)  # so that the least recently used copies are known
            table = pa.ipc.open_file(pa.memory_map(str(copy))).read_all()
            return list(table.column(0).chunks)
        except (OSError, pa.ArrowException) as error:
            if attempt:
                raise EvenhandError(f"Cannot read {copy}: {reason(error)}.") from error
    raise AssertionError


def _copy(path: Path, column: str, target: Path, folder: Path) -> None:
    pa = require_pyarrow()
    room = shutil.disk_usage(target.parent).free - SPARE
    size = os.stat(path).st_size
    most = MOST_TIMES * size + 2**26
    declared = _declared(path, column)
    _refuse_too_large(path, declared, room, folder)
    written = 0
    with reading(path):
        schema = pa.schema([("image", pa.large_binary())])
        file = pa.parquet.ParquetFile(path, buffer_size=2**20, pre_buffer=False)
        with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in file.iter_batches(BATCH, columns=[column], use_threads=False):
                array = encoded(batch.column(0))
                written += array.nbytes
                if written > most:
                    raise EvenhandError(
                        f"{path} has {size:,} bytes and would unpack to more than {MOST_TIMES} times as many; images "
                        "are compressed already, so it is damaged or made to fill the disk."
                    )
                _refuse_too_large(path, written, room, folder)
                writer.write_batch(pa.record_batch([array], schema=schema))


def _declared(path: Path, column: str) -> int:
    """Return the bytes of a column before its blocks are compressed, as the file declares them."""
    pa = require_pyarrow()
    with reading(path):
        metadata = pa.parquet.read_metadata(path)
        total = 0
        for group in range(metadata.num_row_groups):
            blocks = metadata.row_group(group)
            for place in range(blocks.num_columns):
                block = blocks.column(place)
                if block.path_in_schema.split(".")[0] == column:
                    total += block.total_uncompressed_size
    return total


def _refuse_too_large(path: Path, size: int, room: int, folder: Path) -> None:
    if size > room:
        raise EvenhandError(
            f"{path} has {size / 1e9:,.1f} GB of images, which are copied once to {folder}, where "
            f"{max(room, 0) / 1e9:,.1f} GB are free; free some space, set XDG_CACHE_HOME to another disk, or save the "
            "images with datasets' save_to_disk, which is read where it is."
        )


def _prune(folder: Path, keep: Path) -> None:
    """Remove the least recently used copies beyond the limit; processes that read them keep them open."""
    total = 0
    found = sorted(((path.stat(), path) for path in folder.glob("*.arrow")), key=lambda each: -each[0].st_mtime_ns)
    for state, path in found:
        total += state.st_size
        if total > LIMIT and path != keep:
            path.unlink(missing_ok=True)
