"""Images in arrays: `.npz` files with MedMNIST's keys, and tables of arrays."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.arrays import refuse_bomb
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular
from evenhand.core.text import some
from evenhand.data.table import ArrayPixels, DatasetInfo, SampleTable, Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
_KEYS = [f"{split}_{kind}" for split in SPLITS for kind in ("images", "labels")]
_CHUNK = 1 << 24
MOST_TIMES = 100
"""Largest compression ratio that is accepted; drawings may reach it, photographs never do."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """The splits of a data set, concatenated in the order train, val, test."""

    images: NDArray[np.uint8]
    """(N, H, W, C), C = 1 or 3."""
    labels: NDArray[np.int64]
    """(N,)."""
    sizes: Mapping[Split, int]
    """Number of images per split."""
    class_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def labels_of(self, split: Split) -> NDArray[np.int64]:
        """Return the labels of one split."""
        ends = np.cumsum(list(self.sizes.values()))
        end = int(ends[list(self.sizes).index(split)])
        return self.labels[end - self.sizes[split] : end]


def array_table(
    name: str, arrays: Arrays, class_names: Sequence[str], *, info: DatasetInfo | None = None, notes: Sequence[str] = ()
) -> SampleTable:
    """Make a table of arrays; a sample is named by its split and its index there.

    Example:
        >>> import numpy as np
        >>> from evenhand.data._arrays import Arrays, array_table
        >>> images = np.zeros((3, 8, 8, 1), np.uint8)
        >>> arrays = Arrays(images, labels=np.array([0, 1, 1]), sizes={"train": 2, "test": 1})
        >>> array_table("tiny", arrays, ["cat", "dog"]).ids.tolist()
        ['train/00000', 'train/00001', 'test/00000']
    """
    splits = np.repeat(list(arrays.sizes), list(arrays.sizes.values()))
    return SampleTable(
        name=name,
        class_names=tuple(class_names),
        labels=arrays.labels,
        ids=np.array([f"{split}/{place:05d}" for split, size in arrays.sizes.items() for place in range(size)]),
        pixels=ArrayPixels(arrays.images),
        splits=splits if "test" in arrays.sizes else None,
        info=info or DatasetInfo(),
        notes=(*arrays.notes, *notes),
    )


def load_npz(path: Path | str, *, strict: bool = True) -> SampleTable:
    """Read a `.npz` of images: `train_images` and `train_labels`, and optionally `val_...` and `test_...`.

    Images are uint8, (N, H, W) or (N, H, W, C) with 1 or 3 channels; labels are integers from 0, (N,) or (N, 1).
    Classes are named by their number, or by an optional array of text `class_names`. Without `test_images` the splits
    are left to be cut. Pickled objects are never read.

    Args:
        path: the file.
        strict: refuse classes that cannot be learnt and evaluated; else one class will do, and any in any split.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from evenhand.data import load_npz
        >>> path = Path(tempfile.mkdtemp()) / "noise.npz"
        >>> np.savez(path, train_images=np.zeros((4, 8, 8), np.uint8), train_labels=np.array([0, 1, 2, 0]))
        >>> table = load_npz(path)
        >>> table.name, table.class_names, table.splits is None
        ('noise', ('0', '1', '2'), True)
    """
    path = Path(path)
    arrays = read_npz(path)
    train = arrays.labels_of("train")
    num_classes = int(arrays.labels.max()) + 1 if arrays.class_names is None else len(arrays.class_names)
    if arrays.labels.max() >= num_classes:
        raise EvenhandError(f"{path} has the label {arrays.labels.max()}, but names only {num_classes} classes.")
    # More classes than images leaves some without any; checked first, so that a wild label costs no memory.
    if arrays.class_names is None and num_classes > (len(train) if strict else max(len(arrays.labels), 1000)):
        raise EvenhandError(
            f"{path} has the label {arrays.labels.max()} with only {len(train)} training images; "
            "labels must run from 0 to the number of classes - 1."
        )
    class_names = arrays.class_names or tuple(map(str, range(num_classes)))
    empty = [class_names[k] for k in np.flatnonzero(np.bincount(train, minlength=num_classes) == 0)]
    if strict and empty:
        raise EvenhandError(f"{path} has no training image of class {some(empty)}; add some, or renumber the labels.")
    if strict and num_classes < 2:
        raise EvenhandError(f"{path} has only one class, {class_names[0]!r}; a classifier needs two or more.")
    return array_table(path.stem, arrays, class_names)


def read_npz(path: Path) -> Arrays:
    """Read the splits of a `.npz` into one array, without a second copy in memory."""
    with reading(path), open_regular(path) as opened, zipfile.ZipFile(opened) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        try:
            refuse_bomb(members.values(), path.stat().st_size, MOST_TIMES)
        except EvenhandError as error:
            raise EvenhandError(f"Cannot read {path}: {error}") from error
        sizes: dict[Split, int] = {}
        labels, shapes = [], {}
        for split in _splits_in(path, members):
            with archive.open(members[f"{split}_images"]) as file:
                shapes[split] = _image_shape(f"{split}_images of {path}", file, members[f"{split}_images"])
            labels.append(_labels(path, split, archive, members))
            sizes[split] = shapes[split][0]
            if len(labels[-1]) != sizes[split]:
                raise EvenhandError(f"{path} has {sizes[split]} {split} images, but {len(labels[-1])} {split} labels.")
        if len({shape[1:] for shape in shapes.values()}) > 1:
            seen = ", ".join(f"{shape[1:]} in {split}" for split, shape in shapes.items())
            raise EvenhandError(f"{path} has images of different shapes: {seen}; they must share one.")
        images = np.empty((sum(sizes.values()), *shapes["train"][1:]), np.uint8)
        start = 0
        for split, size in sizes.items():
            with archive.open(members[f"{split}_images"]) as file:
                _fill(images[start : start + size], file, members[f"{split}_images"], path)
            start += size
        names = _class_names(path, archive, members)
    others = sorted(set(members) - {*_KEYS, "class_names"})
    notes = (f"Ignored in {path.name}: {some(others)}.",) if others else ()
    return Arrays(images, np.concatenate(labels), sizes, names, notes)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Re-raise any error inside as an `EvenhandError` about this file.

    Damaged files make decoders raise nearly anything (struct.error, zlib.error, OverflowError, MemoryError...), so only
    code that reads the file belongs inside this block.
    """
    try:
        yield
    except EvenhandError:
        raise
    except MemoryError as error:
        raise EvenhandError(f"Cannot read {path}: its images do not fit in memory.") from error
    except Exception as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: "np.dtype[Any]"


