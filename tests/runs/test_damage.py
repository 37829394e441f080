"""Files of a run that were damaged or made up: each is told in one sentence that names it, and costs no memory."""

import hashlib
import io
import json
import os
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evenhand.core import arrays
from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import load_predictions
from evenhand.runs.lenient import read_leniently
from evenhand.runs.run import Run
from evenhand.training.checkpoint import load_classifier, load_state, save_state
from tests.fabricated import write_pictured_run
from tests.runs.test_old import OLD


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A real run without checksums, as the first version left it."""
    return Path(shutil.copytree(OLD, tmp_path / "old"))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A run with checksums."""
    return write_pictured_run(tmp_path / "new", names=("cat", "dog", "owl"))


def told(read: Callable[[], object]) -> str:
    with pytest.raises(EvenhandError) as caught:
        read()
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


READERS = {
    "config.yaml": "config",
    "environment.json": "environment",
    "splits.json": "splits",
    "history.csv": "history",
    "predictions.npz": "predictions",
    "features.npz": "features",
    "thumbnails.npz": "thumbnails",
    "summary.json": "summary",
}


@pytest.mark.parametrize(("name", "read"), READERS.items())
def test_a_file_that_is_cut_is_named(old: Path, name: str, read: str) -> None:
    content = (old / name).read_bytes()
    (old / name).write_bytes(content[: len(content) // 2] + b"\x00\xff")
    assert name in told(lambda: getattr(Run(old), read))
    others = [other for other in READERS.values() if other not in (read, "config")]
    assert read_leniently(Run(old), *others)[1] == ()  # damage of one file spoils no other


@pytest.mark.parametrize(("name", "read"), READERS.items())
@pytest.mark.parametrize("kind", ["folder", "pipe", "endless"])
def test_what_is_no_file_is_no_part_of_the_run(old: Path, name: str, read: str, kind: str) -> None:
    (old / name).unlink()
    if kind == "folder":
        (old / name).mkdir()
    elif kind == "pipe":
        os.mkfifo(old / name)
    else:
        (old / name).symlink_to("/dev/zero")
    if read in ("environment", "history"):  # a run may lack these
        assert not getattr(Run(old), read) or getattr(Run(old), read).code is None
    else:
        told(lambda: getattr(Run(old), read))


@pytest.mark.parametrize("name", ["weights/best.safetensors", "state/state.pt"])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_weights_and_states_that_are_no_files(old: Path, name: str, kind: str) -> None:
    (old / name).unlink()
    (old / name).mkdir() if kind == "folder" else os.mkfifo(old / name)
    told(lambda: load_classifier(Run(old).best_weights) if "best" in name else load_state(Run(old).state))


@pytest.mark.parametrize("name", ["predictions.npz", "features.npz", "thumbnails.npz"])
def test_two_flipped_bytes_are_told(new: Path, name: str) -> None:
    content = bytearray((new / name).read_bytes())
    for place in (len(content) // 2, len(content) // 2 + 7):
        content[place] ^= 1
    (new / name).write_bytes(content)
    read = READERS[name]
    assert "its checksum differs from checksums.json" in told(lambda: getattr(Run(new), read))


@pytest.mark.parametrize("name", ["weights/best.safetensors", "weights/last.safetensors", "state/state.pt"])
def test_two_flipped_bytes_of_tensors_are_told(tmp_path: Path, name: str) -> None:
    from evenhand.training.run import train_run
    from tests.training.runs import tiny

    run = train_run(tiny(epochs=1), tmp_path / "run")
    content = bytearray((run.path / name).read_bytes())
    content[-5000] ^= 1
    content[-5007] ^= 1
    (run.path / name).write_bytes(content)
    read = load_state if "state" in name else load_classifier
    assert "checksum" in told(lambda: read(run.path / name))


def test_a_process_that_is_killed_before_a_file_gets_its_name_leaves_it_readable(
    new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Run(new).predictions
    real = os.replace

    def killed(source: Path, target: Path, **folders: int) -> None:
        if Path(target).name == "predictions.npz":
            raise KeyboardInterrupt
        real(source, target, **folders)

    other = replace(before, logits=before.logits + 1)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                Run(new).write_predictions(other)
        assert np.array_equal(Run(new).predictions.logits, before.logits)
    Run(new).write_predictions(other)
    assert np.array_equal(Run(new).predictions.logits, other.logits)
    assert [len(each) for each in json.loads((new / "checksums.json").read_text()).values()] == [1, 1, 1]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"predictions.npz": 3}', b'{"predictions.npz": ["a"]}', b"\xff"])
def test_damaged_checksums_are_told(new: Path, content: bytes) -> None:
    (new / "checksums.json").write_bytes(content)
    assert "checksums.json" in told(lambda: Run(new).predictions)


def edit(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changed}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"balanced_accuracy": 1.0}, "its balanced_accuracy is 1.0, but the predictions give 0.27"),
        ({"accuracy": 0.9}, "its accuracy is 0.9"),
        ({"macro_f1": 0.9}, "its macro_f1 is 0.9"),
        ({"macro_f1": 1.5}, "macro_f1 must be 0 to 1, got 1.5"),
        ({"geometric_mean": 0.9}, "its geometric_mean is 0.9"),
        ({"geometric_mean": None}, "geometric_mean must be a number, got NoneType"),
        ({"nll": -0.5}, "nll must be 0 or more, and finite, got -0.5"),
        ({"nll": 10**400}, "nll must be 0 or more, and finite, got 1000"),
        ({"ece": "0.5"}, "ece must be a number, got str"),
        ({"ece": False}, "ece must be a number, got bool"),
        ({"images": 360}, "its images is 360"),
        ({"worst_class": {"name": "3", "recall": 0.5}}, "its worst_class is 0.5"),
        ({"confusion_matrix": [[1, 2], [3, 4]]}, "its confusion matrix is not that of the predictions"),
        ({"confusion_matrix": [[1], [3, 4]]}, "its confusion matrix is not that of the predictions"),
        ({"groups": {"many": None, "medium": None, "few": None}}, "its many-shot recall is None"),
        ({"balanced_accuracy": 1.5}, "balanced_accuracy: input should be less than or equal to 1"),
        ({"balanced_accuracy": "0.5"}, "balanced_accuracy: input should be a valid number"),
        ({"balanced_accuracy": True}, "balanced_accuracy: input should be a valid number"),
        ({"selected": {"rule": "best", "epoch": 0}}, "selected.epoch: input should be greater than or equal to 1"),
        ({"seconds_per_epoch": -1}, "seconds_per_epoch: input should be greater than or equal to 0"),
        ({"per_class": []}, "per_class: "),
    ],
)
def test_a_summary_that_is_not_of_its_predictions_is_told(old: Path, changed: dict[str, Any], words: str) -> None:
    edit(old / "summary.json", **changed)
    assert words in told(lambda: Run(old).summary)


