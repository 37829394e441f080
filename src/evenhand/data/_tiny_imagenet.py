"""Tiny ImageNet: 200 classes of 64x64 images, as files."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_bytes
from evenhand.core.text import some
from evenhand.data.download import Remote, fetch, unpack, verify
from evenhand.data.standard import TINY_IMAGENET, from_npz, part_note
from evenhand.data.table import FilePixels, SampleTable, Split

# There is no official checksum; unrelated public projects record this one for the official file.
ARCHIVE = Remote(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)


def load_tiny_imagenet(root: Path, *, download: bool = True) -> SampleTable:
    """Read Tiny ImageNet from `<root>/tiny-imagenet-200`, or `<root>/tiny-imagenet.npz`, or its zip file.

    The labelled validation images are the test split. Classes are in the order of their WordNet numbers and named by
    the first word of `words.txt`. A folder with fewer images than the complete set is accepted, with a note.
    """
    folder = root / "tiny-imagenet-200"
    if not folder.is_dir():
        if table := from_npz(TINY_IMAGENET, root):
            return table
        _obtain(root, folder, download)
    wnids = _names(folder / "train", "folders")
    train = [
        (f"train/{wnid}/images/{name}", wnid) for wnid in wnids for name in _names(folder / "train" / wnid / "images")
    ]
    test = _test_images(folder, set(wnids))
    empty = sorted(set(wnids) - {wnid for _, wnid in train})
    if empty:
        raise EvenhandError(f"{folder} has no training images of {some(empty)}; unpack {ARCHIVE.file} again.")
    try:
        class_names = name_classes(read_bytes(folder / "words.txt", _LARGEST_TEXT).decode(), wnids)
    except (EvenhandError, UnicodeDecodeError):
        class_names = tuple(wnids)
    number = {wnid: label for label, wnid in enumerate(wnids)}
    paths = [path for path, _ in train + test]
    sizes: dict[Split, int] = {"train": len(train), "test": len(test)}
    return SampleTable(
        name="tiny-imagenet",
        class_names=class_names,
        labels=np.array([number[wnid] for _, wnid in train + test]),
        ids=np.array(paths),
        pixels=FilePixels(folder, paths),
        splits=np.array(["train"] * len(train) + ["test"] * len(test)),
        info=TINY_IMAGENET.info,
        notes=() if sizes == TINY_IMAGENET.sizes else (part_note(TINY_IMAGENET, sizes),),
    )


_LARGEST_TEXT = 2**26
"""Bytes of words.txt and of the annotations, which have 2.7e6 and 4.4e5."""


def _obtain(root: Path, folder: Path, download: bool) -> None:
    archive = root / ARCHIVE.file
    own = not archive.is_file()
    fetch("tiny-imagenet", [ARCHIVE], root, download=download)
    if not own and not verify(archive, ARCHIVE.checksum):
        raise EvenhandError(f"{archive} is not the known file (its sha256 differs); remove it to download it again.")
    unpack(archive, folder)
    if own:
        archive.unlink(missing_ok=True)


def _names(folder: Path, kind: str = "images") -> list[str]:
    """Return the names of the folders or images in a folder, sorted."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if (entry.is_dir() if kind == "folders" else entry.name.lower().endswith(".jpeg"))
                and not entry.name.startswith(".")
            )
    except OSError as error:
        raise EvenhandError(f"Cannot read {folder}: {error.strerror}; unpack {ARCHIVE.file} again.") from error


def _test_images(folder: Path, known: set[str]) -> list[tuple[str, str]]:
    """Return the path and class of the labelled validation images that are there."""
    path = folder / "val" / "val_annotations.txt"
    try:
        lines = [line.split("\t") for line in read_bytes(path, _LARGEST_TEXT).decode().splitlines() if line.strip()]
    except (EvenhandError, UnicodeDecodeError) as error:
        raise EvenhandError(f"Cannot read {path}; unpack {ARCHIVE.file} again.") from error
    classes = {line[0]: line[1] if len(line) > 1 else "" for line in lines}
    present = _names(folder / "val" / "images")
    wrong = [name for name in present if classes.get(name) not in known]
    if wrong or not present:
        seen = f"{wrong[0]} has the class {classes.get(wrong[0])!r}" if wrong else "there are no images"
        raise EvenhandError(f"{path} does not match the images next to it: {seen}; unpack {ARCHIVE.file} again.")
    return [(f"val/images/{name}", classes[name]) for name in present]


def name_classes(words: str, wnids: Sequence[str]) -> tuple[str, ...]:
    r"""Name classes by their first word in the text of `words.txt`, with the WordNet number where two share it.

    Example:
        >>> from evenhand.data._tiny_imagenet import name_classes
        >>> name_classes("n1\tcrane, bird\nn2\tcrane\nn3\tox", ["n1", "n2", "n3", "n4"])
        ('crane (n1)', 'crane (n2)', 'ox', 'n4')
    """
    lines = (line.partition("\t") for line in words.splitlines())
    first = {wnid: text.split(",")[0].strip() for wnid, _, text in lines}
    names = [first.get(wnid) or wnid for wnid in wnids]
    shared = Counter(names)
    return tuple(name if shared[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(names, wnids, strict=True))
