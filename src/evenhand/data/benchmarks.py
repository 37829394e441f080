"""Data sets that are loaded by name, and where their files are searched for.

Each loader searches the data root, in this order, for the files in their official layout, for `NAME.npz`, and for an
archive or a system package; then it downloads. It writes into the root only to download or unpack.
"""

import gzip
import hashlib
import math
import pickle
import struct
import tarfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular, refuse_special
from evenhand.data._arrays import Arrays, reading
from evenhand.data._tiny_imagenet import load_tiny_imagenet
from evenhand.data.download import Remote, fetch
from evenhand.data.road_marking import load_road_marking
from evenhand.data.standard import CIFAR10, CIFAR100, FASHION_MNIST, SVHN, Standard, from_npz, standard_table
from evenhand.data.table import ArrayPixels, DatasetInfo, SampleTable, Split

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
_LARGEST_PICKLE = 1 << 28  # CIFAR-100's training images are 155 MB; a larger file is not one of CIFAR's


@dataclass(frozen=True)
class Benchmark:
    """A data set that is loaded by name."""

    load: Callable[..., SampleTable]
    """Takes the data root, `download` and the options, which are text."""
    options: tuple[str, ...] = ()


def load_digits(root: Path, *, download: bool = True) -> SampleTable:
    """Return scikit-learn's 1,797 digits, 8x8 and grey, which need no file.

    Example:
        >>> from pathlib import Path
        >>> from evenhand.data.benchmarks import load_digits
        >>> load_digits(Path("anywhere")).pixels.images.shape
        (1797, 8, 8, 1)
    """
    del root, download
    from sklearn.datasets import load_digits as embedded

    data = embedded()
    return SampleTable(
        name="digits",
        class_names=tuple("0123456789"),
        labels=data.target.astype(np.int64),
        ids=np.array([f"{place:05d}" for place in range(len(data.target))]),
        pixels=ArrayPixels(np.rint(data.images * (255 / 16)).astype(np.uint8)[..., None]),
        info=DatasetInfo(flip=False),
    )


def load_fashion_mnist(root: Path, *, download: bool = True) -> SampleTable:
    """Read Fashion-MNIST from `<root>/FashionMNIST/raw`, `<root>/fashion-mnist.npz` or Debian's package.

    The files may be compressed or not. Their content is checked, not the .gz file: Debian compresses them again.
    """
    raw = root / "FashionMNIST" / "raw"
    if table := _fashion_mnist_in(raw) or from_npz(FASHION_MNIST, root) or _fashion_mnist_in(DEBIAN_FASHION_MNIST):
        return table
    from torchvision.datasets import FashionMNIST

    remotes = [Remote(FashionMNIST.mirrors[0] + name, f"md5:{md5}") for name, md5 in FashionMNIST.resources]
    fetch(FASHION_MNIST.name, remotes, raw, download=download)
    table = _fashion_mnist_in(raw)
    assert table is not None
    return table


def load_cifar10(root: Path, *, download: bool = True) -> SampleTable:
    """Read CIFAR-10 from `<root>/cifar-10-batches-py`, `cifar10.npz` or `cifar-10-python.tar.gz`."""
    return _load_cifar(CIFAR10, root / "cifar-10-batches-py", download)


def load_cifar100(root: Path, *, download: bool = True) -> SampleTable:
    """Read CIFAR-100, fine labels, from `<root>/cifar-100-python`, `cifar100.npz` or `cifar-100-python.tar.gz`."""
    return _load_cifar(CIFAR100, root / "cifar-100-python", download)


def load_svhn(root: Path, *, download: bool = True) -> SampleTable:
    """Read SVHN's cropped digits from `train_32x32.mat` and `test_32x32.mat` in `<root>/svhn` or the root.

    A subset of it is accepted, with a note.
    """
    for folder in (root / "svhn", root):
        files = [folder / f"{split}_32x32.mat" for split in ("train", "test")]
        if all(file.is_file() for file in files):
            return standard_table(SVHN, _read_mat(files), folder, whole=False)
    if table := from_npz(SVHN, root):
        return table
    from torchvision.datasets import SVHN as MATLAB

    remotes = [Remote(url, f"md5:{md5}") for url, _, md5 in (MATLAB.split_list[split] for split in ("train", "test"))]
    fetch(SVHN.name, remotes, root / "svhn", download=download)
    return standard_table(SVHN, _read_mat([root / "svhn" / remote.file for remote in remotes]), root, whole=True)


BENCHMARKS: dict[str, Benchmark] = {
    "digits": Benchmark(load_digits),
    "fashion-mnist": Benchmark(load_fashion_mnist),
    "cifar10": Benchmark(load_cifar10),
    "cifar100": Benchmark(load_cifar100),
    "svhn": Benchmark(load_svhn),
    "tiny-imagenet": Benchmark(load_tiny_imagenet),
    "road-marking": Benchmark(load_road_marking, ("classes", "split")),
}


