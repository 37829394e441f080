"""`history.csv`: a row an epoch."""

import csv
from collections.abc import Sequence
from pathlib import Path

from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing


def write_history(path: Path, rows: Sequence[dict[str, float]]) -> None:
    """Write all epochs anew, with every digit."""
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_history(path: Path) -> list[dict[str, float]]:
    """Read what `write_history` wrote."""
    try:
        with path.open(newline="") as file:
            return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise EvenhandError(f"Cannot read the history in {path}: {error}.") from error
