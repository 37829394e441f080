"""Feature extraction with a frozen network: computed once, cached on disk, resumed after an interruption."""

import hashlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
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
from torch import Tensor

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular
from evenhand.core.seeds import stream
from evenhand.data.batches import Preprocessing
from evenhand.data.decode import BadImage, require_file, with_channels
from evenhand.data.images import refuse_bad
from evenhand.data.reading import ProgressLog, RowReader, Threads, processors, read_ahead
from evenhand.data.table import ArrayPixels, FilePixels
from evenhand.models.backbone import Backbone
from evenhand.models.joined import join_features
from evenhand.models.transform import centre_crop
from evenhand.training._feature_cache import FORMAT, FeatureStore, FeatureStores
from evenhand.training._feature_claims import Rows, shared_chunks
from evenhand.training.compiled_backbone import compile_backbone

BATCH_SIZE = 6
"""Larger batches are slower on a CPU: activations no longer fit its caches."""
BATCH_SIZE_CUDA = 64
COMPILE_FROM = 64
"""Images from which on a faster graph of the network is made, which takes a second or two."""
JOINED_ROWS = 4096
"""Images whose features are joined at once."""
SAVE_EVERY = 10.0
"""Seconds between two saves: the most work that an interruption loses."""

_logger = logging.getLogger("evenhand")


@dataclass(frozen=True, eq=False)
class ExtractedFeatures:
    """The features of the images of a source."""

    values: NDArray[np.float16]
    """(N, V, F): per row and view (original, mirrored); zeros where the image cannot be read."""
    bad: dict[int, str]
    """The reason for each row whose image cannot be read."""