def test_splits_that_overlap_are_told(old: Path) -> None:
    splits = json.loads((old / "splits.json").read_text())
    for changed, words in (
        ({"test": splits["train"]}, "430 images are in both train and test, such as '00000'"),
        ({"val": splits["test"][:1]}, "1 images are in both val and test"),
        ({"train": splits["train"] * 2}, "an image is listed twice in train"),
        ({"train": []}, "train: tuple should have at least 1 item"),
        ({"test": [1, 2]}, "test.0: input should be a valid string"),
    ):
        (old / "splits.json").write_text(json.dumps({**splits, **changed}))
        assert words in told(lambda: Run(old).splits)


def test_predictions_of_other_classes_or_images_are_told(old: Path) -> None:
    found = Run(old).predictions
    replace(found, class_names=tuple("abcdefghij")).save(old / "predictions.npz")
    assert "its classes differ from those of the weights" in told(lambda: Run(old).predictions)
    (old / "weights" / "best.safetensors").unlink()
    edit(old / "summary.json")
    assert "its classes are not those of the predictions" in told(lambda: Run(old).summary)
    replace(found, ids=np.char.add(found.ids, "x")).save(old / "predictions.npz")
    assert "its 359 images are not the 359 test images of the run in the same order, such as" in told(
        lambda: Run(old).predictions
    )
    for read in ("features", "thumbnails"):
        (old / "splits.json").unlink(missing_ok=True)
        assert "does not belong to the predictions" in told(lambda read=read: getattr(Run(old), read))


def test_a_history_that_is_not_of_its_config_is_told(old: Path) -> None:
    text = (old / "history.csv").read_text()
    for content, words in (
        (text + text.splitlines()[-1].replace("2,", "3,", 1) + "\n", "it has 3 epochs, but the config asks for 2"),
        (text.replace("\n2,", "\n1,"), "row 2 has epoch 1"),
        (text.replace("0.625", "1.625"), "val_accuracy of epoch 1 is 1.625"),
        ("", "it has no epochs"),
    ):
        (old / "history.csv").write_text(content)
        assert words in told(lambda: Run(old).history)


@pytest.mark.parametrize("epoch", [-5, 0, "x", 99, 1, 2.0, True, None, torch.tensor(2)])
def test_a_state_of_another_epoch_is_refused(old: Path, epoch: Any) -> None:
    state = torch.load(old / "state" / "state.pt", weights_only=True)
    save_state(old / "state" / "state.pt", {**state, "epoch": epoch})
    assert "is damaged: it" in told(lambda: load_state(Run(old).state, Run(old).config))


