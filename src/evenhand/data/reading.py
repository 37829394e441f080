"""Read all images of a source once, in parallel: headers first, then pixels."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from evenhand.data._cache import Entry
from evenhand.data.decode import BadImage, Interpolation, probe_image, quiet, read_image, resize_array, stored_size
from evenhand.data.table import ArrayPixels, FilePixels

LARGEST_NATIVE = 96
"""Square images up to this size keep it; others are resized to `DEFAULT_SIZE`."""
DEFAULT_SIZE = 64

EVERY = 5.0
"""Seconds between two lines of progress, where there is no terminal for a bar."""

_CHUNK = 32
_I = TypeVar("_I")
_T = TypeVar("_T")
_logger = logging.getLogger("evenhand")


class ProgressLog:
    """Log progress every few seconds, where there is no terminal for a bar.

    Args:
        title: name of the work.
        total: number of items.
        show: False: log nothing.
    """

    def __init__(self, title: str, total: int, *, show: bool = True) -> None:
        self.title, self.total, self.done = title, total, 0
        self.show = show and not sys.stderr.isatty()
        self.began = self.logged = time.monotonic()

    def advance(self, number: int) -> None:
        """Add to the items done, and log a line if the last one was a while ago."""
        self.done += number
        now = time.monotonic()
        if self.show and now - self.logged > EVERY:
            self.logged, speed = now, self.done / (now - self.began)
            left = (self.total - self.done) / speed
            progress = f"{self.done:,} of {self.total:,}, {speed:,.0f} images/s, {left:,.0f} s left"
            _logger.info("%s: %s", self.title, progress)


@dataclass(frozen=True)
class Threads:
    """Number of threads for work on many images, and whether to show progress on stderr."""

    workers: int
    progress: bool

    def map(self, work: Callable[[NDArray[np.int64]], _T], rows: NDArray[np.int64], title: str) -> Iterator[_T]:
        """Call `work` on small parts of the rows, and yield the results in order."""
        parts = [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
        hidden = not (self.progress and sys.stderr.isatty())
        log = ProgressLog(title, len(rows), show=self.progress)
        with quiet, Progress(console=Console(stderr=True), transient=True, disable=hidden) as bar:
            task = bar.add_task(title, total=len(rows))
            for part, result in zip(parts, self._map(work, parts), strict=True):
                bar.advance(task, len(part))
                log.advance(len(part))
                yield result

    def _map(self, work: Callable[[NDArray[np.int64]], _T], parts: list[NDArray[np.int64]]) -> Iterator[_T]:
        if self.workers == 1:
            yield from map(work, parts)
            return
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                yield from pool.map(work, parts)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)  # after an interrupt, do not wait for the rest


@dataclass(frozen=True, eq=False)
class RowReader:
    """Read the image of a row as it is stored: uint8, (H, W, C)."""

    pixels: ArrayPixels | FilePixels
    image_size: int
    channels: int
    interpolation: Interpolation = "bilinear"
    stretch: bool = False
    """Resize both sides to the image size, even where the source does not."""

    def __call__(self, row: int, content: bytes | None = None) -> NDArray[np.uint8]:
        """Read one image, from the content of its file if given; raises `BadImage`."""
        if isinstance(self.pixels, ArrayPixels):
            return resize_array(
                self.pixels.images[row], self.image_size, stretch=self.stretch, interpolation=self.interpolation
            )
        return read_image(
            self.pixels.path(row),
            _box(self.pixels, row),
            channels=self.channels,
            image_size=self.image_size,
            stretch=self.stretch or self.pixels.stretch,
            interpolation=self.interpolation,
            content=self.pixels.content(row) if content is None else content,
        )


def read_ahead(
    items: Iterable[_I], read: Callable[[_I], _T], batch_size: int
) -> Iterator[list[tuple[_I, _T | BadImage]]]:
    """Read items by threads, a batch ahead of the consumer; an unreadable item is yielded as its `BadImage`.

    Example:
        >>> from evenhand.data.reading import read_ahead
        >>> list(read_ahead("abc", str.upper, batch_size=2))
        [[('a', 'A'), ('b', 'B')], [('c', 'C')]]
    """

    def attempt(item: _I) -> _T | BadImage:
        try:
            return read(item)
        except BadImage as error:
            return error

    source = iter(items)
    waiting: list[tuple[_I, Future[_T | BadImage]]] = []
    with ThreadPoolExecutor(processors()) as pool:
        try:
            while True:
                reading = [(item, pool.submit(attempt, item)) for item in islice(source, batch_size)]
                if waiting:
                    yield [(item, future.result()) for item, future in waiting]
                if not reading:
                    return
                waiting = reading
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def processors() -> int:
    """Return the number of processors to use, at most 16."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, 16)


