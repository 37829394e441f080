"""Class weights from a file: read once, when a config is made, and kept in the config under the classes' names."""

import csv
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes
from evenhand.core.text import some
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.objectives.weights import ClassWeights

_LARGEST = 2**24


def weights_file(objective: ObjectiveSpec) -> str | None:
    """Return the file of class weights that an objective names; None: it names none.

    Example:
        >>> from evenhand.objectives import ObjectiveSpec
        >>> from evenhand.runs.class_weights import weights_file
        >>> weights_file(ObjectiveSpec("ce+weights:file=weights.csv"))
        'weights.csv'
    """
    return next((part.file for part in objective.parts if isinstance(part, ClassWeights)), None)


def read_class_weights(path: Path | str) -> dict[str, float]:
    r"""Read a weight per class: a table of two columns, separated by commas, semicolons or tabs.

    Raises:
        EvenhandError: the file cannot be read, names a class twice, or a weight is not above 0 and finite.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.class_weights import read_class_weights
        >>> path = Path(tempfile.mkdtemp()) / "weights.csv"
        >>> _ = path.write_text("class,weight\ncat,1\nlynx,20\n")
        >>> read_class_weights(path)
        {'cat': 1.0, 'lynx': 20.0}
    """
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8-sig")
        tables = [[row for row in csv.reader(io.StringIO(text), delimiter=mark) if any(row)] for mark in ",;\t"]
        rows = max(tables, key=lambda rows: sum(len(row) == 2 and _number(row[1]) is not None for row in rows))
        if rows and len(rows[0]) == 2 and _number(rows[0][1]) is None:
            rows = rows[1:]  # a heading
        if not rows or any(len(row) != 2 for row in rows):
            raise ValueError("each row must have a class and its weight")
        weights = {row[0].strip(): _number(row[1]) for row in rows}
        for row in rows:
            value = weights[row[0].strip()]
            if value is None or not 0 < value < math.inf:
                raise ValueError(f"a weight must be above 0 and finite, got {row[1].strip()!r} for {row[0].strip()!r}")
        repeated = [name for name, times in Counter(row[0].strip() for row in rows).items() if times > 1]
        if repeated:
            raise ValueError(f"{repeated[0]!r} is given twice")
    except EvenhandError as error:
        why = str(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read class weights from {path}: {why}") from error
    except (ValueError, csv.Error) as error:
        raise EvenhandError(f"Cannot read class weights from {path}: {reason(error)}.") from error
    return {name: value for name, value in weights.items() if value is not None}


def weights_in_order(weights: Mapping[str, float] | None, class_names: Sequence[str]) -> tuple[float, ...] | None:
    """Return the weights of these classes in their order; None: there are none.

    Raises:
        EvenhandError: the weights are of other classes.
    """
    if weights is None:
        return None
    unknown, missing = sorted(set(weights) - set(class_names)), sorted(set(class_names) - set(weights))
    if unknown or missing:
        what = f"has unknown classes: {some(unknown)}" if unknown else f"lacks {some(missing)}"
        raise EvenhandError(f"The file of class weights {what}; give a weight for each of {some(class_names)}.")
    return tuple(weights[name] for name in class_names)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
