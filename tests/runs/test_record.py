"""Records of finished runs: small, exact where it matters, and refused when damaged."""

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.runs.config import make_config
from evenhand.runs.record import RunRecord, make_record, read_record, records_in, write_record
from evenhand.runs.run import Run
from tests.fabricated import predict, write_run


def six_images() -> Predictions:
    """Classes in the order 1 0 2 1 0 1: of class 0 the first is right, of class 1 the last two, of class 2 none."""
    targets = np.array([1, 0, 2, 1, 0, 1])
    predicted = np.array([0, 0, 1, 1, 2, 1])
    return Predictions(
        logits=4 * np.eye(3, dtype=np.float32)[predicted],
        targets=targets,
        ids=np.array(list("abcdef")),
        class_names=("ant", "bee", "cät"),
        train_counts=np.array([30, 20, 10]),
    )


@pytest.fixture
def run(tmp_path: Path) -> Run:
    rows = [
        {"epoch": 1.0, "train_loss": 1.2345678901, "seconds": 10.5, "val_complement_entropy_wrong": float("nan")},
        {"epoch": 2.0, "train_loss": 1e-9 / 3, "seconds": 11.0, "val_complement_entropy_wrong": 0.5},
    ]
    config = make_config(data__source="digits", data__root="/home/someone/data", epochs=2, seed=7)
    return write_run(tmp_path / "digits_seed7", config, six_images(), rows=rows)


@pytest.fixture
def path(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "kept" / "block" / "digits_seed7.json"
    write_record(make_record(run), path)
    return path


def test_a_record_holds_what_the_run_folder_does(run: Run, path: Path) -> None:
    record = read_record(path)
    assert record.name == "digits_seed7"
    assert record.correct.tolist() == [True, False, False, True, True, False]
    assert record.targets.tolist() == [0, 0, 1, 1, 1, 2]
    assert record.summary.model_dump(exclude={"per_class"}) == run.summary.model_dump(exclude={"per_class"})
    assert [row.recall for row in record.summary.per_class] == [row.recall for row in run.summary.per_class]
    assert record.summary.per_class[2].name == "cät"
    assert record.environment.model_dump(exclude={"commit"}) == run.environment.model_dump(exclude={"commit"})
    assert [row["train_loss"] for row in record.history] == [1.23457, 3.33333e-10]
    assert np.isnan(record.history[0]["val_complement_entropy_wrong"])
    assert [row["seconds"] for row in record.history] == [10.5, 11.0]


def test_where_the_data_were_is_not_recorded(run: Run, path: Path) -> None:
    assert "someone" not in path.read_text()
    record, config = read_record(path), run.config
    assert record.config == config.model_copy(update={"data": config.data.model_copy(update={"root": None})})


def test_a_setting_that_a_record_lacks_has_its_old_default(path: Path) -> None:
    change(path, lambda content: content["config"].pop("batch_size"))
    assert read_record(path).config.batch_size == 64


@pytest.mark.parametrize(("classes", "epochs", "kilobytes"), [(10, 200, 15), (100, 200, 25), (200, 30, 29)])
def test_records_are_small(tmp_path: Path, classes: int, epochs: int, kilobytes: int) -> None:
    """With errors as widely spread as those of a network that is right in 4 of 10 cases."""
    rng, images = np.random.default_rng(0), 10_000
    targets = np.repeat(np.arange(classes), images // classes)
    logits = rng.normal(size=(images, classes)).astype(np.float32)
    logits[np.arange(images), targets] += 2.0
    predictions = Predictions(
        logits=logits,
        targets=targets,
        ids=np.array([f"test/{row:05d}" for row in range(images)]),
        class_names=tuple(f"class-{k:03d}" for k in range(classes)),
        train_counts=np.linspace(500, 5, classes).astype(np.int64),
    )
    columns = ("lr", "train_loss", "seconds", "images_per_second")
    tests = ("test_accuracy", "test_balanced_accuracy")
    rows = [
        {"epoch": float(k + 1)}
        | {name: float(rng.random()) for name in columns}
        | {name: int(rng.integers(images)) / images for name in tests}
        for k in range(epochs)
    ]
    run = write_run(tmp_path / "run", make_config(epochs=epochs), predictions, rows=rows)
    write_record(make_record(run), tmp_path / "record.json")
    assert (tmp_path / "record.json").stat().st_size < 1000 * kilobytes
    assert read_record(tmp_path / "record.json").correct.mean() == pytest.approx(run.summary.accuracy)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def bits(*values: int) -> str:
    return base64.b64encode(np.packbits(np.array(values, np.uint8)).tobytes()).decode()


def matrix(*values: int) -> str:
    return base64.b64encode(zlib.compress(np.array(values, "<u4").tobytes())).decode()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda c: c.pop("summary"), "summary: Field required"),
        (lambda c: c["summary"].pop("per_class"), "summary.per_class: Field required"),
        (lambda c: c["summary"].pop("accuracy"), "accuracy: Field required"),
        (lambda c: c["summary"].update(accuracy="0.5"), "accuracy: Input should be a valid number"),
        (lambda c: c["summary"].update(accuracy=0.9), "its accuracy is 0.9, expected 0.5"),
        (lambda c: c["summary"].update(balanced_accuracy=0.9), "its balanced_accuracy is 0.9, expected 0.38"),
        (lambda c: c["summary"].update(seed=1), "its seed is 1, expected 7"),
        (lambda c: c.update(correct=bits(1, 1, 0, 1, 0, 0)), "2 images of 'ant' are correct, 1 in its confusion"),
        (lambda c: c.update(correct=bits(1, 0, 0, 1, 1, 0, 0, 1)), "correct has 8 bits for 6 test images"),
        (lambda c: c.update(correct=bits(*[0] * 9)), "correct has 16 bits for 6 test images"),
        (lambda c: c.update(correct="%%"), "base64"),
        (lambda c: c["summary"].update(confusion_matrix=matrix(1, 2, 3)), "confusion_matrix is not one of 3 classes"),
        (lambda c: c["summary"].update(confusion_matrix=matrix(*[0] * 10**6)), "is not one of 3 classes"),
        (lambda c: c["summary"].update(confusion_matrix=bits(*[1] * 32)), "incorrect header check"),
        (
            lambda c: c["summary"].update(confusion_matrix=matrix(1, 0, 0, 2, 1, 0, 0, 1, 1)),
            "test counts of its classes",
        ),
        (lambda c: c["summary"]["per_class"]["name"].pop(), "its columns differ in length: .*'name': 2, 'group': 3"),
        (lambda c: c["history"]["epoch"].pop(), "its columns differ in length"),
        (lambda c: c["history"].update(epoch=[1, 3]), "row 2 has epoch 3"),
        (lambda c: c["config"].update(epochs=1), "its history has 2 epochs, its config 1"),
        (lambda c: c["config"].update(epochs=0), "epochs cannot be 0"),
    ],
)
def test_damage_is_one_sentence(path: Path, edit: Callable[[dict[str, Any]], object], words: str) -> None:
    change(path, edit)
    with pytest.raises(EvenhandError, match=rf"^Cannot read the record .*{words}.*\.$"):
        read_record(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"{}", b'{"name": NaN}'])
