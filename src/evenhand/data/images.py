"""The images of a table as uint8 pixels: decoded once and cached in memory and on disk, or streamed."""

import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.data import _cache as cache_files
from evenhand.data._cache import Entry
from evenhand.data.decode import Interpolation, stored_size
from evenhand.data.reading import RowReader, Threads, default_size, processors, read_headers, read_pixels
from evenhand.data.table import ArrayPixels, FilePixels, SampleTable

STATISTICS_SAMPLE = 10_000
"""Maximum number of streamed images that are decoded for mean and standard deviation."""


@dataclass(eq=False)
class Images(ABC):
    """The images of a table by row, with their shorter side resized to one length."""

    image_size: int
    """Length of the shorter side of every image."""
    channels: int
    """1 if every image is grey, else 3."""
    sizes: NDArray[np.int64]
    """(N, 2): height and width of each image."""
    bad: dict[int, str]
    """Rows whose images cannot be read, with the reason."""

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        """Return the image of a row: uint8, (H, W, C)."""
        self.require_readable(np.array([row]))
        return self._read(int(row))

    def readable(self) -> NDArray[np.int64]:
        """Return the rows whose images can be read, in order."""
        return np.setdiff1d(np.arange(len(self)), np.fromiter(self.bad, np.int64, len(self.bad)))

    def require_readable(self, rows: NDArray[np.int64]) -> None:
        """Raise a `ValueError` if a row does not exist or its image cannot be read."""
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise ValueError(f"rows range from {rows.min()} to {rows.max()}, the table from 0 to {len(self) - 1}")
        refused = [row for row in rows.tolist() if row in self.bad] if self.bad else []
        if refused:
            raise ValueError(f"{len(refused)} rows have no readable image, such as row {refused[0]}: leave them out")

    def statistics(self, rows: NDArray[np.int64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation of each channel over all pixels of these rows' images.

        In units where 255 is 1, exact (from counts of the 256 values). Of streamed images, at most `STATISTICS_SAMPLE`
        are used, with a fixed seed.
        """
        self.require_readable(rows)
        means, deviations = [], []
        for channel in self._histogram(rows).tolist():
            # Python's integers are exact, so that a constant channel has a deviation of exactly 0.
            n = sum(channel)
            total = sum(value * times for value, times in enumerate(channel))
            squares = sum(value * value * times for value, times in enumerate(channel))
            means.append(total / (255 * n) if n else 0.0)
            deviations.append((n * squares - total * total) ** 0.5 / (255 * n) if n else 0.0)
        return tuple(means), tuple(deviations)

    @abstractmethod
    def _read(self, row: int) -> NDArray[np.uint8]: ...

    def _histogram(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the 256 values in each channel, (C, 256)."""
        counts = np.zeros((self.channels, 256), np.int64)
        step = max(1, 2**18 // self.image_size**2)
        for start in range(0, len(rows), step):
            block = np.concatenate([self._read(row).reshape(-1, self.channels) for row in rows[start : start + step]])
            for channel in range(self.channels):
                counts[channel] += np.bincount(block[:, channel], minlength=256)
        return counts


@dataclass(eq=False)
class MemoryImages(Images):
    """Images that are decoded in memory, concatenated."""

    pixels: Tensor
    """uint8, (bytes,): each image as height x width x channels."""
    _copies: dict[torch.device, Tensor] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.offsets = np.concatenate([[0], self.sizes.prod(1).cumsum()[:-1] * self.channels]).astype(np.int64)
        """(N,): where each image starts."""

    def on(self, device: torch.device) -> Tensor:
        """Return the pixels on a CUDA device, copied there once; on the CPU, if it has no room or is no CUDA device."""
        if device.type != "cuda":
            return self.pixels
        if device not in self._copies and self.pixels.numel() < torch.cuda.mem_get_info(device)[0] // 2:
            self._copies[device] = self.pixels.to(device)
        return self._copies.get(device, self.pixels)

    def _read(self, row: int) -> NDArray[np.uint8]:
        height, width = self.sizes[row]
        start = self.offsets[row]
        image: NDArray[np.uint8] = self.pixels[start : start + height * width * self.channels].numpy()
        return image.reshape(height, width, self.channels)


@dataclass(eq=False)
class StreamedImages(Images):
    """Images that are decoded each time they are needed."""

    reader: RowReader
    threads: Threads
    """For decoding images for the statistics."""

    def _read(self, row: int) -> NDArray[np.uint8]:
        return self.reader(row)

    def _histogram(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(rows) > STATISTICS_SAMPLE:
            rows = rows[np.sort(stream(0, "statistics").choice(len(rows), STATISTICS_SAMPLE, replace=False))]
        counts = np.zeros((self.channels, 256), np.int64)
        for part in self.threads.map(super()._histogram, rows, "Measuring images"):
            counts += part
        return counts


@dataclass(eq=False)
class FeatureImages(Images):
    """Features of images by a frozen network: batches have features instead of pixels."""

    features: Tensor
    """float16, (N, V, F): of each image and, with V = 2, of the flipped image."""
    reader: RowReader
    """Decodes the few images that are shown, which may be smaller."""

    def _read(self, row: int) -> NDArray[np.uint8]:
        return self.reader(row)

    def take(self, rows: Tensor, flips: Tensor) -> Tensor:
        """Return the features of rows, float32 (B, F), of the flipped image where requested and stored."""
        views = self.features.shape[1]
        places = rows * views + flips if views > 1 else rows
        return self.features.view(-1, self.features.shape[2]).index_select(0, places).float()


def open_images(
    table: SampleTable,
    *,
    image_size: int | None = None,
    interpolation: Interpolation = "bilinear",
    budget: int | None = None,
    cache: Path | str | None = None,
    skip_bad: bool = False,
    workers: int | None = None,
    progress: bool = True,
) -> Images:
    """Decode the images of a table once, in parallel, and cache them; stream them if they exceed the budget.

    The shorter side of every image is resized to the image size, antialiased, with the aspect ratio kept; batches are
    cropped later. There is one channel if every image is grey, else three. Arrays are used as they are, without a copy
    unless they have to be resized.

    Args:
        table: the source.
        image_size: length of the shorter side; None: that of the table's info, else the native size if all images have
            one square size of at most 96, else 64.
        interpolation: the filter of the resize.
        budget: maximum bytes of memory for pixels; None: a quarter of the machine's.
        cache: folder for decoded pixels; None: in the user's cache folder.
        skip_bad: list unreadable images in `bad` instead of raising an error.
        workers: number of decoding threads; None: one per processor.
        progress: show a progress bar, if stderr is a terminal.

    Raises:
        EvenhandError: images cannot be read (and `skip_bad` is off), or there are none.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.images import open_images
        >>> from evenhand.data.table import ArrayPixels, SampleTable
        >>> pixels = ArrayPixels(np.full((4, 8, 8, 1), 51, np.uint8))
        >>> table = SampleTable("grey", ("only",), np.zeros(4, np.int64), np.array(list("abcd")), pixels)
        >>> images = open_images(table)
        >>> images.image_size, images.channels, images.statistics(np.arange(4))
        (8, 1, ((0.2,), (0.0,)))
    """
    wanted = image_size if image_size is not None else table.info.image_size
    if wanted is not None and wanted < 1:
        raise EvenhandError(f"The image size must be at least 1 pixel, got {wanted}.")
    if len(table) == 0:
        raise EvenhandError(f"{table.name} has no images.")
    budget = _memory() // 4 if budget is None else budget
    threads = Threads(workers or processors(), progress)
    if isinstance(table.pixels, ArrayPixels):
        return _open_array(table.pixels, wanted, interpolation, budget, threads)
    folder = cache_root() / "pixels" if cache is None else Path(cache)
    entry, pixels = _load_or_read(table.pixels, wanted, interpolation, budget, folder, threads)
    refuse_bad(entry.bad, table.pixels, skip_bad=skip_bad)
    reader = RowReader(table.pixels, entry.image_size, entry.channels, interpolation)
    return _images(entry, reader, pixels, threads)


def _open_array(
    source: ArrayPixels, wanted: int | None, interpolation: Interpolation, budget: int, threads: Threads
) -> Images:
    count, height, width, channels = source.images.shape
    image_size = wanted or default_size(np.array([[height, width]]))
    stored = stored_size(width, height, None, image_size)
    entry = Entry(image_size, channels, np.tile(np.array(stored, np.int64), (count, 1)), {})
    reader = RowReader(source, image_size, channels, interpolation)
    if (height, width) == stored:
        pixels: NDArray[np.uint8] | None = np.ascontiguousarray(source.images).reshape(-1)
    else:
        pixels = read_pixels(entry, reader, threads, keep=True) if entry.nbytes <= budget else None
    return _images(entry, reader, pixels, threads)


def _load_or_read(
    source: FilePixels,
    wanted: int | None,
    interpolation: Interpolation,
    budget: int,
    folder: Path,
    threads: Threads,
) -> tuple[Entry, NDArray[np.uint8] | None]:
    """Return the entry of the files, and their pixels if they fit the budget; read only what is not cached."""
    key = cache_files.fingerprint(source, wanted, interpolation)
    entry = cache_files.load_entry(folder, key, len(source))
    if entry is not None:
        if entry.nbytes > budget:
            return entry, None
        pixels = cache_files.load_pixels(folder, key, entry)
        if pixels is not None:
            return entry, pixels
    entry = read_headers(source, wanted, threads)
    reader = RowReader(source, entry.image_size, entry.channels, interpolation)
    # Pixels that do not fit are decoded all the same, to find unreadable files before training.
    pixels = read_pixels(entry, reader, threads, keep=entry.nbytes <= budget)
    cache_files.save(folder, key, entry, pixels)
    return entry, pixels


def _images(entry: Entry, reader: RowReader, pixels: NDArray[np.uint8] | None, threads: Threads) -> Images:
    known = (entry.image_size, entry.channels, entry.sizes, entry.bad)
    if pixels is None:
        return StreamedImages(*known, reader, threads)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
        return MemoryImages(*known, torch.from_numpy(pixels))


def refuse_bad(bad: dict[int, str], source: FilePixels, *, skip_bad: bool) -> None:
    """Raise an `EvenhandError` that names the first unreadable images, unless they may be skipped and others remain."""
    if not bad:
        return
    named = ", ".join(f"{source.paths[row]} ({bad[row]})" for row in sorted(bad)[:3])
    more = ", ..." if len(bad) > 3 else ""
    if len(bad) == len(source):
        raise EvenhandError(f"None of the {len(bad)} images can be read: {named}{more}.")
    if not skip_bad:
        raise EvenhandError(
            f"{len(bad)} of {len(source)} images cannot be read: {named}{more}; --skip-bad leaves them out."
        )


def _memory() -> int:
    """Return the bytes of memory of this machine, or of the container that limits it."""
    if not hasattr(os, "sysconf"):
        return 4 * 2**30  # Windows needs a further library for this: assume a small machine
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return memory
