"""A finished run as one small JSON file: what tables and claims read, without weights, logits and images."""

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import hash_file, read_json_bytes, write_text
from evenhand.metrics import classification as metrics
from evenhand.runs.config import Config, validate
from evenhand.runs.name_defaults import with_frozen
from evenhand.runs.run import Run
from evenhand.runs.schemas import Environment, EpochRow, StoredModel, Summary, check_history

MAX_BYTES = 2**20
"""A record of 1,000 classes and 200 epochs takes about half of it."""
DIGITS = 6
"""Significant digits of the history and of per-class intervals, precision and F1."""
DERIVED = "images_per_second"
"""A column of the history that is not recorded, as it follows from `seconds`."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The content of one record."""

    name: str
    """Of the run folder."""
    config: Config
    """`data.root` is None: where the data were is not recorded."""
    environment: Environment
    """Without the commit: `code` identifies the version of the package."""
    summary: Summary
    history: list[EpochRow]
    """One row per epoch."""
    correct: NDArray[np.bool_]
    """(N,): which test images were classified correctly, ordered by class, then as in the test set."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """(N,): the class of each test image, in the order of `correct`."""
        counts = [row.test_count for row in self.summary.per_class]
        return np.repeat(np.arange(len(counts), dtype=np.int64), counts)

    def check(self) -> None:
        """Raise an error if parts of the record contradict each other; the confusion matrix is the reference."""
        summary = self.summary
        confusion = np.array(summary.confusion_matrix, np.int64)
        counts = np.array([row.test_count for row in summary.per_class])
        if confusion.shape != (len(counts), len(counts)) or not np.array_equal(confusion.sum(axis=1), counts):
            raise EvenhandError("its confusion matrix does not have the test counts of its classes.")
        if len(self.correct) != counts.sum():
            raise EvenhandError(f"it has {len(self.correct):,} test images, its confusion matrix {counts.sum():,}.")
        hits = np.bincount(self.targets[self.correct], minlength=len(counts))
        for row, own, found in zip(summary.per_class, confusion.diagonal(), hits, strict=True):
            if own != found:
                raise EvenhandError(f"{found:,} images of {row.name!r} are correct, {own:,} in its confusion matrix.")
        pairs = {
            "accuracy": (summary.accuracy, metrics.accuracy(confusion)),
            "balanced_accuracy": (summary.balanced_accuracy, metrics.balanced_accuracy(confusion)),
            "seed": (summary.seed, self.config.seed),
        }
        for name, (stored, expected) in pairs.items():
            if abs(stored - expected) > 1e-9:
                raise EvenhandError(f"its {name} is {stored}, expected {expected}.")
        if self.history:
            check_history(self.history)
        if len(self.history) > self.config.epochs:
            raise EvenhandError(f"its history has {len(self.history)} epochs, its config {self.config.epochs}.")


FinishedRun = Run | RunRecord
"""What tables and claims read: name, config, environment, summary and history of a finished run."""


# Rows are stored by column, so that a column is named once.
class _StoredSummary(StoredModel):
    """A summary; all but these two as in :class:`~evenhand.runs.schemas.Summary`."""

    per_class: dict[str, list[Any]]
    """By column."""
    confusion_matrix: str
    """Base64 of the zlib-compressed uint32 matrix, row by row."""


class _StoredRecord(StoredModel):
    """The content of the file."""

    name: str = Field(min_length=1, max_length=255)
    config: dict[str, Any]
    environment: Environment
    summary: _StoredSummary
    history: dict[str, list[float | None]]
    """By column; null is NaN or infinity."""
    correct: str
    """Base64 of the packed bits."""


def make_record(run: Run) -> RunRecord:
    """Return the record of a finished run folder.

    Raises:
        EvenhandError: the run is not finished, or one of its files is damaged.
    """
    predictions, config = run.predictions, run.config
    by_class = np.argsort(predictions.targets, kind="stable")
    return RunRecord(
        name=run.name,
        config=config.model_copy(update={"data": config.data.model_copy(update={"root": None})}),
        environment=run.environment.model_copy(update={"commit": None}),
        summary=run.summary,
        history=run.history,
        correct=predictions.correct()[by_class],
    )


def write_record(record: RunRecord, path: Path | str) -> None:
    """Write a record; the history and some per-class figures are rounded to `DIGITS` significant digits."""
    summary = record.summary.model_dump(mode="json")
    per_class = _columns(summary["per_class"])
    content = {
        "name": record.name,
        "config": record.config.model_dump(mode="json"),
        "environment": record.environment.model_dump(mode="json", exclude_none=True),
        "summary": summary
        | {
            # Recalls stay exact: equal differences over seeds must stay equal.
            "per_class": {name: each if name == "recall" else _rounded(each) for name, each in per_class.items()},
            "confusion_matrix": _encode(zlib.compress(np.array(summary["confusion_matrix"], "<u4").tobytes(), 9)),
        },
        "history": _rounded({name: each for name, each in _columns(record.history).items() if name != DERIVED}),
        "correct": _encode(np.packbits(record.correct).tobytes()),
    }
    write_text(path, json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n")


def read_record(path: Path | str) -> RunRecord:
    """Read what :func:`write_record` wrote, and check that its parts agree.

    Raises:
        EvenhandError: the file is missing or damaged, in one sentence.
    """
    content = read_json_bytes(path, MAX_BYTES)
    try:
        record = _decode_record(_StoredRecord.model_validate_json(content))
        record.check()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise EvenhandError(f"Cannot read the record {path}: {where}: {reason(ValueError(first['msg']))}.") from error
    except (EvenhandError, LookupError, TypeError, ValueError, zlib.error, RecursionError, MemoryError) as error:
        raise EvenhandError(f"Cannot read the record {path}: {reason(error)}.") from error
    return record


def records_in(folder: Path | str) -> list[RunRecord]:
    """Read all records under a folder, recursively; of a run that is recorded twice, one.

    Raises:
        EvenhandError: there is no such folder, a record is damaged, or two records of one run differ.
    """
    if not Path(folder).is_dir():
        raise EvenhandError(f"There is no folder of records {folder}.")
    found: dict[str, tuple[Path, RunRecord]] = {}
    for path in sorted(Path(folder).rglob("*.json")):
        record = read_record(path)
        other, _ = found.setdefault(record.name, (path, record))
        if hash_file(other) != hash_file(path):
            raise EvenhandError(f"{other} and {path} are different records of the run {record.name}; delete one.")
    return [record for _, record in found.values()]


def _decode_record(file: _StoredRecord) -> RunRecord:
    per_class = _rows(file.summary.per_class)
    matrix = _decode_matrix(file.summary.confusion_matrix, len(per_class))
    summary = file.summary.model_dump() | {"per_class": per_class, "confusion_matrix": matrix.tolist()}
    images = int(matrix.sum())
    bits = np.unpackbits(np.frombuffer(_decode(file.correct), np.uint8))
    if len(bits) != 8 * math.ceil(images / 8) or bits[images:].any():
        raise EvenhandError(f"correct has {len(bits):,} bits for {images:,} test images.")
    return RunRecord(
        name=file.name,
        config=validate(with_frozen(file.config)),
        environment=file.environment,
        summary=Summary.model_validate_json(json.dumps(summary)),
        history=[
            {name: math.nan if value is None else float(value) for name, value in row.items()}
            for row in _rows(file.history)
        ],
        correct=bits[:images].astype(np.bool_),
    )


def _decode_matrix(text: str, classes: int) -> NDArray[np.int64]:
    size = 4 * classes**2
    content = zlib.decompressobj().decompress(_decode(text), size + 1)
    if len(content) != size:
        raise EvenhandError(f"confusion_matrix is not one of {classes} classes.")
    return np.frombuffer(content, "<u4").astype(np.int64).reshape(classes, classes)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in (rows[0] if rows else ())}


def _rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise EvenhandError(f"its columns differ in length: {lengths}.")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _rounded(value: Any) -> Any:
    """Round the floats in nested lists and mappings; NaN and infinity become None, a whole number an integer."""
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if not isinstance(value, float):
        return value
    short = float(f"{value:.{DIGITS}g}")
    if not math.isfinite(short):
        return None
    return int(short) if short.is_integer() else short