def test_what_is_no_record_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(EvenhandError, match="Cannot read the record"):
        read_record(path)


def test_records_are_found_in_subfolders_and_once_each(run: Run, path: Path, tmp_path: Path) -> None:
    again = tmp_path / "kept" / "another" / path.name
    write_record(make_record(run), again)
    assert [record.name for record in records_in(tmp_path / "kept")] == ["digits_seed7"]
    change(again, lambda content: content["history"].update(seconds=[1.0, 2.0]))
    with pytest.raises(EvenhandError, match="are different records of the run digits_seed7; delete one"):
        records_in(tmp_path / "kept")
    with pytest.raises(EvenhandError, match="There is no folder of records"):
        records_in(tmp_path / "nowhere")


def test_a_run_that_is_not_finished_has_no_record(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="is missing"):
        make_record(write_run(tmp_path / "run", make_config(epochs=2)))


def test_classes_without_test_images_have_no_bits(tmp_path: Path) -> None:
    predictions = predict([1.0, 0.5, 0.0, 0.0], support=[3, 2, 0, 1])
    write_record(make_record(write_run(tmp_path / "run", make_config(epochs=2), predictions)), tmp_path / "record.json")
    record: RunRecord = read_record(tmp_path / "record.json")
    assert record.targets.tolist() == [0, 0, 0, 1, 1, 3]
    assert record.correct.tolist() == [True, True, True, True, False, False]


def test_reading_records_needs_no_torch() -> None:
    code = "import sys, evenhand.runs.record; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
