"""Features of every image by a frozen network: computed once, kept on disk, continued after an interruption."""

import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Preprocessing
from evenhand.data.decode import BadImage, require_file, with_channels
from evenhand.data.images import refuse_bad
from evenhand.data.reading import ProgressLog, RowReader, Threads, processors, read_ahead
from evenhand.data.table import ArrayPixels, FilePixels
from evenhand.models.backbone import Backbone
from evenhand.training._feature_cache import FORMAT, FeatureStore

BATCH_SIZE = 6
"""On a CPU more images at once are slower: what lies between two layers no longer fits its caches."""
BATCH_SIZE_CUDA = 64
SAVE_EVERY = 10.0
"""Seconds of work that an interruption may cost."""

_logger = logging.getLogger("evenhand")


@dataclass(frozen=True, eq=False)
class Features:
    """What a frozen network makes of the images of a source."""

    values: NDArray[np.float16]
    """(N, V, F): of every row in each of V views, as it is and mirrored; zeros where it cannot be read."""
    bad: dict[int, str]
    """Rows whose images cannot be read, and why."""


def extract_features(
    pixels: FilePixels | ArrayPixels,
    backbone: Backbone,
    *,
    mirrored: bool = False,
    skip_bad: bool = False,
    cache: Path | str | None = None,
    progress: bool = True,
    device: torch.device | str = "cpu",
) -> Features:
    """Put every image through a frozen network, unless its features are on disk already.

    Features are kept by the content of the weights, of the image and of what is done to it, so that nothing is
    computed twice and nothing is reused wrongly. While the network works the next batch is decoded. What is done when
    the work is interrupted is kept.

    Args:
        pixels: the images.
        backbone: the network, whose transform says how images are resized, cut and normalised.
        mirrored: also compute the features of every image as a mirror shows it.
        skip_bad: leave unreadable images out and list them in `bad` instead of refusing.
        cache: folder for features; None: in the user's cache folder.
        progress: show a progress bar on stderr; where that is no terminal, a line from time to time.
        device: where to compute.

    Raises:
        EvenhandError: images cannot be read (and `skip_bad` is off), or the network answers NaN.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from evenhand.data.table import ArrayPixels
        >>> from evenhand.models.backbone import load_backbone
        >>> from evenhand.training.features import extract_features
        >>> pixels = ArrayPixels(np.zeros((3, 40, 30, 3), np.uint8))
        >>> extract_features(pixels, load_backbone("lite0"), cache=tempfile.mkdtemp()).values.shape
        (3, 1, 1280)
    """
    root = cache_root() / "features" if cache is None else Path(cache)
    bad: dict[int, str] = {}
    rows = _rows_by_content(pixels, bad, progress=progress)
    views = (False, True) if mirrored else (False,)
    values = np.zeros((len(pixels), len(views), backbone.num_features), np.float16)
    for number, mirror in enumerate(views):
        into = values[:, number]
        store = _open_store(root, backbone, mirror)
        missing = rows.keys() - store.fill(rows, into)
        if missing:
            with store.lock():  # who held it before may have computed what is missing
                missing -= store.fill({digest: rows[digest] for digest in missing}, into)
                todo = {digest: places for digest, places in rows.items() if digest in missing}
                extraction = _Extraction(pixels, backbone, store, mirror, torch.device(device))
                with _progress(len(todo), mirror, show=progress) as advance:
                    extraction.run(todo, into, bad, advance)
    if isinstance(pixels, FilePixels):
        refuse_bad(bad, pixels, skip_bad=skip_bad)
    return Features(values, bad)


