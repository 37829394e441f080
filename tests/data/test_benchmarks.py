"""Named sets: golden counts on real files, each layout, and files that are not what their name says."""

import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import shutil
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from PIL import Image
from scipy.io import savemat

from evenhand.core.errors import EvenhandError
from evenhand.data import _tiny_imagenet as tiny_imagenet
from evenhand.data import benchmarks
from evenhand.data.benchmarks import (
    BENCHMARKS,
    load_cifar10,
    load_cifar100,
    load_digits,
    load_fashion_mnist,
    load_svhn,
    load_tiny_imagenet,
)
from evenhand.data.download import Remote
from evenhand.data.standard import CIFAR10, CIFAR100, FASHION_MNIST, SVHN, TINY_IMAGENET
from evenhand.data.table import SampleTable
from tests.real_data import DATA, needs, needs_cifar10


def assert_sound(table: SampleTable) -> None:
    assert len(table.labels) == len(table.ids) == len(table.pixels) == len(set(table.ids.tolist()))
    assert table.labels.dtype == np.int64
    assert table.labels.min() >= 0
    assert table.labels.max() < table.num_classes == len(set(table.class_names))


@pytest.fixture(autouse=True)
def without_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "DEBIAN_FASHION_MNIST", Path("/nowhere"))


def test_digits() -> None:
    table = load_digits(Path("/nowhere"))
    data = sklearn.datasets.load_digits()
    assert_sound(table)
    assert table.counts().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (table.splits, table.info.flip, table.name) == (None, False, "digits")
    images = table.pixels.images
    assert (images.dtype, images.min(), images.max()) == (np.uint8, 0, 255)
    np.testing.assert_allclose(images[..., 0] * (16 / 255), data.images, atol=0.04)
    assert table.class_names[int(table.labels[7])] == str(data.target[7])


def test_what_the_whole_sets_look_like() -> None:
    """The counts of NOTES, and the info that change how a set is fed to a network."""
    sizes = {each.name: tuple(each.sizes.values()) for each in (FASHION_MNIST, CIFAR10, CIFAR100, SVHN, TINY_IMAGENET)}
    assert sizes == {
        "fashion-mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "cifar100": (50_000, 10_000),
        "svhn": (73_257, 26_032),
        "tiny-imagenet": (100_000, 10_000),
    }
    flips = [each.info.flip for each in (FASHION_MNIST, CIFAR10, CIFAR100, SVHN, TINY_IMAGENET)]
    assert flips == [True, True, True, False, True]
    assert SVHN.info.scaling == "symmetric"
    assert (TINY_IMAGENET.info.image_size, TINY_IMAGENET.info.crop_size) == (64, 56)
    assert (len(set(CIFAR100.class_names)), sorted(CIFAR100.class_names)) == (100, list(CIFAR100.class_names))


# --- Fashion-MNIST


@needs("FashionMNIST")
def test_fashion_mnist() -> None:
    table = load_fashion_mnist(DATA, download=False)
    assert_sound(table)
    assert table.counts(table.rows("train")).tolist() == [6000] * 10
    assert table.counts(table.rows("test")).tolist() == [1000] * 10
    assert table.pixels.images.shape == (70_000, 28, 28, 1)
    # Known since the set was published: the mean and deviation of its training images, and its first labels.
    train = table.pixels.images[:60_000]
    assert train.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert train.std() / 255 == pytest.approx(0.3530, abs=1e-4)
    assert table.labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert table.labels[60_000:60_005].tolist() == [9, 2, 1, 1, 6]
    assert table.notes == ()


def idx(*, images: np.ndarray | None = None, labels: np.ndarray | None = None) -> bytes:
    if images is not None:
        return struct.pack(">IIII", 0x803, *images.shape) + images.tobytes()
    assert labels is not None
    return struct.pack(">II", 0x801, len(labels)) + labels.tobytes()


def small_fashion(folder: Path, *, packed: bool) -> np.ndarray:
    """Write 40 + 20 images of noise in the layout of Fashion-MNIST."""
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28), np.uint8)
    labels = (np.arange(60) % 10).astype(np.uint8)
    for part, rows in (("train", slice(0, 40)), ("t10k", slice(40, 60))):
        for name, content in (
            (f"{part}-images-idx3-ubyte", idx(images=images[rows])),
            (f"{part}-labels-idx1-ubyte", idx(labels=labels[rows])),
        ):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)
    return images


@pytest.mark.parametrize("packed", [True, False])
def test_a_part_of_fashion_mnist(tmp_path: Path, packed: bool) -> None:
    images = small_fashion(tmp_path / "FashionMNIST" / "raw", packed=packed)
    table = load_fashion_mnist(tmp_path, download=False)
    np.testing.assert_array_equal(table.pixels.images[..., 0], images)
    note = "This is a subset of Fashion-MNIST: 40 of 60,000 training images and 20 of 10,000 test images."
    assert table.notes == (note,)