def _fashion_mnist_in(folder: Path) -> SampleTable | None:
    """Return Fashion-MNIST from its four files, or None if not all of them are there."""

    def found(name: str) -> Path | None:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)

    images = [found(f"{part}-images-idx3-ubyte") for part in ("train", "t10k")]
    labels = [found(f"{part}-labels-idx1-ubyte") for part in ("train", "t10k")]
    if None in images or None in labels:
        return None
    height, width, _ = FASHION_MNIST.shape
    most = FASHION_MNIST.sizes["train"]
    pixels = _read_idx([path for path in images if path], (height, width), most)
    classes = _read_idx([path for path in labels if path], (), most)
    sizes: dict[Split, int] = {"train": len(classes[0]), "test": len(classes[1])}
    if [len(part) for part in pixels] != list(sizes.values()):
        raise EvenhandError(f"{folder} has different numbers of labels and images; download Fashion-MNIST again.")
    arrays = Arrays(np.concatenate(pixels)[..., None], np.concatenate(classes).astype(np.int64), sizes)
    return standard_table(FASHION_MNIST, arrays, folder, whole=False)


def _read_idx(paths: Sequence[Path], shape: tuple[int, ...], most: int) -> list[NDArray[np.uint8]]:
    """Read files in the idx format of MNIST, (N, *shape) of uint8 each, with N at most `most`."""
    parts = []
    for path in paths:
        with reading(path), open_regular(path) as raw, gzip.open(raw) if path.suffix == ".gz" else raw as file:
            magic, count, *rest = struct.unpack(f">{2 + len(shape)}I", file.read(8 + 4 * len(shape)))
            if magic != 0x801 + len(shape) or tuple(rest) != shape or count > most:
                raise EvenhandError(f"{path} is not of Fashion-MNIST: its header is {magic}, {count}, {rest}.")
            content = file.read(count * math.prod(shape) + 1)
            if len(content) != count * math.prod(shape):
                raise EvenhandError(f"{path} is damaged: it is not as long as its header says.")
            parts.append(np.frombuffer(content, np.uint8).reshape(count, *shape))
    return parts


_MOST_SVHN = 2**28
"""The 73,257 training images have 2.3e8 values."""


def _read_mat(paths: Sequence[Path]) -> Arrays:
    """Read SVHN's files: X is (32, 32, 3, N), and y has 10 for the digit 0."""
    from scipy.io import loadmat, whosmat

    images, labels = [], []
    for path in paths:
        with reading(path):
            refuse_special(path.stat().st_mode, path)
            for name, shape, _ in whosmat(path):  # before it is decompressed
                if math.prod(shape) > _MOST_SVHN + path.stat().st_size:
                    raise EvenhandError(f"{path} is not of SVHN: its {name} has {math.prod(shape):,} values.")
            content = loadmat(path, variable_names=["X", "y"])
            pixels, digits = content["X"], content["y"].reshape(-1)
            if pixels.dtype != np.uint8 or pixels.shape != (*SVHN.shape, len(digits)):
                raise EvenhandError(f"{path} is not of SVHN: X is {pixels.dtype} {pixels.shape}, y {digits.shape}.")
            if len(digits) == 0 or digits.min() < 1 or digits.max() > 10:
                raise EvenhandError(f"{path} is not of SVHN: its labels are not 1 to 10.")
        images.append(pixels.transpose(3, 0, 1, 2))
        labels.append(digits.astype(np.int64) % 10)
    return Arrays(np.concatenate(images), np.concatenate(labels), {"train": len(labels[0]), "test": len(labels[1])})


def _load_cifar(standard: Standard, folder: Path, download: bool) -> SampleTable:
    """Read one of the CIFAR sets; file names and checksums are those of torchvision."""
    place = folder
    if not folder.is_dir() and (table := from_npz(standard, folder.parent)):
        return table
    from torchvision import datasets

    pickled = getattr(datasets, standard.name.upper())
    if not folder.is_dir():
        fetch(standard.name, [Remote(pickled.url, f"md5:{pickled.tgz_md5}")], folder.parent, download=download)
        place = folder.parent / pickled.filename
    files = dict(_contents(place, folder.name, {name for name, _ in pickled.train_list + pickled.test_list}))
    images, labels = [], []
    sizes: list[int] = []
    for listed in (pickled.train_list, pickled.test_list):
        for name, md5 in listed:
            batch = _unpickled(standard, place, name, files.pop(name, b""), md5)
            images.append(batch["data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            labels.append(np.array(batch.get("labels") or batch["fine_labels"], np.int64))
        sizes.append(sum(map(len, labels)) - sum(sizes))
    arrays = Arrays(np.concatenate(images), np.concatenate(labels), {"train": sizes[0], "test": sizes[1]})
    return standard_table(standard, arrays, place, whole=True)


def _contents(place: Path, base_folder: str, names: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the named files of a folder, or of an archive in its order."""
    with reading(place):
        if place.is_dir():
            for name in sorted(names):
                if (place / name).is_file():
                    with open_regular(place / name) as listed:
                        yield name, listed.read()
            return
        with open_regular(place) as opened, tarfile.open(fileobj=opened) as archive:
            for member in archive:
                name = member.name.removeprefix(f"{base_folder}/")
                if name in names and member.size < _LARGEST_PICKLE and (file := archive.extractfile(member)):
                    yield name, file.read()


def _unpickled(standard: Standard, place: Path, name: str, content: bytes, md5: str) -> dict[str, Any]:
    """Unpickle an official file, and no other: the checksum is checked first."""
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        state = "damaged or not the known file" if content else "missing"
        raise EvenhandError(f"{name} of {standard.name} in {place} is {state}; remove {place} to download it again.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy 2.4 warns about how these were written in 2009
        batch: dict[str, Any] = pickle.loads(content, encoding="latin1")
    return batch
