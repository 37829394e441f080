"""Audit of the data before training: counts, sizes, damaged files, duplicates, and advice."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.core.opening import open_regular
from evenhand.core.text import some
from evenhand.data._near import NearDuplicates, find_near_duplicates
from evenhand.data.decode import probe_image
from evenhand.data.imbalance import Imbalance, effective_number, imbalance_ratio, resembles
from evenhand.data.splits import Splits
from evenhand.data.table import FilePixels, SampleTable
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.statistics.intervals import wilson_interval

# With fewer test images the 95% interval of a class's recall spans more than 50 points.
MIN_TEST_IMAGES = 10


@dataclass(frozen=True)
class ClassRow:
    """One class as training would see it."""

    name: str
    train: int
    """Training images after any imbalance, before the validation split."""
    val: int
    test: int
    share: float
    """Fraction of all training images."""
    effective_number: float
    group: str
    groups: int | None = None
    """Independent images: a group of the source, or of near duplicates, counts once; None: all are independent."""


@dataclass(frozen=True)
class Duplicate:
    """Samples with the same pixels."""

    ids: tuple[str, ...]
    splits: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def leaks(self) -> bool:
        """The same image is in the test split and in another one."""
        return "test" in self.splits and len(set(self.splits)) > 1

    @property
    def conflicts(self) -> bool:
        """The same image has two labels."""
        return len(set(self.labels)) > 1


@dataclass(frozen=True)
class Audit:
    """The result of an audit, as `evenhand inspect` shows it."""

    source: str
    samples: int
    imbalance: str
    classes: tuple[ClassRow, ...]
    imbalance_ratio: float
    resembles: str | None
    shot_rule: str
    sizes: tuple[tuple[int, int, int], ...]
    """Width, height, number of images; the most frequent first."""
    modes: Mapping[str, int]
    unreadable: Mapping[str, str]
    """Sample id -> reason."""
    duplicates: tuple[Duplicate, ...]
    near_duplicates: NearDuplicates | None
    too_small_to_judge: tuple[str, ...]
    problems: tuple[str, ...]
    """What prevents training."""
    advice: tuple[str, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return everything as plain lists and dicts, for JSON."""
        content = asdict(self)
        for entry, duplicate in zip(content["duplicates"], self.duplicates, strict=True):
            entry |= {"leaks": duplicate.leaks, "conflicts": duplicate.conflicts}
        return content


def audit(
    table: SampleTable,
    splits: Splits | None,
    *,
    imbalance: Imbalance | None = None,
    unreadable: Mapping[str, str] | None = None,
    problems: Sequence[str] = (),
    read_row: Callable[[int], NDArray[np.uint8]] | None = None,
) -> Audit:
    """Audit a table and its splits.

    Args:
        table: the samples, all of which can be read.
        splits: the rows of each split; None where no split is possible, and `problems` says why.
        imbalance: the imbalance of the training set.
        unreadable: sample id -> reason, of the samples that are not in the table.
        problems: sentences about what prevents training.
        read_row: returns the image of a row, (H, W, C), to search for near duplicates; None: no search.

    Example:
        >>> from evenhand.data.audit import audit
        >>> from evenhand.data.sources import load_source
        >>> from evenhand.data.splits import make_splits
        >>> digits = load_source("digits")
        >>> round(audit(digits, make_splits(digits)).imbalance_ratio, 2)
        1.05
    """
    nothing = np.arange(0)
    splits_or_all = splits or Splits(np.arange(len(table)), nothing, nothing, table.counts())
    train, val, test = splits_or_all.counts, table.counts(splits_or_all.val), table.counts(splits_or_all.test)
    groups = find_shot_groups(train)
    effective = effective_number(train)
    near = None if read_row is None else find_near_duplicates(table, read_row, splits_or_all)
    independent = None if near is None else list(near.per_class)
    if table.groups is not None:
        independent = [len(np.unique(table.groups[table.labels == k])) for k in range(table.num_classes)]
    classes = tuple(
        ClassRow(
            name,
            int(train[k]),
            int(val[k]),
            int(test[k]),
            float(train[k] / max(train.sum(), 1)),
            float(effective[k]),
            groups.of(k),
            None if independent is None else independent[k],
        )
        for k, name in enumerate(table.class_names)
    )
    duplicates = find_duplicates(table, splits_or_all)
    sizes, modes = native_pixels(table)
    closest = resembles(train)
    return Audit(
        source=table.name,
        samples=len(table),
        imbalance=str(imbalance or Imbalance()),
        classes=classes,
        imbalance_ratio=imbalance_ratio(train),
        resembles=None if closest is None else str(closest),
        shot_rule=groups.rule,
        sizes=tuple((width, height, number) for (width, height), number in sizes.most_common()),
        modes=dict(modes.most_common()),
        unreadable=dict(unreadable or {}),
        duplicates=duplicates,
        near_duplicates=near,
        too_small_to_judge=tuple(row.name for row in classes if splits is not None and row.test < MIN_TEST_IMAGES),
        problems=tuple(problems),
        advice=(
            *_advice(classes, imbalance, closest, groups.rule, duplicates, has_splits=splits is not None),
            *_near_advice(near, table.groups is not None, len(table)),
        ),
        notes=(*table.notes, *(() if splits is None else splits.notes)),
    )