def extract_features(
    pixels: FilePixels | ArrayPixels,
    backbone: Backbone,
    *,
    mirrored: bool = False,
    skip_bad: bool = False,
    cache: Path | str | None = None,
    progress: bool = True,
    device: torch.device | str = "cpu",
) -> ExtractedFeatures:
    """Compute the features of every image with a frozen network, or read them from the cache.

    The cache is keyed by the content of the weights and of the image, and by the preprocessing. While the network
    computes, the next batch is decoded. Features computed before an interruption are kept. Networks side by side have a
    cache each: adding one computes only its features.

    Args:
        pixels: the images.
        backbone: the network, or networks side by side, with their preprocessing.
        mirrored: also compute the features of mirrored images.
        skip_bad: list unreadable images in `bad` instead of raising.
        cache: folder of the feature cache; None: in the user's cache folder.
        progress: show a progress bar on stderr, or lines if it is not a terminal.
        device: of the computation.

    Raises:
        EvenhandError: images cannot be read (and `skip_bad` is off), or features are NaN.

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
    rows = rows_by_content(pixels, bad, progress=progress)
    views = (False, True) if mirrored else (False,)
    values = np.zeros((len(pixels), len(views), backbone.num_features), np.float16)
    for number, mirror in enumerate(views):
        members = backbone.members()
        stores = [open_store(root, member, mirror) for member in members]
        blocks = [np.zeros((len(pixels), store.num_features), np.float16) for store in stores]
        seen: set[str] = set()
        missing = [
            frozenset(rows.keys() - store.fill(rows, block, seen)) for store, block in zip(stores, blocks, strict=True)
        ]
        for lacking in dict.fromkeys(missing):  # networks that lack the same images share their decoding
            if lacking:
                chosen = [place for place, each in enumerate(missing) if each == lacking]
                todo = {digest: places for digest, places in rows.items() if digest in lacking}
                group = FeatureStores(tuple(stores[place] for place in chosen))
                extraction = _Extraction(
                    pixels, [members[place] for place in chosen], group, mirror, torch.device(device)
                )
                if len(rows) >= COMPILE_FROM:  # not those that are missing: a second try computes as the first did
                    extraction.compile()
                computed = _compute(extraction, todo, bad, seen, progress=progress)
                done = [row for places in todo.values() for row in places]
                for place, block in zip(chosen, group.split(computed), strict=True):
                    blocks[place][done] = block[done]
        values[:, number] = blocks[0] if len(blocks) == 1 else join_blocks(blocks)
    if isinstance(pixels, FilePixels):
        refuse_bad(bad, pixels, skip_bad=skip_bad)
    return ExtractedFeatures(values, bad)


def _compute(
    extraction: "_Extraction", todo: Rows, bad: dict[int, str], seen: set[str], *, progress: bool
) -> NDArray[np.float16]:
    """Compute the missing features of a view, shared with other processes; return them in rows of (N, F)."""
    into = np.zeros((len(extraction.pixels), sum(member.num_features for member in extraction.members)), np.float16)
    with _progress(len(todo), extraction.mirror, show=progress) as advance:
        chunks = shared_chunks(
            extraction.store, todo, into, seen=seen, batch_size=extraction.batch_size, advance=advance
        )
        with closing(chunks):
            for chunk in chunks:
                extraction.run(chunk, into, bad, advance)
    return into


def join_blocks(blocks: Sequence[NDArray[np.float16]]) -> NDArray[np.float16]:
    """Return the features of networks side by side, as the joined network computes them."""
    joined = np.empty((len(blocks[0]), sum(block.shape[1] for block in blocks)), np.float16)
    for start in range(0, len(joined), JOINED_ROWS):  # in parts: they are copied in float32
        parts = [torch.from_numpy(block[start : start + JOINED_ROWS]).float() for block in blocks]
        joined[start : start + JOINED_ROWS] = join_features(parts).half().numpy()
    return joined


class _Extraction:
    """Feature extraction for one view, of the images that are not in the store."""

    def __init__(
        self,
        pixels: FilePixels | ArrayPixels,
        members: Sequence[Backbone],
        store: FeatureStores,
        mirror: bool,
        device: torch.device,
    ) -> None:
        self.pixels, self.store, self.mirror, self.device = pixels, store, mirror, device
        self.members = [member.to(device).to(memory_format=torch.channels_last) for member in members]
        self.networks: list[Callable[[Tensor], Tensor]] = list(self.members)
        transform = members[0].transform
        stretch = transform.resize_rule == "stretch"
        self.reader = RowReader(pixels, transform.resize_size, len(transform.mean), transform.interpolation, stretch)
        self.crop = transform.crop_size
        self.preprocessing = Preprocessing(crop_size=self.crop, mean=transform.mean, std=transform.std)
        self.batch_size = BATCH_SIZE if self.device.type == "cpu" else BATCH_SIZE_CUDA
        self.keeping = True  # until the first failure to save

    def compile(self) -> None:
        """Compute by faster graphs of the networks, on a CPU and where there are any."""
        if self.device.type == "cpu":
            example = self._example(self.batch_size)
            self.networks = [compile_backbone(member, example) for member in self.members]

    def run(
        self,
        rows: Rows,
        into: NDArray[np.float16],
        bad: dict[int, str],
        advance: Callable[[int], None],
    ) -> None:
        """Compute the features of each image once, copy them to its rows, and save regularly."""
        pending: list[bytes] = []
        saved = time.monotonic()
        try:
            for batch in read_ahead(rows.items(), self._read, self.batch_size):
                pending += self._compute(batch, into, bad)
                advance(len(batch))
                if time.monotonic() - saved > SAVE_EVERY:
                    self._save(pending, rows, into)
                    saved = time.monotonic()
                    pending.clear()
        finally:  # also after Ctrl-C
            self._save(pending, rows, into)

    def _compute(
        self,
        batch: list[tuple[tuple[bytes, Sequence[int]], NDArray[np.uint8] | BadImage]],
        into: NDArray[np.float16],
        bad: dict[int, str],
    ) -> list[bytes]:
        """Write the features of a batch; return the digests of its readable images."""
        for (_, places), image in batch:
            if isinstance(image, BadImage):
                bad.update(dict.fromkeys(places, image.reason))
        read = [(digest, places, image) for (digest, places), image in batch if not isinstance(image, BadImage)]
        if read:
            for (_, places, _), features in zip(read, self._forward([image for *_, image in read]), strict=True):
                into[places] = features
        return [digest for digest, *_ in read]

    def _save(self, pending: list[bytes], rows: Rows, into: NDArray[np.float16]) -> None:
        if self.keeping and pending:
            self.keeping = self.store.add(pending, into[[rows[digest][0] for digest in pending]])

    def _read(self, item: tuple[bytes, Sequence[int]]) -> NDArray[np.uint8]:
        """Return the centre crop of an image, (S, S, 3)."""
        digest, (row, *_) = item
        content = None
        if isinstance(self.pixels, FilePixels):
            content = _read_file(self.pixels, row)
            if _digest(content, self.pixels, row) != digest:
                raise BadImage(f"{self.pixels.paths[row]} changed while it was read.", "it changed while it was read")
        image = self.reader(row, content)
        image = with_channels(centre_crop(image, self.crop), len(self.preprocessing.mean))
        return image[:, ::-1] if self.mirror else image

    def _example(self, size: int) -> Tensor:
        """Return normalised noise, (N, C, S, S)."""
        noise = stream(0, "noise").integers(
            0, 256, (size, self.crop, self.crop, len(self.preprocessing.mean)), np.uint8
        )
        return self.preprocessing.normalise(torch.from_numpy(noise).permute(0, 3, 1, 2))

    @torch.inference_mode()
    def _forward(self, images: list[NDArray[np.uint8]]) -> NDArray[np.float16]:
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).to(self.device)
        normalised = self.preprocessing.normalise(pixels)
        blocks = [network(normalised).half() for network in self.networks]
        for member, block in zip(self.members, blocks, strict=True):
            if not block.isfinite().all():
                raise EvenhandError(
                    f"{member.name} gives features that are NaN or beyond float16; use other weights than "
                    f"{member.weights.source}."
                )
        return np.asarray(torch.cat(blocks, dim=1).cpu())


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} images/s" if task.speed else "")


@contextmanager
def _progress(total: int, mirror: bool, *, show: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar with speed and remaining time; if stderr is not a terminal, lines."""
    hidden = not (show and sys.stderr.isatty())
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:
        title = "Computing features" + " of mirror images" * mirror
        task, lines = bar.add_task(title, total=total), ProgressLog(title, total, show=show)

        def advance(number: int) -> None:
            bar.advance(task, number)
            lines.advance(number)

        yield advance


