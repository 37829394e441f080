"""Files of costs: what each error costs, by class names."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes
from evenhand.core.text import some
from evenhand.metrics.costs import cost_matrix

_LARGEST = 2**26


def read_costs(path: Path | str, class_names: Sequence[str]) -> NDArray[np.float64]:
    r"""Read the cost of each error; return them as a matrix of true and predicted classes, (K, K).

    Args:
        path: a table separated by commas, semicolons or tabs. Two columns: a class and the cost of missing it. More: a
            heading of predicted classes, and rows of a true class with the cost of each prediction.
        class_names: the K classes, in the order of the result.

    Raises:
        EvenhandError: the file cannot be read, names other classes, or a cost is not finite or negative.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.training.cost_files import read_costs
        >>> path = Path(tempfile.mkdtemp()) / "costs.csv"
        >>> _ = path.write_text("true,cat,lynx\nlynx,20,0\ncat,0,1\n")
        >>> read_costs(path, ["cat", "lynx"])
        array([[ 0.,  1.],
               [20.,  0.]])
    """
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8-sig")
        rows = _rows(text, class_names)
        is_matrix = bool(rows) and max(map(len, rows)) > 2
        costs = _matrix(rows, class_names) if is_matrix else _per_class(rows, class_names)
        return cost_matrix(costs)
    except EvenhandError as error:
        why = str(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read costs from {path}: {why}") from error
    except (ValueError, csv.Error) as error:
        raise EvenhandError(f"Cannot read costs from {path}: {reason(error).rstrip('.')}.") from error


def _rows(text: str, class_names: Sequence[str]) -> list[list[str]]:
    """Return the cells of a table, with the separator by which most classes are found."""
    tables = [
        [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text), delimiter=mark) if any(row)]
        for mark in ",;\t"
    ]
    known = set(class_names)
    return max(tables, key=lambda rows: sum(bool(row[1:]) and row[0] in known for row in rows))


def _per_class(rows: list[list[str]], class_names: Sequence[str]) -> list[float]:
    if any(len(row) != 2 for row in rows):
        raise ValueError("each row must have a class and its cost")
    if rows and rows[0][0] not in class_names and not _is_number(rows[0][1]):
        rows = rows[1:]  # a heading
    _check_names([row[0] for row in rows], class_names, "rows")
    costs = {row[0]: _cost(row[1], row[0]) for row in rows}
    for name, cost in costs.items():
        if cost < 0:
            raise ValueError(f"the cost of missing a class must be 0 or more, got {cost:g} for {name!r}")
    return [costs[name] for name in class_names]


def _matrix(rows: list[list[str]], class_names: Sequence[str]) -> NDArray[np.float64]:
    predicted, true = rows[0][1:], [row[0] for row in rows[1:]]
    _check_names(predicted, class_names, "columns")
    _check_names(true, class_names, "rows")
    found = np.zeros((len(class_names), len(class_names)))
    number = {name: k for k, name in enumerate(class_names)}
    for row in rows[1:]:
        if len(row) != len(rows[0]):
            raise ValueError(f"the row of {row[0]!r} has {len(row) - 1} costs, but there are {len(predicted)} columns")
        for name, cell in zip(predicted, row[1:], strict=True):
            cost = _cost(cell, f"{row[0]} predicted as {name}")
            if cost < 0 and name != row[0]:
                raise ValueError(f"the cost of an error must be 0 or more, got {cost:g} for {row[0]!r} as {name!r}")
            found[number[row[0]], number[name]] = cost
    return found


def _check_names(names: Sequence[str], class_names: Sequence[str], where: str) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    missing, unknown = sorted(set(class_names) - set(names)), sorted(set(names) - set(class_names))
    if repeated:
        raise ValueError(f"{repeated[0]!r} is given twice in its {where}")
    if unknown:
        raise ValueError(f"its {where} have unknown classes: {some(unknown)}; the model knows {some(class_names)}")
    if missing:
        raise ValueError(f"its {where} lack {some(missing)}; give a cost for every class")


def _cost(text: str, what: str) -> float:
    if not _is_number(text):
        raise ValueError(f"the cost of {what} must be a number, got {text!r}")
    if not np.isfinite(float(text)):
        raise ValueError(f"the cost of {what} must be finite, got {text}")
    return float(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