def test_debians_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = small_fashion(tmp_path / "debian", packed=True)
    monkeypatch.setattr(benchmarks, "DEBIAN_FASHION_MNIST", tmp_path / "debian")
    table = load_fashion_mnist(tmp_path / "root", download=False)
    np.testing.assert_array_equal(table.pixels.images[..., 0], images)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"", "train-images"),
        ("train-images-idx3-ubyte.gz", b"text", "train-images"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(images=np.zeros((40, 28, 28), np.uint8)))[:60], "Cannot read"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(images=np.zeros((40, 28, 28), np.uint8))[:-1]), "not as long"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(images=np.zeros((40, 32, 32), np.uint8))), "its header is"),
        ("train-images-idx3-ubyte.gz", gzip.compress(struct.pack(">IIII", 0x803, 2**31, 28, 28)), "its header is"),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(idx(images=np.zeros((39, 28, 28), np.uint8))),
            "different numbers of labels",
        ),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(idx(labels=np.full(20, 10, np.uint8))), "is not fashion-mnist"),
    ],
    ids=["empty", "text", "cut off", "short", "larger images", "bomb", "one label more", "label 10"],
)
def test_damaged_fashion_mnist(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    small_fashion(raw, packed=True)
    (raw / name).write_bytes(content)
    with pytest.raises(EvenhandError, match=message) as caught:
        load_fashion_mnist(tmp_path, download=False)
    assert "\n" not in str(caught.value)


# --- NAME.npz


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make CIFAR-10 a set of 20 + 10 images, so that whole sets fit into a test."""
    monkeypatch.setattr(benchmarks, "CIFAR10", dataclasses.replace(CIFAR10, train_counts=(2,) * 10, test=10))


def cifar_arrays() -> dict[str, np.ndarray]:
    images = np.random.default_rng(1).integers(0, 256, (30, 32, 32, 3), np.uint8)
    labels = np.arange(30) % 10
    return {
        "train_images": images[:20],
        "train_labels": labels[:20],
        "test_images": images[20:],
        "test_labels": labels[20:],
    }


@pytest.mark.usefixtures("small")
def test_an_npz_serves_a_named_set(tmp_path: Path) -> None:
    arrays = cifar_arrays()
    np.savez(tmp_path / "cifar10.npz", **arrays)
    table = load_cifar10(tmp_path, download=False)
    assert_sound(table)
    assert table.class_names[3] == "cat"
    assert table.info == CIFAR10.info
    np.testing.assert_array_equal(table.pixels.images[20:], arrays["test_images"])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "change",
    [
        {"train_images": cifar_arrays()["train_images"][:19], "train_labels": np.arange(19) % 10},
        {"train_labels": np.arange(20) // 3},
        {"test_labels": np.full(10, 10)},
        {"train_images": np.zeros((20, 28, 28), np.uint8), "test_images": np.zeros((10, 28, 28), np.uint8)},
        {"val_images": cifar_arrays()["test_images"], "val_labels": np.arange(10)},
    ],
)
def test_an_npz_with_other_counts_is_refused(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "cifar10.npz", **{**cifar_arrays(), **change})
    with pytest.raises(EvenhandError, match=r"cifar10\.npz is not cifar10: it has .*, not 20 train and 10 test"):
        load_cifar10(tmp_path, download=False)


@needs_cifar10
def test_cifar10() -> None:
    table = load_cifar10(DATA, download=False)
    assert table.counts(table.rows("train")).tolist() == [5000] * 10
    mean = table.pixels.images[:50_000].mean((0, 1, 2)) / 255
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=1e-4)


# --- CIFAR as it is published


def cifar_files(arrays: dict[str, np.ndarray], key: str) -> dict[str, bytes]:
    """Pickle 20 images as two batches and 10 as another, in the form of the CIFAR sets."""

    def batch(images: np.ndarray, labels: np.ndarray) -> bytes:
        data = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        return pickle.dumps({"data": data, key: labels.tolist()}, protocol=2)

    return {
        "b_first": batch(arrays["train_images"][:10], arrays["train_labels"][:10]),
        "a_second": batch(arrays["train_images"][10:], arrays["train_labels"][10:]),
        "last": batch(arrays["test_images"], arrays["test_labels"]),
    }


@pytest.fixture
def published(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:  # noqa: ARG001
    from torchvision import datasets

    files = cifar_files(cifar_arrays(), "labels")
    listed = [[name, hashlib.md5(content).hexdigest()] for name, content in files.items()]
    monkeypatch.setattr(datasets.CIFAR10, "train_list", listed[:2])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", listed[2:])
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name, content in files.items():
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(content)
    return files


def test_cifar_folder_and_archive(tmp_path: Path, published: dict[str, bytes]) -> None:
    del published
    arrays = cifar_arrays()
    folder = tmp_path / "cifar-10-batches-py"
    tables = [load_cifar10(tmp_path, download=False)]
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(folder, folder.name)
    shutil.rmtree(folder)
    before = sorted(tmp_path.rglob("*"))
    tables.append(load_cifar10(tmp_path, download=False))
    assert sorted(tmp_path.rglob("*")) == before
    for table in tables:
        assert_sound(table)
        np.testing.assert_array_equal(table.pixels.images[:20], arrays["train_images"])
        np.testing.assert_array_equal(table.labels[20:], arrays["test_labels"])
        assert table.splits.tolist() == ["train"] * 20 + ["test"] * 10


def test_only_what_the_makers_pickled_is_unpickled(tmp_path: Path, published: dict[str, bytes]) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str, str]]:
            return open, (str(tmp_path / "pickle-was-run"), "w")

    folder = tmp_path / "cifar-10-batches-py"
    (folder / "last").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(EvenhandError, match=r"last of cifar10 in .* is damaged or not the known file; remove"):
        load_cifar10(tmp_path, download=False)
    assert not (tmp_path / "pickle-was-run").exists()
    (folder / "last").unlink()
    with pytest.raises(EvenhandError, match=r"last of cifar10 in .* is missing"):
        load_cifar10(tmp_path, download=False)
    shutil.rmtree(folder)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as opened:
        for name, content in published.items():
            member = tarfile.TarInfo(f"../{name}")
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(archive.getvalue())
    with pytest.raises(EvenhandError, match="is missing"):
        load_cifar10(tmp_path, download=False)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(archive.getvalue()[:50])
    with pytest.raises(EvenhandError, match="Cannot read"):
        load_cifar10(tmp_path, download=False)


def test_cifar100_has_fine_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import datasets

    arrays = cifar_arrays()
    files = cifar_files(arrays, "fine_labels")
    listed = [[name, hashlib.md5(content).hexdigest()] for name, content in files.items()]
    monkeypatch.setattr(datasets.CIFAR100, "train_list", listed[:2])
    monkeypatch.setattr(datasets.CIFAR100, "test_list", listed[2:])
    monkeypatch.setattr(
        benchmarks, "CIFAR100", dataclasses.replace(CIFAR100, train_counts=(2,) * 10 + (0,) * 90, test=10)
    )
    (tmp_path / "cifar-100-python").mkdir()
    for name, content in files.items():
        (tmp_path / "cifar-100-python" / name).write_bytes(content)
    assert load_cifar100(tmp_path, download=False).labels.tolist() == [*arrays["train_labels"], *arrays["test_labels"]]


# --- SVHN


@needs("samples/svhn")
def test_svhn_sample() -> None:
    table = load_svhn(DATA / "samples", download=False)
    assert_sound(table)
    assert (len(table.rows("train")), len(table.rows("test"))) == (600, 200)
    assert table.pixels.images.shape == (800, 32, 32, 3)
    assert table.notes == ("This is a subset of SVHN: 600 of 73,257 training images and 200 of 26,032 test images.",)
    assert table.counts().argmax() == 1  # house numbers start with 1 more often than with any other digit
    assert load_svhn(DATA / "samples" / "svhn", download=False).ids.tolist() == table.ids.tolist()


def test_svhn_axes_and_zero(tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (20, 32, 32, 3), np.uint8)
    labels = np.array([10, *range(1, 10)] * 2, np.uint8)[:, None]
    for split, rows in (("train", slice(0, 10)), ("test", slice(10, 20))):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": images[rows].transpose(1, 2, 3, 0), "y": labels[rows]})
    table = load_svhn(tmp_path, download=False)
    np.testing.assert_array_equal(table.pixels.images, images)
    assert table.labels.tolist() == [*range(10)] * 2
    assert table.class_names[0] == "0"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Cannot read"),
        (b"no matlab file" * 50, "Cannot read"),
        ({"y": np.ones((4, 1), np.uint8)}, "Cannot read"),
        ({"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.zeros((4, 1), np.uint8)}, "not 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.full((4, 1), 11, np.uint8)}, "not 1 to 10"),
        ({"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.ones((5, 1), np.uint8)}, "is not of SVHN"),
        ({"X": np.zeros((32, 32, 3, 4)), "y": np.ones((4, 1), np.uint8)}, "X is float64"),
    ],
)
def test_damaged_svhn(tmp_path: Path, content: bytes | dict[str, np.ndarray], message: str) -> None:
    for split in ("train", "test"):
        path = tmp_path / f"{split}_32x32.mat"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            savemat(path, content)
    with pytest.raises(EvenhandError, match=message) as caught:
        load_svhn(tmp_path, download=False)
    assert "\n" not in str(caught.value)


# --- Tiny ImageNet


@needs("samples/tiny-imagenet-200")
def test_tiny_imagenet_sample() -> None:
    table = load_tiny_imagenet(DATA / "samples", download=False)
    assert_sound(table)
    assert table.counts(table.rows("train")).tolist() == [20] * 10
    assert table.counts(table.rows("test")).tolist() == [5] * 10
    assert table.class_names[:3] == ("goldfish", "black stork", "walking stick")
    assert table.ids[0] == "train/n01443537/images/n01443537_0.JPEG"
    assert "200 of 100,000 training images and 50 of 10,000 test images" in table.notes[0]
    for row in (0, -1):
        with Image.open(table.pixels.root / table.pixels.paths[row]) as image:
            assert image.size == (64, 64)


def tiny(folder: Path) -> Path:
    for wnid in ("n02", "n01", "n03"):
        (folder / "train" / wnid / "images").mkdir(parents=True)
        for number in range(2):
            (folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG").touch()
    (folder / "val" / "images").mkdir(parents=True)
    for number in range(3):
        (folder / "val" / "images" / f"val_{number}.JPEG").touch()
    (folder / "val" / "val_annotations.txt").write_text(
        "".join(f"val_{k}.JPEG\tn0{k + 1}\t0\t0\t9\t9\n" for k in range(3))
    )
    (folder / "words.txt").write_text("n01\tcrane, bird\nn02\tcrane\nn99\tnothing\n")
    return folder


def test_tiny_imagenet_names_and_order(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "tiny-imagenet-200")
    table = load_tiny_imagenet(tmp_path, download=False)
    assert table.class_names == ("crane (n01)", "crane (n02)", "n03")
    assert table.labels.tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]
    (folder / "words.txt").unlink()
    assert load_tiny_imagenet(tmp_path, download=False).class_names == ("n01", "n02", "n03")


def test_damaged_tiny_imagenet(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "tiny-imagenet-200")
    annotations = folder / "val" / "val_annotations.txt"
    text = annotations.read_text()
    annotations.write_text(text.replace("n02", "n77"))
    with pytest.raises(EvenhandError, match=r"val_1\.JPEG has the class 'n77'"):
        load_tiny_imagenet(tmp_path, download=False)
    annotations.write_text(text.replace("val_2", "val_9"))
    with pytest.raises(EvenhandError, match=r"val_2\.JPEG has the class None"):
        load_tiny_imagenet(tmp_path, download=False)
    annotations.unlink()
    with pytest.raises(EvenhandError, match=r"Cannot read .*val_annotations\.txt"):
        load_tiny_imagenet(tmp_path, download=False)
    annotations.write_text(text)
    shutil.rmtree(folder / "train" / "n03" / "images")
    with pytest.raises(EvenhandError, match=r"Cannot read .*n03"):
        load_tiny_imagenet(tmp_path, download=False)
    (folder / "train" / "n03" / "images").mkdir()
    with pytest.raises(EvenhandError, match="no training images of 'n03'"):
        load_tiny_imagenet(tmp_path, download=False)


def test_tiny_imagenets_zip_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny(tmp_path / "made" / "tiny-imagenet-200")
    (tmp_path / "root").mkdir()
    path = tmp_path / "root" / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(folder.parent))
    with pytest.raises(EvenhandError, match="its sha256 differs"):
        load_tiny_imagenet(tmp_path / "root", download=False)
    checksum = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(tiny_imagenet, "ARCHIVE", Remote(tiny_imagenet.ARCHIVE.url, checksum))
    table = load_tiny_imagenet(tmp_path / "root", download=False)
    assert len(table) == 9
    assert sorted(os.listdir(tmp_path / "root")) == ["tiny-imagenet-200", "tiny-imagenet-200.zip"]


# --- all


@pytest.mark.parametrize(
    ("name", "files", "place"),
    [
        ("fashion-mnist", "train-images-idx3-ubyte.gz, .* and t10k-labels-idx1-ubyte.gz", "/FashionMNIST/raw"),
        ("cifar10", "cifar-10-python.tar.gz", ""),
        ("cifar100", "cifar-100-python.tar.gz", ""),
        ("svhn", "train_32x32.mat and test_32x32.mat", "/svhn"),
        ("tiny-imagenet", "tiny-imagenet-200.zip", ""),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, name: str, files: str, place: str) -> None:
    message = rf"Cannot find {name}, and it is not downloaded here; put {files} into {tmp_path}{place}\.$"
    with pytest.raises(EvenhandError, match=message):
        BENCHMARKS[name].load(tmp_path, download=False)
    assert os.listdir(tmp_path) == []