@pytest.mark.parametrize(
    "changed",
    [
        {"history": []},
        {"history": "x"},
        {"history": [{"epoch": 1}, {"epoch": 3}]},
        {"config": None},
        {"config": {"batch_size": 7}},
        {"config": {"data": {"source": torch.zeros(3)}}},
    ],
)
def test_a_state_with_other_values_is_refused(old: Path, changed: dict[str, Any]) -> None:
    state = torch.load(old / "state" / "state.pt", weights_only=True)
    save_state(old / "state" / "state.pt", {**state, **changed})
    assert " the run anew." in told(lambda: load_state(Run(old).state, Run(old).config))


def test_a_state_of_another_config_is_refused(tmp_path: Path, old: Path) -> None:
    config = Run(old).config
    assert "it is of epoch 2, but the config asks for 1" in told(
        lambda: load_state(Run(old).state, config.model_copy(update={"epochs": 1}))
    )
    from evenhand.training.checkpoint import what_state_fixes

    state = torch.load(old / "state" / "state.pt", weights_only=True)
    save_state(tmp_path / "state.pt", {**state, "config": what_state_fixes(config)})
    assert load_state(tmp_path / "state.pt", config)["epoch"] == 2
    other = config.model_copy(update={"batch_size": 32})
    assert "batch_size was 64 and is 32" in told(lambda: load_state(tmp_path / "state.pt", other))


@pytest.mark.parametrize(
    "changed",
    [
        {"image_size": "x"},
        {"image_size": -1},
        {"image_size": 10**9},
        {"channels": 2},
        {"class_names": ["a"]},
        {"class_names": ["a", "a"]},
        {"class_names": [1, 2]},
        {"class_names": 3},
        {"model": 3},
        {"preprocessing": {"crop_size": 0, "mean": [0.5], "std": [0.5]}},
        {"preprocessing": {"crop_size": 8, "mean": ["x"], "std": [0.5]}},
        {"preprocessing": {"crop_size": 8, "mean": [0.5], "std": [0]}},
        {"preprocessing": {"crop_size": 8, "mean": [0.5, 0.5], "std": [0.5, 0.5]}},
        {"preprocessing": 3},
        {"colour": "red"},
        {"channels": 1.0},
        {"channels": True},
        {"head": 3},
        {"head": None},
        {"head": "cosine:scale=x"},
        {"head": "cosine:scale=1e308"},
        {"head": "cosine:lda=x"},
        {"head": "cosine:lda=-1"},
        {"head": "linear+cosine"},
        {"stem": "x"},
        {"stretch": "x"},
        {"interpolation": "x"},
        {"backbone": 3},
        {"backbone": {}},
        {"backbone": {"sha256": 3, "source": None}},
        {"backbone": {"sha256": "../../etc", "source": "x"}},
        {"class_names": [str(k) for k in range(100_000)]},
        {"preprocessing": {"crop_size": 8, "mean": [float("nan")], "std": [0.5]}},
        {"preprocessing": {"crop_size": 8, "mean": [0.5], "std": [float("inf")]}},
        {"preprocessing": {"crop_size": 8, "mean": [0.5], "std": [1e-320]}},
    ],
)
def test_a_card_with_other_values_is_refused(old: Path, changed: dict[str, Any]) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = Run(old).best_weights
    with safe_open(path, framework="pt") as file:
        card = json.loads(file.metadata()["evenhand"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    card.setdefault("preprocessing", card.pop("view"))
    save_file(tensors, path, metadata={"evenhand": json.dumps({**card, **changed})})
    text = told(lambda: load_classifier(path))
    assert str(path) in text or "stem" in text
    assert len(text) < 500


# Archives that would unpack to far more than they hold


def bomb(path: Path, size: int, *, declared: int | None = None, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Put so many zeros into the logits of predictions."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (size // 8, 2)})
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("logits.npy", header.getvalue() + bytes(size))
        for key in ("targets", "ids", "class_names", "train_counts"):
            archive.writestr(f"{key}.npy", b"")
        if declared is not None:
            archive.getinfo("logits.npy").file_size = declared  # which the central directory then says


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("declared", [None, 200, 2**40])
def test_bombs_are_refused_before_they_are_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: int, declared: int | None
) -> None:
    monkeypatch.setattr(arrays, "MOST_UNPACKED", 2**18)
    path = tmp_path / "predictions.npz"
    bomb(path, 2**24, declared=declared, method=method)
    tracemalloc.start()
    try:
        told(lambda: load_predictions(path))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(10**12,), (-1, 2), (2**62, 2), (0, 10**30)])
@pytest.mark.parametrize("kind", ["<U0", "<f4", "|V0"])
def test_shapes_that_lie_reserve_no_memory(tmp_path: Path, shape: tuple[int, ...], kind: str) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue())
    told(lambda: arrays.read_arrays(tmp_path / "x.npz", ["a"]))


