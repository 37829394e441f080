"""`.npz` sources: what is accepted, what is refused and how, and that nothing in them is ever run."""

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.data._arrays import load_npz

rng = np.random.default_rng(0)
TRAIN = rng.integers(0, 256, (6, 5, 4, 3), np.uint8)
TEST = rng.integers(0, 256, (3, 5, 4, 3), np.uint8)
TRAIN_LABELS, TEST_LABELS = np.array([0, 1, 2, 2, 1, 0]), np.array([2, 0, 1])
WHOLE: dict[str, Any] = {
    "train_images": TRAIN,
    "train_labels": TRAIN_LABELS,
    "test_images": TEST,
    "test_labels": TEST_LABELS,
}


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "set.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_splits_come_back_in_order(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "set.npz", **WHOLE)
    table = load_npz(tmp_path / "set.npz")
    assert table.name == "set"
    assert table.class_names == ("0", "1", "2")
    np.testing.assert_array_equal(table.pixels.images, np.concatenate([TRAIN, TEST]))
    assert table.labels.tolist() == [0, 1, 2, 2, 1, 0, 2, 0, 1]
    assert table.ids[[0, 5, 6]].tolist() == ["train/00000", "train/00005", "test/00000"]
    assert table.splits.tolist() == ["train"] * 6 + ["test"] * 3


def test_medmnist_shapes(tmp_path: Path) -> None:
    """MedMNIST: grey images without a channel, labels (N, 1) of uint8, a validation split."""
    grey = TRAIN[..., 0]
    table = load_npz(
        saved(
            tmp_path,
            train_images=grey,
            train_labels=TRAIN_LABELS[:, None].astype(np.uint8),
            val_images=grey[:2],
            val_labels=np.array([[0], [1]], np.uint8),
            test_images=grey[:3, ..., None],
            test_labels=TEST_LABELS[:, None].astype(np.uint8),
        )
    )
    assert table.pixels.images.shape == (11, 5, 4, 1)
    assert table.splits.tolist() == ["train"] * 6 + ["val"] * 2 + ["test"] * 3
    assert table.labels.dtype == np.int64


def test_without_a_test_split_nothing_is_fixed(tmp_path: Path) -> None:
    table = load_npz(saved(tmp_path, train_images=TRAIN, train_labels=TRAIN_LABELS))
    assert table.splits is None
    assert table.ids[0] == "train/00000"


def test_class_names_and_unknown_keys(tmp_path: Path) -> None:
    table = load_npz(saved(tmp_path, **WHOLE, class_names=np.array(["a", "b", "ü"]), author=np.array("me")))
    assert table.class_names == ("a", "b", "ü")
    assert table.notes == ("Ignored in set.npz: 'author'.",)


def test_fortran_order(tmp_path: Path) -> None:
    table = load_npz(saved(tmp_path, train_images=np.asfortranarray(TRAIN), train_labels=TRAIN_LABELS))
    np.testing.assert_array_equal(table.pixels.images, TRAIN)