def _splits_in(path: Path, members: Mapping[str, zipfile.ZipInfo]) -> list[Split]:
    present = [split for split in SPLITS if f"{split}_images" in members or f"{split}_labels" in members]
    missing = [key for key in _KEYS if key.split("_")[0] in {"train", *present} and key not in members]
    if missing:
        raise EvenhandError(f"{path} lacks {some(missing)}; it has {some(sorted(members)) or 'nothing'}.")
    if present == ["train", "val"]:
        raise EvenhandError(
            f"{path} has val_images but no test_images; rename them to test_images (validation is split off training)."
        )
    return present


def _header(what: str, file: IO[bytes], info: zipfile.ZipInfo) -> _Header:
    """Read the header of a `.npy`, and raise an error if it is pickled or has the wrong length."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        header = _Header(*np.lib.format.read_array_header_1_0(file))
    elif version == (2, 0):
        header = _Header(*np.lib.format.read_array_header_2_0(file))
    else:
        raise EvenhandError(f"{what} is in .npy format {version[0]}.{version[1]}; save it again with numpy.savez.")
    if header.dtype.hasobject:
        raise EvenhandError(f"{what} has pickled objects, which can run code when read; save plain arrays instead.")
    if min(header.shape, default=0) < 0 or prod(header.shape) * header.dtype.itemsize != info.file_size - file.tell():
        raise EvenhandError(f"{what} is damaged: its length does not match its shape {header.shape}.")
    return header


def _image_shape(what: str, file: IO[bytes], info: zipfile.ZipInfo) -> tuple[int, ...]:
    """Return the shape of an array of images, (N, H, W, C)."""
    header = _header(what, file, info)
    if header.dtype != np.uint8:
        raise EvenhandError(f"{what} must be uint8, 0 to 255, got {header.dtype}.")
    shape = (*header.shape, 1) if len(header.shape) == 3 else header.shape
    if len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape:
        raise EvenhandError(f"{what} must be (N, H, W) or (N, H, W, C) with 1 or 3 channels, got {header.shape}.")
    return shape


def _fill(images: NDArray[np.uint8], file: IO[bytes], info: zipfile.ZipInfo, path: Path) -> None:
    header = _header(str(path), file, info)
    if header.fortran_order:
        images[...] = (
            np.frombuffer(file.read(info.file_size), np.uint8).reshape(header.shape, order="F").reshape(images.shape)
        )
        return
    flat, start = images.reshape(-1), 0
    # Reading to the end makes zipfile check the checksum.
    while content := file.read(_CHUNK):
        flat[start : start + len(content)] = np.frombuffer(content, np.uint8)
        start += len(content)


def _labels(
    path: Path, split: Split, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]
) -> NDArray[np.int64]:
    labels = _small_array(path, f"{split}_labels", archive, members)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise EvenhandError(
            f"{split}_labels of {path} must be integers, (N,) or (N, 1), got {labels.dtype} {labels.shape}."
        )
    wrong = np.flatnonzero((labels < 0) | (labels > np.iinfo(np.int32).max))
    if len(wrong):
        raise EvenhandError(
            f"{split}_labels of {path} must run from 0 to the number of classes - 1, got {labels[wrong[0]]}."
        )
    return labels.astype(np.int64)


def _class_names(
    path: Path, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]
) -> tuple[str, ...] | None:
    if "class_names" not in members:
        return None
    names = _small_array(path, "class_names", archive, members)
    if names.ndim != 1 or names.dtype.kind != "U":
        raise EvenhandError(f"class_names of {path} must be an array of text, got {names.dtype} {names.shape}.")
    if len(set(names.tolist())) < len(names):
        raise EvenhandError(f"class_names of {path} must differ from each other, got {some(names.tolist())}.")
    return tuple(names.tolist())


def _small_array(
    path: Path, key: str, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo]
) -> NDArray[Any]:
    with archive.open(members[key]) as file:
        header = _header(f"{key} of {path}", file, members[key])
        content = (
            np.frombuffer(file.read(members[key].file_size), header.dtype)
            if prod(header.shape)
            else np.empty(0, header.dtype)
        )
    return content.reshape(header.shape, order="F" if header.fortran_order else "C")