KEYS = {"predictions.npz": "logits", "validation.npz": "logits", "features.npz": "features", "thumbnails.npz": "images"}
PROPERTIES = {**READERS, "validation.npz": "validation_predictions"}


def lie(kind: str, key: str, content: dict[str, bytes], archive: zipfile.ZipFile) -> None:
    """Write the members of an archive, one of which is not what it says."""

    def head(descr: str, shape: tuple[int, ...]) -> bytes:
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        return file.getvalue()

    own = content.pop(f"{key}.npy")
    for name, each in content.items():
        archive.writestr(name, head("<U100000", (40,)) + bytes(2**24) if kind == "names" and "ids" in name else each)
    if kind == "bomb":
        archive.writestr(f"{key}.npy", head("<f4", (2**21, 2)) + bytes(2**24))
    elif kind == "huge shape":
        archive.writestr(f"{key}.npy", head("<f4", (2**40, 3)))
    elif kind == "huge kind":
        archive.writestr(f"{key}.npy", head("<U100000000", (2**20,)))
    elif kind == "twice":
        archive.writestr(f"{key}.npy", own)
        archive.writestr(f"{key}.npy", head("<f4", (2**21, 2)) + bytes(2**24))
    elif kind == "nested":
        inner = io.BytesIO()
        np.savez(inner, **{key: np.zeros((2**10, 2**10))})
        archive.writestr(f"{key}.npy", inner.getvalue())
    elif kind == "long head":
        archive.writestr(f"{key}.npy", b"\x93NUMPY\x02\x00" + (2**31 - 1).to_bytes(4, "little") + bytes(2**24))
    elif kind == "many dimensions":
        archive.writestr(f"{key}.npy", head("<f4", (1,) * 70) + bytes(4))
    else:
        archive.writestr(f"{key}.npy", own)


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize(
    "kind", ["bomb", "huge shape", "huge kind", "names", "twice", "nested", "long head", "many dimensions"]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_lie_behind_a_valid_checksum(
    new: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.setattr(arrays, "MOST_UNPACKED", 2**18)
    with zipfile.ZipFile(new / name if (new / name).exists() else new / "predictions.npz") as archive:
        content = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(new / name, "w", zipfile.ZIP_DEFLATED) as archive:
        lie(kind, KEYS[name], content, archive)
    checksum = hashlib.sha256((new / name).read_bytes()).hexdigest()
    edit(new / "checksums.json", **{name: [checksum]})
    tracemalloc.start()
    try:
        text = told(lambda: getattr(Run(new), PROPERTIES[name]))
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert name in text
    assert len(text) < 600


def tensor_head(changed: Callable[[dict[str, Any], str], object]) -> Callable[[bytes], bytes]:
    """Change the head of a file of tensors; the rest stays."""

    def change(content: bytes) -> bytes:
        size = int.from_bytes(content[:8], "little")
        head = json.loads(content[8 : 8 + size])
        changed(head, next(name for name in head if name != "__metadata__"))
        new = json.dumps(head).encode()
        return len(new).to_bytes(8, "little") + new + content[8 + size :]

    return change


HEADS: dict[str, Callable[[bytes], bytes]] = {
    "shape": tensor_head(lambda head, name: head[name].update(shape=[2**40, 2**20])),
    "negative shape": tensor_head(lambda head, name: head[name].update(shape=[-1])),
    "beyond the end": tensor_head(lambda head, name: head[name].update(data_offsets=[0, 2**60])),
    "backwards": tensor_head(lambda head, name: head[name].update(data_offsets=[10, 0])),
    "kind": tensor_head(lambda head, name: head[name].update(dtype="Q7")),
    "other kind": tensor_head(lambda head, name: head[name].update(dtype="I32")),
    "other name": tensor_head(lambda head, name: head.update(x=head.pop(name))),
    "no card": tensor_head(lambda head, _: head.pop("__metadata__")),
    "card of lists": tensor_head(lambda head, _: head.update(__metadata__=[1])),
    "deep card": tensor_head(lambda head, _: head["__metadata__"].update(evenhand="[" * 10**5)),
    "long head": lambda content: (2**63).to_bytes(8, "little") + content[8:],
    "head of 16 MB": lambda content: (2**24).to_bytes(8, "little") + content[8:],
    "deep head": lambda _: (5000).to_bytes(8, "little") + b"[" * 5000,
    "nothing else": lambda content: content[:8],
}


@pytest.mark.parametrize("kind", HEADS)
def test_tensors_whose_head_lies(old: Path, kind: str) -> None:
    path = Run(old).best_weights
    path.write_bytes(HEADS[kind](path.read_bytes()))
    (old / "checksums.json").write_text(
        json.dumps({"weights/best.safetensors": [hashlib.sha256(path.read_bytes()).hexdigest()]})
    )
    text = told(lambda: load_classifier(path))
    assert str(path) in text
    assert "checksum" not in text
