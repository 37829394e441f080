"""Read the files of a folder: regular, undamaged, of their schema; no link inside the folder is followed."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes, read_json_bytes
from evenhand.core.opening import LINK, is_regular, link_within
from evenhand.runs import filenames as names
from evenhand.runs.checksums import check
from evenhand.runs.schemas import EpochRow, StoredModel, check_history

LARGEST = {
    names.SPLITS: 2**26,
    names.SUMMARY: 2**25,
    names.HISTORY: 2**24,
    names.ENVIRONMENT: 2**16,
    names.ADJUSTMENT: 2**25,
    names.CONFIG: 2**16,
    names.DECISIONS: 2**27,
}
"""Largest sizes in bytes: ImageNet's ids take 52 million, the summary of 1,000 classes about 10 million."""

_Stored = TypeVar("_Stored", bound=StoredModel)


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder; refuse a missing one, a link and what is no file."""
    path = folder / name
    if is_regular(path, within=folder):
        return path
    if link_within(path, folder) is not None:
        raise EvenhandError(f"Cannot read {path}: {LINK}.")
    raise EvenhandError(f"{path} is not a file." if path.exists() else f"{name} is missing in {folder}.")


def find_checked(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, compared with its checksum."""
    path = find_file(folder, name)
    try:
        check(path, within=folder)
    except EvenhandError as error:
        raise EvenhandError(f"Cannot read {path}: {error}") from error
    return path


def read_text(folder: Path, name: str) -> str:
    """Read a text, of at most as many bytes as `LARGEST` says."""
    path = find_file(folder, name)
    try:
        return read_bytes(path, LARGEST[name], within=folder).decode()
    except UnicodeDecodeError as error:
        raise EvenhandError(f"Cannot read {path}: {reason(error)}.") from error


def read_history(folder: Path, name: str) -> list[EpochRow]:
    """Read a CSV file with one row per epoch."""
    text = read_text(folder, name)
    try:
        rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(io.StringIO(text))]
        check_history(rows)
    except (ValueError, TypeError, csv.Error, EvenhandError, MemoryError) as error:
        raise EvenhandError(f"Cannot read the history in {folder / name}: {reason(error)}.") from error
    return rows


def read_stored(kind: type[_Stored], folder: Path, name: str) -> _Stored:
    """Read a JSON file, of at most as many bytes as `LARGEST` says, checked against its schema."""
    path = find_file(folder, name)
    content = read_json_bytes(path, LARGEST[name], within=folder)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        why = reason(ValueError(first["msg"].removeprefix("Value error, ")))
        why = why[:1].lower() + why[1:]
        raise EvenhandError(f"Cannot read {path}: {where}{': ' * bool(where)}{why}.") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Re-raise an error about the content of a file with its path."""
    try:
        yield
    except EvenhandError as error:
        raise EvenhandError(f"Cannot use {path}: {error}") from error
