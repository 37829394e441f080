"""The interim analyses of a comparison, in `looks.json`: how much of the 5% was spent, and what was found."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, TypeAdapter, ValidationError

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_json, write_json
from evenhand.core.locks import take_lock
from evenhand.runs.comparison_schemas import LARGEST, ComparisonModel, Difference, first_problem
from evenhand.runs.filenames import INTERIM_ANALYSES

LEDGER_LOCK = ".looks.lock"


class InterimAnalysis(ComparisonModel):
    """One analysis of a comparison that may be continued with more seeds: its alpha, and what it found."""

    seeds: int = Field(ge=1)
    level: float = Field(ge=0, le=1)
    """The alpha of all its tests together."""
    margin: float = Field(ge=0, le=1)
    picked: list[str]
    """The objectives that were compared, with the settings that were picked for them."""
    differences: list[Difference]
    exploratory: bool = False
    """Made after the 5% had been spent: it claims nothing."""
    costs: str = ""
    """Which costs were tested too, with half of the alpha; empty: none."""


@contextlib.contextmanager
def locked_ledger(folder: Path) -> Iterator[None]:
    """Hold the lock of the interim analyses of a folder, from reading what was spent to writing what is."""
    lock = take_lock(folder / LEDGER_LOCK, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()  # the file stays: another process may wait for it


def read_ledger(folder: Path) -> dict[str, list[InterimAnalysis]]:
    """Read all interim analyses in a folder, by comparison; they share one 5%."""
    path = folder / INTERIM_ANALYSES
    families = read_json(path, LARGEST, within=folder) if os.path.lexists(path) else {}
    return {family: read_interim_analyses(folder, family) for family in families}


def read_interim_analyses(folder: Path, family: str) -> list[InterimAnalysis]:
    """Read the interim analyses of one comparison in a folder; none where there is no file.

    Args:
        folder: of the comparison.
        family: which comparison: a folder may hold several.

    Raises:
        EvenhandError: the file cannot be read.
    """
    path = folder / INTERIM_ANALYSES
    if not os.path.lexists(path):
        return []
    try:
        content = json.dumps(read_json(path, LARGEST, within=folder).get(family, []))
        return TypeAdapter(list[InterimAnalysis]).validate_json(content)
    except (EvenhandError, ValidationError) as error:
        why = first_problem(error) if isinstance(error, ValidationError) else reason(error)
        raise EvenhandError(
            f"Cannot read {path} ({why.removeprefix(f'Cannot read {path}: ')}): the alpha spent so far is unknown; "
            "restore the file, or remove it and take further results as exploratory."
        ) from error


def add_interim_analysis(folder: Path, family: str, analysis: InterimAnalysis) -> None:
    """Add an interim analysis to the file.

    Args:
        folder: of the comparison.
        family: which comparison: a folder may hold several.
        analysis: what it found, and the alpha it spent.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.interim_analyses import InterimAnalysis, add_interim_analysis, read_interim_analyses
        >>> folder = Path(tempfile.mkdtemp())
        >>> first = InterimAnalysis(seeds=3, level=0.01, margin=0.01, picked=["ce", "cce"], differences=[])
        >>> add_interim_analysis(folder, "digits", first)
        >>> read_interim_analyses(folder, "digits") == [first]
        True
    """
    path = folder / INTERIM_ANALYSES
    content = read_json(path, LARGEST, within=folder) if os.path.lexists(path) else {}
    added = {**content, family: [*content.get(family, []), analysis.model_dump(mode="json")]}
    write_json(path, added, within=folder)