def open_store(root: Path, backbone: Backbone, mirror: bool) -> FeatureStore:
    """Return the store of the features of one network and view."""
    about = [str(FORMAT), backbone.name, backbone.weights.sha256, backbone.transform.fingerprint(), str(mirror)]
    changes = backbone.input_changes
    key = hashlib.sha256(" ".join([*about, *[changes] * bool(changes)]).encode()).hexdigest()[:32]
    return FeatureStore(root / key, key, backbone.num_features, backbone.name)


def rows_by_content(pixels: FilePixels | ArrayPixels, bad: dict[int, str], *, progress: bool) -> dict[bytes, list[int]]:
    """Return the rows of each image by the digest of its content; duplicates share one digest."""
    rows: dict[bytes, list[int]] = {}
    # In chunks: a task per file would cost more than reading it.
    threads = Threads(processors(), progress)
    for part in threads.map(lambda part: _content_digests(pixels, part), np.arange(len(pixels)), "Checking images"):
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
        except BadImage as error:  # noqa: PERF203 - reading the file costs far more
            digests.append((row, error))
    return digests


def _digest(content: bytes, pixels: FilePixels | ArrayPixels, row: int) -> bytes:
    """Return a digest of an image's bytes and of its crop box."""
    digest = hashlib.sha256(content)
    if isinstance(pixels, ArrayPixels):
        digest.update(f"array {pixels.images.shape[1:]}".encode())
    else:
        box = None if pixels.boxes is None else pixels.boxes[row].tolist()
        digest.update(f"file {box} {pixels.stretch}".encode())
    return digest.digest()[:16]


def _read_file(pixels: FilePixels, row: int) -> bytes:
    path, content = pixels.path(row), pixels.content(row)
    if content is not None:
        if not content:
            raise BadImage(f"Cannot read the image {path}: the file is empty.", "the file is empty")
        return content
    try:
        require_file(path)
        with open_regular(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise BadImage(f"Cannot read the image {path}: {reason}.", reason) from error
