"""Near duplicates, found by a perceptual hash: frames of one video, or one photo saved twice."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.data.reading import Threads, processors
from evenhand.data.splits import Splits
from evenhand.data.table import SampleTable

SMALLEST = 32
"""Minimum pixels of the shorter side: smaller images of one class are too similar to detect duplicates."""
MOST_BITS = 4
"""Maximum number of bits, of 64, in which the hashes of near duplicates differ."""
MOST_GREY = 0.04
"""Maximum mean difference of 16 x 16 grey values from 0 to 1 between near duplicates."""
LEAST_CONTRAST = 0.02
"""Minimum standard deviation of grey values for a meaningful hash."""
MOST_PLAIN = 0.5
"""Share of the 16 x 16 grey values that equal the border: with more, the little else is compared more closely."""
MOST_APART = 0.11
"""Maximum root mean square difference of these in colour at 32 x 32, relative to their contrast."""
SHOWN = 10
_BANDS = 8


@dataclass(frozen=True)
class NearDuplicates:
    """Groups of near duplicates."""

    images: int
    """Number of images with a near duplicate."""
    groups: int
    across: int
    """Number of groups in test and also in training or validation."""
    examples: tuple[tuple[str, ...], ...]
    """Ids of a few groups, those across splits first, at most 5 per group."""
    per_class: tuple[int, ...]
    """(K,): images per class if each group counts once."""
    named_by: str | None
    """The part of the names that identifies a group, such as `the part before the last '_'`; None: there is none."""


def find_near_duplicates(
    table: SampleTable, read_row: Callable[[int], NDArray[np.uint8]], splits: Splits
) -> NearDuplicates | None:
    """Find near duplicates among the images in the splits.

    Args:
        table: the samples.
        read_row: returns the image of a row, (H, W, C).
        splits: the rows of each split.

    Returns:
        None if there are none, or if images are too small.
    """
    rows = np.sort(np.concatenate([splits.train, splits.val, splits.test]))
    if len(rows) < 2 or min(read_row(int(rows[0])).shape[:2]) < SMALLEST:
        return None
    hashes, greys = _hashes(read_row, rows)
    firsts = _joined(hashes, greys, lambda place: _thumbnail(read_row(int(rows[place]))))
    members: dict[int, list[int]] = defaultdict(list)
    for place, first in enumerate(firsts.tolist()):
        members[first].append(int(rows[place]))
    groups = [group for group in members.values() if len(group) > 1]
    if not groups:
        return None
    test = set(splits.test.tolist())
    across = [group for group in groups if 0 < sum(row in test for row in group) < len(group)]
    known = set(map(id, across))
    shown = [*across, *(group for group in groups if id(group) not in known)][:SHOWN]
    distinct = {(int(table.labels[row]), first) for row, first in zip(rows, firsts, strict=True)}
    return NearDuplicates(
        images=sum(map(len, groups)),
        groups=len(groups),
        across=len(across),
        examples=tuple(tuple(str(table.ids[row]) for row in group[:5]) for group in shown),
        per_class=tuple(np.bincount([label for label, _ in distinct], minlength=table.num_classes).tolist()),
        named_by=_named_by([[str(table.ids[row]) for row in group] for group in groups], len(rows)),
    )


def _hashes(
    read_row: Callable[[int], NDArray[np.uint8]], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Return the hash of each image (0: none), and 16 x 16 grey values from 0 to 1."""
    hashes, greys = np.zeros(len(rows), np.uint64), np.zeros((len(rows), 256), np.float32)

    def hash_images(places: NDArray[np.int64]) -> None:
        for place in places.tolist():
            pixels = read_row(int(rows[place]))
            grey = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("L")
            values = np.asarray(grey.resize((16, 16), Image.Resampling.BOX), np.float32) / 255
            greys[place] = values.reshape(-1)
            if values.std() >= LEAST_CONTRAST:
                small = np.asarray(grey.resize((9, 8), Image.Resampling.BOX), np.int16)
                bits = (small[:, 1:] > small[:, :-1]).reshape(-1)  # whether it gets brighter to the right
                hashes[place] = np.packbits(bits).view(np.uint64)[0]

    for _ in Threads(processors(), progress=True).map(hash_images, np.arange(len(rows)), "Comparing images"):
        pass
    return hashes, greys


