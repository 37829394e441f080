"""Files that give a number to each class: class weights, class shares, costs."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes
from evenhand.core.text import clipped, some

_LARGEST = 2**26
_SEPARATORS = ",;\t"
_MOST = 1e100
"""Squares and sums of numbers up to it are finite."""


@contextmanager
def reading(path: Path | str, what: str) -> Iterator[None]:
    """Report a mistake in a file as one sentence: what cannot be read from it, and why."""
    try:
        yield
    except EvenhandError as error:
        why = str(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read {what} from {path}: {why}") from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise EvenhandError(f"Cannot read {what} from {path}: {reason(error, 300)}.") from error


def read_class_values(
    path: Path | str, noun: str, class_names: Sequence[str] | None = None, *, positive: bool = False
) -> dict[str, float]:
    r"""Read a number per class, 0 or more.

    Args:
        path: a table of two columns separated by commas, semicolons or tabs, with or without a heading; or a `.json`
            object of classes and numbers.
        noun: what the numbers are, such as `weight`.
        class_names: the classes that must be there, in the order of the result; None: any.
        positive: refuse 0.

    Raises:
        EvenhandError: the file cannot be read.
        ValueError: it names a class twice, lacks one, has an unknown one, or a number is not finite or too small; see
            :func:`reading`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.class_tables import read_class_values
        >>> path = Path(tempfile.mkdtemp()) / "weights.csv"
        >>> _ = path.write_text("class;weight\ncat;1\nlynx;20\n")
        >>> read_class_values(path, "weight", ["lynx", "cat"])
        {'lynx': 20.0, 'cat': 1.0}
    """
    if Path(path).suffix.lower() == ".json":
        pairs = _json_pairs(_text(path), noun)
    else:
        pairs = pairs_of(read_cells(path, class_names), noun, class_names)
    return class_values(pairs, noun, class_names, positive=positive)


def read_cells(path: Path | str, class_names: Sequence[str] | None = None) -> list[list[str]]:
    """Return the rows of a table without blank ones, with the separator by which most rows of classes are found.

    Args:
        path: a table separated by commas, semicolons or tabs.
        class_names: the first cells of rows of classes; None: any, followed by one number.
    """
    text, known, tables = _text(path), frozenset(class_names or ()), []
    for mark in _SEPARATORS:
        rows = [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=mark)]
        for row in rows:
            while row and not row[-1]:  # spreadsheets fill up short rows
                row.pop()
        tables.append([row for row in rows if row])

    def fits(row: list[str]) -> bool:
        if class_names is None:
            return len(row) == 2 and _is_number(row[1])
        return len(row) > 1 and row[0] in known

    return max(tables, key=lambda rows: sum(map(fits, rows)))


def pairs_of(rows: list[list[str]], noun: str, class_names: Sequence[str] | None) -> list[tuple[str, object]]:
    """Return the classes and numbers of a table of two columns, without its heading."""
    if rows and len(rows[0]) == 2 and not _is_number(rows[0][1]) and rows[0][0] not in (class_names or ()):
        rows = rows[1:]
    unlike = next((row for row in rows if len(row) != 2), None)
    if unlike is not None:
        raise ValueError(f"each row must have a class and its {noun}, got {clipped(','.join(unlike), 60)!r}")
    return [(row[0], row[1]) for row in rows]


def class_values(
    pairs: Sequence[tuple[str, object]], noun: str, class_names: Sequence[str] | None, *, positive: bool = False
) -> dict[str, float]:
    """Return the checked numbers of classes, in the order of `class_names`."""
    if not pairs and class_names is None:
        raise ValueError(f"each row must have a class and its {noun}, and there is none")
    check_classes([name for name, _ in pairs], class_names, noun)
    found = {name: read_number(value, f"the {noun} of {name!r}") for name, value in pairs}
    for name, value in found.items():
        if value < 0 or (positive and value == 0):
            raise ValueError(f"the {noun} of {name!r} must be {'above 0' if positive else '0 or more'}, got {value:g}")
    return {name: found[name] for name in class_names or found}


def check_classes(names: Sequence[str], class_names: Sequence[str] | None, noun: str, where: str = "rows") -> None:
    """Refuse names that are given twice, are not classes, or leave out a class."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise ValueError(f"{repeated[0]!r} is given twice in its {where}")
    if class_names is None:
        return
    missing, unknown = sorted(set(class_names) - set(names)), sorted(set(names) - set(class_names))
    if unknown:
        raise ValueError(f"its {where} have unknown classes: {some(unknown)}; the model knows {some(class_names)}")
    if missing:
        raise ValueError(f"its {where} lack {some(missing)}; give a {noun} for every class")


def read_number(value: object, what: str) -> float:
    """Return a cell as a finite number."""
    if not isinstance(value, str | int | float) or isinstance(value, bool) or not _is_number(value):
        raise ValueError(f"{what} must be a number, got {clipped(repr(value), 60)}")
    if not math.isfinite(float(value)):
        raise ValueError(f"{what} must be finite, got {value}")
    if abs(float(value)) > _MOST:
        raise ValueError(f"{what} must be at most {_MOST:g}, got {value}")
    return float(value)


def _text(path: Path | str) -> str:
    try:
        return read_bytes(path, _LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text; save it as CSV in UTF-8") from error


def _json_pairs(text: str, noun: str) -> list[tuple[str, object]]:
    content = json.loads(text, object_pairs_hook=tuple)  # pairs, so that a repeated class is found
    if not isinstance(content, tuple):
        raise ValueError(f"it must hold one object, of classes and the {noun} of each")
    return list(content)


def _is_number(value: str | float) -> bool:
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return "_" not in str(value)  # Python reads 1_5 as 15