def _near_advice(near: NearDuplicates | None, grouped: bool, total: int) -> list[str]:
    if near is None:
        return []
    found = f"{near.images:,} of {total:,} images have a near duplicate, in {near.groups:,} groups"
    if grouped or not near.across:
        return [f"{found}; no group is in both test and training." if not near.across else f"{found}."]
    by = f"; {near.named_by} of their names identifies the group" if near.named_by else ""
    verb = "is" if near.across == 1 else "are"
    return [
        f"{found}, as in frames of a video; {near.across:,} of them {verb} in both test and training, so results "
        f"would be too good. List the images in a CSV with a column `group`, which keeps a group in one split{by}."
    ]


def native_pixels(table: SampleTable) -> tuple[Counter[tuple[int, int]], Counter[str]]:
    """Count the original sizes (width, height) and colour modes of the images."""
    pixels = table.pixels
    if not isinstance(pixels, FilePixels):
        number, height, width, channels = pixels.images.shape
        return Counter({(width, height): number}), Counter({"L" if channels == 1 else "RGB": number})
    with ThreadPoolExecutor() as pool:
        headers = list(pool.map(lambda row: probe_image(pixels.path(row), pixels.content(row)), range(len(pixels))))
    if pixels.boxes is None:
        sizes = Counter((each.width, each.height) for each in headers)
    else:
        sizes = Counter((int(right - left), int(bottom - top)) for left, top, right, bottom in pixels.boxes)
    return sizes, Counter(each.mode for each in headers)


def find_duplicates(table: SampleTable, splits: Splits) -> tuple[Duplicate, ...]:
    """Return the samples in the splits that are identical, byte for byte.

    Leaks into the test set come first, then copies with different labels, then the rest.
    """
    sides = {int(row): name for name in ("train", "val", "test") for row in getattr(splits, name)}
    alike: dict[bytes, list[int]] = defaultdict(list)
    for row, digest in _fingerprints(table, sorted(sides)):
        alike[digest].append(row)
    found = [
        Duplicate(
            tuple(str(table.ids[row]) for row in rows),
            tuple(sides[row] for row in rows),
            tuple(table.class_names[table.labels[row]] for row in rows),
        )
        for rows in alike.values()
        if len(rows) > 1
    ]
    return tuple(sorted(found, key=lambda each: (not each.leaks, not each.conflicts)))


def _fingerprints(table: SampleTable, rows: Sequence[int]) -> list[tuple[int, bytes]]:
    """Return a hash of each sample's content; a file is only read if another has the same length."""
    pixels = table.pixels
    if not isinstance(pixels, FilePixels):
        return [(row, _hash(np.ascontiguousarray(pixels.images[row]).data)) for row in rows]
    lengths = {row: pixels.length(row) for row in rows}
    shared = Counter(lengths.values())
    digests: dict[str, bytes] = {}
    found = []
    for row in rows:
        path = pixels.paths[row]
        if shared[lengths[row]] > 1 and path not in digests:
            digests[path] = _hash(_content(pixels, row))
        box = b"" if pixels.boxes is None else pixels.boxes[row].tobytes()
        found.append((row, digests.get(path, path.encode()) + box))
    return found


def _hash(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _advice(
    classes: Sequence[ClassRow],
    applied: Imbalance | None,
    closest: Imbalance | None,
    shot_rule: str,
    duplicates: Sequence[Duplicate],
    *,
    has_splits: bool,
) -> tuple[str, ...]:
    """Return sentences about what the numbers mean for training and evaluation."""
    advice = []
    train = np.array([row.train for row in classes])
    ratio = imbalance_ratio(train)
    if closest is not None and closest.kind == "none":
        advice.append(f"The training set is nearly balanced (ratio {ratio:.2g}).")
    else:
        shape = "neither of the usual profiles" if closest is None else f"{closest}"
        largest = max(classes, key=lambda row: row.train)
        if applied is None or applied.kind == "none":
            advice.append(f"The training set resembles {shape}.")
        advice.append(
            f"Always predicting {largest.name!r} would be correct for {largest.share:.0%} of images like the training "
            "set, so evaluate by balanced accuracy."
        )
    sizes = Counter(row.group for row in classes)
    if ratio > 1:
        listed = [f"{sizes[group]} {group}-shot" for group in ("many", "medium", "few") if sizes[group]]
        advice.append(f"Shot groups: {', '.join(listed)} classes ({shot_rule}).")
    if has_splits:
        rarest = min(classes, key=lambda row: (row.train, row.test))
        low, high = wilson_interval(0.5, rarest.test)
        advice.append(
            f"{rarest.name!r}, the rarest class, has {rarest.test} test image{'s' * (rarest.test != 1)}: a recall of "
            f"50% would have a 95% interval from {low:.0%} to {high:.0%}."
        )
        small = [row.name for row in classes if row.test < MIN_TEST_IMAGES]
        if small:
            advice.append(
                f"Too few test images to evaluate by themselves (fewer than {MIN_TEST_IMAGES}): {some(small)}."
                " Without a test set of its own, the seeds of compare rotate through all images."
            )
    leaks = sum(each.leaks for each in duplicates)
    if leaks:
        advice.append(
            f"{leaks} image{'s are' if leaks > 1 else ' is'} in both test and training: remove one copy before you "
            "trust a result."
        )
    conflicts = sum(each.conflicts for each in duplicates)
    if conflicts:
        advice.append(f"{conflicts} image{'s have' if conflicts > 1 else ' has'} copies with another label.")
    return tuple(advice)


def _content(pixels: FilePixels, row: int) -> bytes:
    content = pixels.content(row)
    if content is None:
        with open_regular(pixels.path(row)) as file:
            content = file.read()
    return content