def default_size(sizes: NDArray[np.int64]) -> int:
    """Return the image size for images of these heights and widths, (N, 2).

    Example:
        >>> import numpy as np
        >>> from evenhand.data.reading import default_size
        >>> default_size(np.array([[28, 28], [28, 28]])), default_size(np.array([[28, 28], [28, 30]]))
        (28, 64)
    """
    if len(sizes) and (sizes == sizes[0, 0]).all() and sizes[0, 0] <= LARGEST_NATIVE:
        return int(sizes[0, 0])
    return DEFAULT_SIZE


def read_headers(pixels: FilePixels, image_size: int | None, threads: Threads) -> Entry:
    """Return the stored sizes of the images and the unreadable files, from the headers alone."""
    sizes = np.zeros((len(pixels), 2), np.int64)
    colour = np.zeros(len(pixels), np.bool_)
    bad: dict[int, str] = {}

    def read(rows: NDArray[np.int64]) -> None:
        for row in rows.tolist():
            try:
                info = probe_image(pixels.path(row), pixels.content(row))
                sizes[row] = stored_size(info.width, info.height, _box(pixels, row), None)
                colour[row] = not info.grey
            except BadImage as error:  # noqa: PERF203 - a `try` costs nothing compared with opening a file
                bad[row] = error.reason
            except ValueError as error:  # a box outside the image
                bad[row] = str(error)

    for _ in threads.map(read, np.arange(len(pixels)), "Reading headers"):
        pass
    found = sizes[:, 0] > 0
    image_size = image_size or default_size(sizes[found])
    sizes[~found] = image_size  # an unreadable image is stored as a black square
    for row in np.flatnonzero(found):
        height, width = sizes[row].tolist()
        sizes[row] = stored_size(width, height, None, image_size, stretch=pixels.stretch)
    return Entry(image_size, 3 if colour.any() else 1, sizes, bad)


def read_pixels(entry: Entry, reader: RowReader, threads: Threads, *, keep: bool) -> NDArray[np.uint8] | None:
    """Decode every image, add unreadable ones to the entry, and return all pixels, (bytes,), if `keep`."""
    pixels = np.zeros(entry.nbytes, np.uint8) if keep else None
    starts = np.concatenate([[0], entry.sizes.prod(1).cumsum()[:-1] * entry.channels])

    def decode(rows: NDArray[np.int64]) -> None:
        for row in rows.tolist():
            try:
                image = reader(row)
            except BadImage as error:
                entry.bad[row] = error.reason
                continue
            # Rarely, a rotation is found only when the whole file is decoded: the number of pixels is the same.
            if image.shape[:2] not in (tuple(entry.sizes[row]), tuple(entry.sizes[row][::-1])):
                entry.bad[row] = "it changed while it was read"
                continue
            entry.sizes[row] = image.shape[:2]
            if pixels is not None:
                pixels[starts[row] : starts[row] + image.size] = image.reshape(-1)

    rows = np.setdiff1d(np.arange(len(entry.sizes)), np.fromiter(entry.bad, np.int64, len(entry.bad)))
    for _ in threads.map(decode, rows, "Decoding images"):
        pass
    return pixels


def _box(pixels: FilePixels, row: int) -> list[int] | None:
    return None if pixels.boxes is None else pixels.boxes[row].tolist()
