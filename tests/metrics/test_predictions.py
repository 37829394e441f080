"""Predictions: what is refused, and that a file holds what was saved or says what is wrong with it."""

import gc
import io
import os
import pickle
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import KEYS, Predictions, load_predictions

from .cases import predictions_of

GOOD = predictions_of([[1, 2, 3], [3, 2, 1]], [2, 1], names=("Löwe", "猫", "a b/c"), counts=[9, 5, 1])
fuzzed = settings(
    deadline=None, derandomize=True, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
texts = st.text(st.characters(exclude_characters="\0"), max_size=12)


def same(one: Predictions, other: Predictions) -> bool:
    return one.class_names == other.class_names and all(
        np.array_equal(getattr(one, key), getattr(other, key), equal_nan=key == "logits")
        and (key == "class_names" or getattr(one, key).dtype == getattr(other, key).dtype)
        for key in KEYS
    )


def saved(predictions: Predictions, folder: Path) -> bytes:
    predictions.save(folder / "saved.npz")
    return (folder / "saved.npz").read_bytes()


def arrays() -> dict[str, Any]:
    return {key: np.array(getattr(GOOD, key)) for key in KEYS}


def refusal(path: Path) -> str:
    with pytest.raises(EvenhandError) as caught:
        load_predictions(path)
    message = str(caught.value)
    assert message.startswith(f"Cannot read {path}: ")
    assert message.endswith(".")
    assert "\n" not in message
    return message.removeprefix(f"Cannot read {path}: ")


# What is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": np.zeros((2, 3))}, "logits must be float32 of shape (N, K), N 1 or more"),
        ({"logits": np.zeros(3, np.float32)}, "got float32 of shape (3,)"),
        ({"logits": np.zeros((2, 1), np.float32)}, "K 2 or more, got float32 of shape (2, 1)"),
        ({"logits": np.zeros((0, 3), np.float32)}, "got float32 of shape (0, 3)"),
        ({"logits": [[1.0, 2.0, 3.0]]}, "got a list"),
        ({"targets": np.array([0, 1, 2])}, "targets must be int64 of shape (2,) as the logits are (2, 3), got int64"),
        ({"targets": np.array([0.0, 1.0])}, "got float64 of shape (2,)"),
        ({"targets": np.array([0, 1], np.int32)}, "got int32"),
        ({"targets": [0, 1]}, "got a list"),
        ({"targets": np.array([0, 3])}, "targets must be 0 to 2, got 3 for 'test/00001'"),
        ({"targets": np.array([-1, 0])}, "targets must be 0 to 2, got -1 for 'test/00000'"),
        ({"ids": np.array(["a"])}, "ids must be text of shape (2,)"),
        ({"ids": np.array([1, 2])}, "ids must be text"),
        ({"ids": np.array(["a", "a"])}, "ids must be unique, but some occur more than once: 'a'"),
        ({"ids": np.array(["a", "b"], object)}, "got object"),
        ({"class_names": ("a", "b")}, "class_names must be 3 strings, one per column of logits, got 'a', 'b'"),
        ({"class_names": ("a", "b", 3)}, "class_names must be 3 strings"),
        ({"class_names": ("a", "b", "a")}, "class_names must differ, but some occur more than once: 'a'"),
        ({"class_names": ("a", "b", "a\0")}, "class_names must not contain NUL characters"),
        ({"train_counts": np.array([1, 2])}, "train_counts must be int64 of shape (3,)"),
        ({"train_counts": np.array([1, 2, -3])}, "train_counts must be 0 or more, got -3"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EvenhandError, match=re.escape(message)):
        replace(GOOD, **change)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_kept_but_not_judged(tmp_path: Path, value: float) -> None:
    logits = GOOD.logits.copy()
    logits[1, 0] = value
    broken = replace(GOOD, logits=logits)
    broken.save(tmp_path / "predictions.npz")
    assert same(load_predictions(tmp_path / "predictions.npz"), broken)
    for judge in (broken.check_finite, broken.predicted, broken.log_probabilities):
        with pytest.raises(
            EvenhandError, match=r"The logits of 1 of 2 images are NaN or infinite \(first 'test/00001'\)"
        ):
            judge()


def test_the_most_likely_class() -> None:
    predictions = predictions_of([[1, 1, 0], [0, 2, 2], [5, 1, 9]], [0, 0, 0])
    assert predictions.predicted().tolist() == [0, 1, 2], "of equals the first"
    assert len(predictions) == 3
    assert predictions.num_classes == 3
    np.testing.assert_allclose(np.exp(predictions.log_probabilities()).sum(axis=1), 1)
    assert predictions.log_probabilities().dtype == np.float64


# Files


@given(data=st.data(), n=st.integers(1, 6), k=st.integers(2, 5))
@fuzzed
def test_a_file_holds_what_was_saved(tmp_path: Path, data: st.DataObject, n: int, k: int) -> None:
    floats = st.floats(width=32)
    predictions = Predictions(
        logits=np.array(
            data.draw(st.lists(st.lists(floats, min_size=k, max_size=k), min_size=n, max_size=n)), np.float32
        ),
        targets=np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))),
        ids=np.array(data.draw(st.lists(texts, min_size=n, max_size=n, unique=True))),
        class_names=tuple(data.draw(st.lists(texts, min_size=k, max_size=k, unique=True))),
        train_counts=np.array(data.draw(st.lists(st.integers(0, 2**40), min_size=k, max_size=k))),
    )
    content = saved(predictions, tmp_path)
    loaded = load_predictions(tmp_path / "saved.npz")
    assert same(loaded, predictions)
    assert saved(loaded, tmp_path) == content, "equal predictions give equal bytes"


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    """Python gives the bytes of such file names as lone surrogates."""
    odd = replace(GOOD, ids=np.array(["caf\udce9.jpg", "b"]), class_names=("\udcff", "b", "c"))
    odd.save(tmp_path / "predictions.npz")
    assert same(load_predictions(tmp_path / "predictions.npz"), odd)