class _Extraction:
    """The work on the images of one view that are not in the store yet."""

    def __init__(
        self,
        pixels: FilePixels | ArrayPixels,
        backbone: Backbone,
        store: FeatureStore,
        mirror: bool,
        device: torch.device,
    ) -> None:
        self.pixels, self.store, self.mirror, self.device = pixels, store, mirror, device
        self.backbone = backbone.to(device).to(memory_format=torch.channels_last)
        transform = backbone.transform
        stretch = transform.resize_rule == "stretch"
        self.reader = RowReader(pixels, transform.resize_size, len(transform.mean), transform.interpolation, stretch)
        self.crop = transform.crop_size
        self.preprocessing = Preprocessing(crop_size=self.crop, mean=transform.mean, std=transform.std)

    def run(
        self,
        rows: dict[bytes, list[int]],
        into: NDArray[np.float16],
        bad: dict[int, str],
        advance: Callable[[int], None],
    ) -> None:
        """Compute the features of each image once, write them to its rows, and keep them on disk from time to time."""
        pending: list[bytes] = []
        saved, keeping = time.monotonic(), True
        try:
            for batch in read_ahead(rows.items(), self._read, self._batch_size()):
                pending += self._compute(batch, into, bad)
                advance(len(batch))
                if keeping and time.monotonic() - saved > SAVE_EVERY:
                    keeping, saved = self._save(pending, rows, into), time.monotonic()
                    pending.clear()
        finally:  # also when someone presses Ctrl-C
            if keeping:
                self._save(pending, rows, into)

    def _compute(
        self,
        batch: list[tuple[tuple[bytes, list[int]], NDArray[np.uint8] | BadImage]],
        into: NDArray[np.float16],
        bad: dict[int, str],
    ) -> list[bytes]:
        """Write the features of a batch; return the digests of the images that could be read."""
        read: list[tuple[bytes, list[int], NDArray[np.uint8]]] = []
        for (digest, places), image in batch:
            if isinstance(image, BadImage):
                bad.update(dict.fromkeys(places, image.reason))
            else:
                read.append((digest, places, image))
        if read:
            for (_, places, _), features in zip(read, self._forward([image for *_, image in read]), strict=True):
                into[places] = features
        return [digest for digest, *_ in read]

    def _save(self, pending: list[bytes], rows: dict[bytes, list[int]], into: NDArray[np.float16]) -> bool:
        return not pending or self.store.add(pending, into[[rows[digest][0] for digest in pending]])

    def _read(self, item: tuple[bytes, list[int]]) -> NDArray[np.uint8]:
        """Return the square that the network sees, (S, S, 3)."""
        digest, (row, *_) = item
        content = None
        if isinstance(self.pixels, FilePixels):
            content = _read_file(self.pixels, row)
            if _digest(content, self.pixels, row) != digest:
                raise BadImage(f"{self.pixels.paths[row]} changed while it was read.", "it changed while it was read")
        image = self.reader(row, content)
        top, left = (image.shape[0] - self.crop) // 2, (image.shape[1] - self.crop) // 2
        image = image[top : top + self.crop, left : left + self.crop]
        image = with_channels(image, len(self.preprocessing.mean))
        return image[:, ::-1] if self.mirror else image

    @torch.inference_mode()
    def _forward(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float16]:
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).to(self.device)
        features = self.backbone(self.preprocessing.normalise(pixels)).half()
        if not features.isfinite().all():
            raise EvenhandError(
                f"{self.backbone.name} answers NaN or numbers beyond float16: its weights from "
                f"{self.backbone.weights.source} are of no use for features."
            )
        return np.asarray(features.cpu())

    def _batch_size(self) -> int:
        return BATCH_SIZE if self.device.type == "cpu" else BATCH_SIZE_CUDA


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


@contextmanager
def _progress(total: int, mirror: bool, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Show how far the work is, how fast it goes and how long it takes; in a pipe, a line now and then."""
    hidden = not (show and sys.stderr.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        title = "Computing features" + " of mirror images" * mirror
        task, lines = bar.add_task(title, total=total), ProgressLog(title, total, show=show)

        def advance(number: int) -> None:
            bar.advance(task, number)
            lines.advance(number)

        yield advance


def _open_store(root: Path, backbone: Backbone, mirror: bool) -> FeatureStore:
    about = (str(FORMAT), backbone.name, backbone.weights.sha256, backbone.transform.fingerprint(), str(mirror))
    key = hashlib.sha256(" ".join(about).encode()).hexdigest()[:32]
    return FeatureStore(root / key, key, backbone.num_features)


def _rows_by_content(
    pixels: FilePixels | ArrayPixels, bad: dict[int, str], *, progress: bool
) -> dict[bytes, list[int]]:
    """Return the rows of each image by the digest of its content; the same picture twice is one image."""
    rows: dict[bytes, list[int]] = {}
    # In parts: every run does this, and to hand out each file alone would cost more than to read it.
    threads = Threads(processors(), progress)
    for part in threads.map(lambda part: _content_digests(pixels, part), np.arange(len(pixels)), "Looking at images"):
        for row, digest in part:
            if isinstance(digest, BadImage):
                bad[row] = digest.reason
            else:
                rows.setdefault(digest, []).append(row)
    return rows


def _content_digests(pixels: FilePixels | ArrayPixels, rows: NDArray[np.int64]) -> list[tuple[int, bytes | BadImage]]:
    digests: list[tuple[int, bytes | BadImage]] = []
    for row in rows.tolist():
        try:
            content = _read_file(pixels, row) if isinstance(pixels, FilePixels) else pixels.images[row].tobytes()
            digests.append((row, _digest(content, pixels, row)))
        except BadImage as error:  # noqa: PERF203 - beside reading a file, a `try` costs nothing
            digests.append((row, error))
    return digests


def _digest(content: bytes, pixels: FilePixels | ArrayPixels, row: int) -> bytes:
    """Name an image by its bytes and by which part of it is meant."""
    digest = hashlib.sha256(content)
    if isinstance(pixels, ArrayPixels):
        digest.update(f"array {pixels.images.shape[1:]}".encode())
    else:
        box = None if pixels.boxes is None else pixels.boxes[row].tolist()
        digest.update(f"file {box} {pixels.stretch}".encode())
    return digest.digest()[:16]


def _read_file(pixels: FilePixels, row: int) -> bytes:
    path = os.path.join(pixels.root, pixels.paths[row])
    try:
        require_file(path)
        with open(path, "rb", buffering=0) as file:  # read whole: a buffer would only cost
            return file.read()
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise BadImage(f"Cannot read the image {path}: {reason}.", reason) from error