def _thumbnail(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return 32 x 32 colours from 0 to 1 without their mean, as a vector."""
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).convert("RGB")
    values = np.asarray(image.resize((32, 32), Image.Resampling.BOX), np.float32) / 255
    centred: NDArray[np.float32] = values - values.mean(axis=(0, 1))
    return centred.reshape(-1)


def _plain(greys: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Return which images are mostly background: two thin objects on white are alike nearly everywhere."""
    cells = greys.reshape(-1, 16, 16)
    border = np.concatenate([cells[:, 0], cells[:, -1], cells[:, :, 0], cells[:, :, -1]], axis=1)
    background = np.median(border, axis=1)[:, None]
    return np.asarray((np.abs(greys - background) < MOST_GREY).mean(axis=1) > MOST_PLAIN)


class _SecondLook:
    """Compares images that are mostly background by their own pixels, each read once."""

    def __init__(self, greys: NDArray[np.float32], thumbnail: Callable[[int], NDArray[np.float32]]) -> None:
        self.plain, self.thumbnail = _plain(greys), thumbnail
        self.known: dict[int, NDArray[np.float32]] = {}

    def agrees(self, place: int, others: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the others are near duplicates of an image, where the first look found them alike."""
        agrees = np.ones(len(others), np.bool_)
        for number in np.flatnonzero(self.plain[others] & self.plain[place]).tolist():
            one, other = self._read(place), self._read(int(others[number]))
            contrast = np.square(one).sum() + np.square(other).sum()
            agrees[number] = np.square(one - other).sum() <= MOST_APART**2 * contrast
        return agrees

    def _read(self, place: int) -> NDArray[np.float32]:
        if place not in self.known:
            if len(self.known) > 10_000:  # 120 MB
                self.known.clear()
            self.known[place] = self.thumbnail(place)
        return self.known[place]


def _joined(
    hashes: NDArray[np.uint64],
    greys: NDArray[np.float32],
    thumbnail: Callable[[int], NDArray[np.float32]] | None = None,
) -> NDArray[np.int64]:
    """Return for each image the first of its group: near duplicates of near duplicates are one group."""
    look = None if thumbnail is None else _SecondLook(greys, thumbnail)
    first = np.arange(len(hashes))
    # Hashes that differ in 4 of 64 bits agree in at least 4 of 8 bands: every pair meets in some two of them.
    bands = hashes.view(np.uint8).reshape(-1, _BANDS)
    for one in range(_BANDS):
        for other in range(one + 1, _BANDS):
            for places in _alike(bands[:, one].astype(np.int64) * 256 + bands[:, other], hashes != 0):
                _join(places, hashes, greys, first, look)
    return _roots(first, np.arange(len(first)))


def _roots(first: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Follow each place to the first of its group."""
    found = first[places]
    while (first[found] != found).any():
        found = first[found]
    return found


def _alike(keys: NDArray[np.int64], wanted: NDArray[np.bool_]) -> Iterable[NDArray[np.int64]]:
    """Yield the places that share a key, where there are several."""
    places = np.flatnonzero(wanted)
    order = places[np.argsort(keys[places], kind="stable")]
    edges = np.flatnonzero(np.diff(keys[order])) + 1
    return (part for part in np.split(order, edges) if len(part) > 1)


def _join(
    places: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    greys: NDArray[np.float32],
    first: NDArray[np.int64],
    look: _SecondLook | None,
) -> None:
    """Join the near duplicates among some places, by hash and by grey values, in blocks that fit memory."""
    for start in range(0, len(places), 256):
        block, rest = places[start : start + 256], places[start:]
        # Pairs in one group are not compared again: most of the pairs of a hundred copies of one image.
        apart = _roots(first, block)[:, None] != _roots(first, rest)
        near = apart & (_bits(hashes[block][:, None] ^ hashes[rest]) <= MOST_BITS)
        for left in np.flatnonzero(near.any(axis=1)).tolist():
            others = rest[left + 1 :][near[left, left + 1 :]]
            own = _roots(first, block[left : left + 1])
            others = others[_roots(first, others) != own]
            alike = np.abs(greys[others] - greys[block[left]]).mean(axis=1) <= MOST_GREY
            copies = others[alike]
            if look is not None:
                copies = copies[look.agrees(int(block[left]), copies)]
            joined = np.append(_roots(first, copies), own)
            first[joined] = joined.min()


def _bits(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Count the bits that are set in each number."""
    of_bytes = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
    counts: NDArray[np.int64] = of_bytes[values[..., None].view(np.uint8)].sum(axis=-1)
    return counts


def _named_by(groups: Sequence[Sequence[str]], total: int) -> str | None:
    """Return the part of the names that identifies nearly all groups; None: there is none."""
    for letter in ("_", "-", "/", " "):
        keys = [{name.rpartition(letter)[0] for name in group} for group in groups]
        single = [next(iter(key)) for key in keys if len(key) == 1]
        # A folder of a whole class would be a part that all have in common.
        useful = len(set(single)) > max(2, 0.5 * len(groups)) and all(single)
        if useful and len(single) >= 0.9 * len(groups) and len(set(single)) < total:
            return f"the part before the last {letter!r}"
    numbered = [{re.sub(r"\d+(\.\w+)?$", "", name) for name in group} for group in groups]
    if len(groups) > 2 and all(len(key) == 1 for key in numbered) and len(set().union(*numbered)) == len(groups):
        return "the part before the last number"
    return None