def test_memory_holds_the_images_once(tmp_path: Path) -> None:
    images = np.zeros((300, 256, 256, 3), np.uint8)
    path = saved(tmp_path, train_images=images, train_labels=np.arange(300) % 2)
    tracemalloc.start()
    load_npz(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.7 * images.nbytes


class _Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return open, ("pickle-was-run", "w")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": None}, "lacks 'train_images'; it has 'test_images', 'test_labels', 'train_labels'"),
        ({"test_labels": None}, "lacks 'test_labels'"),
        ({"train_images": TRAIN.astype(np.float32)}, "must be uint8, 0 to 255, got float32"),
        ({"train_images": TRAIN.astype(np.uint16)}, "got uint16"),
        ({"train_images": TRAIN[0]}, r"train_images of .* must be .*, got \(5, 4, 3\)|images, but"),
        ({"train_images": np.zeros((6, 5, 4, 4), np.uint8)}, r"1 or 3 channels, got \(6, 5, 4, 4\)"),
        ({"train_images": np.zeros((0, 5, 4, 3), np.uint8), "train_labels": np.zeros(0, int)}, r"got \(0, 5, 4, 3\)"),
        ({"train_images": np.array([_Bomb()] * 6)}, "has pickled objects"),
        ({"train_labels": np.array([_Bomb()] * 6)}, "has pickled objects"),
        ({"class_names": np.array([_Bomb()] * 3)}, "has pickled objects"),
        ({"test_images": TEST[:, :4]}, r"different shapes: \(5, 4, 3\) in train, \(4, 4, 3\) in test"),
        ({"train_labels": TRAIN_LABELS[:4]}, "has 6 train images, but 4 train labels"),
        ({"train_labels": TRAIN_LABELS - 1}, "must run from 0 to the number of classes - 1, got -1"),
        ({"train_labels": TRAIN_LABELS.astype(float)}, "must be integers"),
        ({"train_labels": np.zeros((6, 2), int)}, "must be integers"),
        ({"train_labels": np.array([0, 1, 3, 3, 1, 0])}, "no training image of class '2'"),
        ({"test_labels": np.array([0, 1, 3])}, "no training image of class '3'"),
        ({"test_labels": np.array([0, 1, 2**31 - 1])}, "has the label 2147483647 with only 6 training images"),
        ({"test_labels": np.array([0, 1, 2**60])}, "got 1152921504606846976"),
        ({"class_names": np.array(["a", "b"])}, "has the label 2, but names only 2 classes"),
        ({"class_names": np.array(["a", "b", "a"])}, "must differ"),
        ({"class_names": np.array([1, 2, 3])}, "must be an array of text"),
        ({"train_labels": np.zeros(6, int), "test_labels": np.zeros(3, int)}, "only one class"),
        ({"val_images": TEST, "val_labels": TEST_LABELS, "test_images": None, "test_labels": None}, "no test_images"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, **{key: value for key, value in {**WHOLE, **change}.items() if value is not None})
    with pytest.raises(EvenhandError, match=message) as caught:
        load_npz(path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pickle-was-run").exists()


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    path = saved(tmp_path, **WHOLE)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    header = members["train_images.npy"]
    members["train_images.npy"] = header.replace(b"(6, 5, 4, 3), }       ", b"(6000000, 5, 4, 3), } ")
    assert members["train_images.npy"] != header
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(EvenhandError, match="its length does not match its shape"):
        load_npz(path)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00v\x00", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_npz(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(EvenhandError, match=r"set\.npz"):
        load_npz(tmp_path / "set.npz")


@given(
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
    length=st.floats(0.1, 1),
)
@settings(deadline=None, derandomize=True, max_examples=150)
def test_damaged_files_give_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int]], length: float
) -> None:
    path = saved(tmp_path_factory.getbasetemp(), **WHOLE)
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[int(place * len(content))] = value
    path.write_bytes(content[: int(length * len(content))])
    try:
        table = load_npz(path)
    except EvenhandError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert len(table) == len(table.pixels)


def test_pictures_that_would_unpack_to_far_more_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tracemalloc

    from evenhand.core import arrays as core

    monkeypatch.setattr(core, "MOST_UNPACKED", 2**20)
    path = tmp_path / "bomb.npz"
    labels = np.arange(2)
    np.savez_compressed(path, train_images=np.zeros((2, 4096, 4096), np.uint8), train_labels=labels)
    tracemalloc.start()
    try:
        with pytest.raises(EvenhandError, match=r"would unpack to .*, more than is allowed"):
            load_npz(path)
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def _head(descr: str, shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


LIES: dict[str, dict[str, bytes]] = {
    "bomb": {"train_images": _head("|u1", (2**20, 8, 8)) + bytes(2**26)},
    "bomb of labels": {"train_labels": _head("<i8", (2**23,)) + bytes(2**26)},
    "bomb of names": {"class_names": _head("<U16", (2**20,)) + bytes(2**26)},
    "bomb that is not asked for": {"other": _head("|u1", (2**26,)) + bytes(2**26)},
    "huge shape": {"train_images": _head("|u1", (2**40, 8, 8))},
    "huge labels": {"train_labels": _head("<i8", (2**60,))},
    "negative shape": {"train_images": _head("|u1", (-4, 8, 8)) + bytes(256)},
    "huge names": {"class_names": _head("<U100000000", (2**30,))},
    "an archive in it": {"train_images": b"PK\x05\x06" + bytes(18)},
}


@pytest.mark.parametrize("kind", LIES)
def test_archives_that_lie_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr("evenhand.core.arrays.MOST_UNPACKED", 2**18)
    honest = {"train_images": _head("|u1", (4, 8, 8)) + bytes(256), "train_labels": _head("<i8", (4,)) + bytes(32)}
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**honest, **LIES[kind]}.items():
            archive.writestr(f"{name}.npy", content)
    tracemalloc.start()
    try:
        with pytest.raises(EvenhandError) as caught:
            load_npz(tmp_path / "x.npz")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert "x.npz" in str(caught.value)
