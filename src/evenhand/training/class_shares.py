"""Files of class shares: how frequent each class is where a model will be used."""

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes
from evenhand.core.text import some

_LARGEST = 2**24


def read_shares(path: Path, class_names: Sequence[str]) -> NDArray[np.float64]:
    r"""Read the share of each class, in any unit; return them with a sum of 1, (K,).

    Args:
        path: a `.json` object of classes and shares, or a table of two columns separated by commas, semicolons or tabs.
        class_names: the K classes, in the order of the result.

    Raises:
        EvenhandError: the file cannot be read, or does not have one positive share per class.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.training.class_shares import read_shares
        >>> path = Path(tempfile.mkdtemp()) / "shares.csv"
        >>> _ = path.write_text("cat,30\ndog,10\n")
        >>> read_shares(path, ["dog", "cat"])
        array([0.25, 0.75])
    """
    try:
        text = read_bytes(path, _LARGEST).decode("utf-8-sig")
        pairs = _parse_json(text) if path.suffix.lower() == ".json" else _parse_table(text, class_names)
        repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
        if repeated:
            raise ValueError(f"{repeated[0]!r} is given twice")
    except EvenhandError as error:
        why = str(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read class shares from {path}: {why}") from error
    except (ValueError, IndexError, AttributeError, TypeError, OverflowError, RecursionError, csv.Error) as error:
        raise EvenhandError(f"Cannot read class shares from {path}: {reason(error)}.") from error
    content = dict(pairs)
    missing, unknown = set(class_names) - set(content), set(content) - set(class_names)
    if missing or unknown:
        what = f"lacks {some(sorted(missing))}" if missing else f"has unknown classes: {some(sorted(unknown))}"
        raise EvenhandError(f"{path} must give a share for every class of the model; it {what}.")
    shares = np.array([content[name] for name in class_names])
    for name, share in zip(class_names, shares, strict=True):
        if not 0 < share < np.inf:
            raise EvenhandError(f"The share of every class must be above 0, got {share:g} for {name!r} in {path}.")
    return np.asarray(shares / shares.sum())


def _parse_json(text: str) -> list[tuple[str, float]]:
    content = json.loads(text, object_pairs_hook=list)  # pairs, so that a repeated class is found
    if not isinstance(content, list) or not all(isinstance(each, tuple) for each in content):
        raise ValueError("it must hold one object, of classes and their shares")
    return [(str(name), float(share)) for name, share in content]


def _parse_table(text: str, class_names: Sequence[str]) -> list[tuple[str, float]]:
    tables = [[row for row in csv.reader(io.StringIO(text), delimiter=mark) if row[1:]] for mark in ",;\t"]
    rows = max(tables, key=lambda rows: sum(row[0].strip() in class_names for row in rows))
    if rows:
        try:
            float(rows[0][1])
        except ValueError:
            rows = rows[1:]  # a heading
    return [(row[0].strip(), float(row[1])) for row in rows]