def test_any_name_and_missing_folders(tmp_path: Path) -> None:
    GOOD.save(tmp_path / "new" / "folder" / "no suffix")
    assert same(load_predictions(str(tmp_path / "new" / "folder" / "no suffix")), GOOD)
    assert os.listdir(tmp_path / "new" / "folder") == ["no suffix"]


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved(GOOD, tmp_path)

    def full(path: Path, _: bytes) -> None:
        with path.open("wb") as file:
            file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(EvenhandError, match="No space left"):
        GOOD.save(tmp_path / "saved.npz")
    assert (tmp_path / "saved.npz").read_bytes() == before
    assert os.listdir(tmp_path) == ["saved.npz"]
    gc.collect()  # Python 3.12.1 crashes over an `io.BytesIO().getbuffer()` in a traceback


def test_other_arrays_and_compression_do_no_harm(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "more.npz", **arrays(), notes=np.array(["x"]))
    assert same(load_predictions(tmp_path / "more.npz"), GOOD)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is damaged or not a file of predictions"),
        (b"epoch,loss\n1,2.3\n", "it is damaged or not a file of predictions (File is not a zip file)"),
        (npy(np.zeros(3)), "(File is not a zip file)"),
        (pickle.dumps({"logits": 1}), "(File is not a zip file)"),
        (b"PK\x05\x06" + bytes(18), "it lacks 'logits', 'targets', 'ids', 'class_names', 'train_counts'"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "foreign.npz").write_bytes(content)
    assert reason in refusal(tmp_path / "foreign.npz")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing.npz") == "No such file or directory."
    assert refusal(tmp_path) == "it is a folder."
    assert "File name too long" in refusal(tmp_path / ("x" * 300))
    refusal(tmp_path / "a\0b")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.npz")
        assert refusal(tmp_path / "pipe.npz") == "it is not a regular file.", "reading a pipe would wait for ever"


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_array(tmp_path: Path, key: str) -> None:
    np.savez(tmp_path / "partial.npz", **{name: array for name, array in arrays().items() if name != key})
    assert refusal(tmp_path / "partial.npz") == f"it lacks {key!r}, so it is not a file of predictions."


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"targets": np.array([0, 7])}, "targets must be 0 to 2, got 7 for 'test/00001'."),
        ({"logits": np.zeros((2, 3))}, "logits must be float32"),
        ({"logits": np.zeros((4, 3), np.float32)}, "targets must be int64 of shape (4,)"),
        ({"class_names": np.array("abc")}, "class_names must be 3 strings, one per column of logits, got 'abc'."),
        ({"class_names": np.array([["a", "b", "c"]])}, "class_names must be 3 strings"),
        ({"class_names": np.array([b"a", b"b", b"c"])}, "class_names must be 3 strings"),
        ({"ids": np.array([b"a", b"b"])}, "ids must be text of shape (2,)"),
        ({"ids": np.zeros(2, [("x", "f4")])}, "ids must be text of shape (2,)"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    np.savez(tmp_path / "unfit.npz", **(arrays() | change))
    assert reason in refusal(tmp_path / "unfit.npz")


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("key", KEYS)
def test_pickled_objects_are_not_read(tmp_path: Path, key: str) -> None:
    trap = np.empty(2, object)
    trap[:] = Trap(tmp_path / "sprung")
    np.savez(tmp_path / "pickled.npz", **(arrays() | {key: trap}))
    assert f"its array {key!r} holds pickled objects" in refusal(tmp_path / "pickled.npz")
    assert not (tmp_path / "sprung").exists()


def rezipped(path: Path, key: str, content: bytes) -> None:
    """Write the good predictions with one array's bytes replaced, all checksums being right."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays().items():
            archive.writestr(f"{name}.npy", content if name == key else npy(array))


def test_a_shape_that_asks_for_more_memory_than_there_is(tmp_path: Path) -> None:
    header = npy(np.zeros((2, 3), np.float32)).replace(b"(2, 3), }" + b" " * 12, b"(2, 3" + b"0" * 12 + b"), }")
    rezipped(tmp_path / "huge.npz", "logits", header)
    start = time.perf_counter()
    assert "its array 'logits' is not as long as its shape (2, 3000000000000) says" in refusal(tmp_path / "huge.npz")
    assert time.perf_counter() - start < 1


def mutated(data: st.DataObject, content: bytes) -> bytes:
    """Overwrite, cut out, insert or cut off, once or a few times."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(changed)))
        end = min(start + data.draw(st.integers(0, 8)), len(changed))
        changed[start : data.draw(st.sampled_from([end, len(changed)]))] = data.draw(st.binary(max_size=8))
    return bytes(changed)


@given(data=st.data())
@fuzzed
def test_a_damaged_file_is_refused_or_still_right(tmp_path: Path, data: st.DataObject) -> None:
    (tmp_path / "damaged.npz").write_bytes(mutated(data, saved(GOOD, tmp_path)))
    try:
        loaded = load_predictions(tmp_path / "damaged.npz")
    except EvenhandError:
        refusal(tmp_path / "damaged.npz")
    else:
        assert same(loaded, GOOD), "checksums let no changed number through"


@given(data=st.data(), key=st.sampled_from(KEYS))
@fuzzed
@pytest.mark.filterwarnings("ignore")  # of the parser of numpy's headers
def test_a_damaged_array_under_a_right_checksum(tmp_path: Path, data: st.DataObject, key: str) -> None:
    rezipped(tmp_path / "damaged.npz", key, mutated(data, npy(arrays()[key])))
    try:
        load_predictions(tmp_path / "damaged.npz")
    except EvenhandError:
        refusal(tmp_path / "damaged.npz")


@given(content=st.binary(max_size=200))
@fuzzed
def test_any_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "any.npz").write_bytes(content)
    refusal(tmp_path / "any.npz")


@pytest.mark.parametrize("share", [0.01, 0.3, 0.6, 0.9, 0.99])
def test_cut_off_files(tmp_path: Path, share: float) -> None:
    content = saved(GOOD, tmp_path)
    (tmp_path / "cut.npz").write_bytes(content[: int(share * len(content))])
    assert "write it again with `evenhand evaluate`" in refusal(tmp_path / "cut.npz")


def test_judging_needs_no_torch() -> None:
    code = "import sys, evenhand.runs.summary; print({'torch', 'sklearn', 'pandas'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
