"""Files of costs: what each error costs, by class names."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.class_tables import check_classes, class_values, pairs_of, read_cells, read_number, reading
from evenhand.metrics.costs import cost_matrix


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
    with reading(path, "costs"):
        rows = read_cells(path, class_names)
        if max(map(len, rows), default=0) > 2:
            return cost_matrix(_matrix(rows, class_names))
        return cost_matrix(list(class_values(pairs_of(rows, "cost", class_names), "cost", class_names).values()))


def _matrix(rows: list[list[str]], class_names: Sequence[str]) -> NDArray[np.float64]:
    if len(rows[0]) + 1 == max(map(len, rows)):  # a heading without a name for the true classes
        rows = [["", *rows[0]], *rows[1:]]
    predicted, true = rows[0][1:], [row[0] for row in rows[1:]]
    if rows[0][0].lower().startswith("pred"):  # as pandas names the rows of a table
        raise ValueError(
            f"its rows must be true classes and its columns predicted ones, but its first cell is {rows[0][0]!r}; "
            "transpose it, or name that cell true"
        )
    if len(set(predicted) & set(class_names)) < 2:
        raise ValueError(f"its first row must name the predicted classes, got {','.join(rows[0])!r}")
    check_classes(predicted, class_names, "cost", "columns")
    check_classes(true, class_names, "cost")
    found = np.zeros((len(class_names), len(class_names)))
    number = {name: k for k, name in enumerate(class_names)}
    for row in rows[1:]:
        if len(row) != len(rows[0]):
            raise ValueError(f"the row of {row[0]!r} has {len(row) - 1} costs, but there are {len(predicted)} columns")
        for name, cell in zip(predicted, row[1:], strict=True):
            cost = read_number(cell, f"the cost of {row[0]!r} predicted as {name!r}")
            if cost < 0 and name != row[0]:
                raise ValueError(f"the cost of an error must be 0 or more, got {cost:g} for {row[0]!r} as {name!r}")
            found[number[row[0]], number[name]] = cost
    return found
