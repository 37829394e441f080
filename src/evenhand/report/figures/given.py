"""What figures are drawn from: predictions, runs or a comparison."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.report._report_data import ReportData, read_report_data
from evenhand.report.figures.tables import Runs
from evenhand.runs.comparison import Comparison
from evenhand.runs.run import Run

Folder: TypeAlias = os.PathLike[str] | str
"""A run, or the folder of a run or comparison."""
One: TypeAlias = Predictions | Folder | Sequence[Predictions | Folder]
"""The predictions or runs of one objective."""
Drawn: TypeAlias = Runs | Mapping[str, One] | One | Comparison
"""Predictions by objective, predictions, runs, folders of runs, or a comparison or its folder."""


def predictions_of(given: Drawn) -> Runs:
    """Return the predictions of each objective, one per seed.

    Args:
        given: predictions; runs or folders of runs, named by what differs between them; a comparison or its folder; a
            sequence of runs; or a mapping from a name to the predictions or runs of each seed.

    Raises:
        EvenhandError: a folder is neither a run nor a comparison, or a run is not finished.

    Example:
        >>> import tempfile
        >>> import evenhand
        >>> from evenhand.report.figures.given import predictions_of
        >>> run = evenhand.train("digits", objective="cce", epochs=1, out=f"{tempfile.mkdtemp()}/run")
        >>> {name: len(seeds) for name, seeds in predictions_of(run).items()}
        {'cce': 1}
    """
    if isinstance(given, Mapping):
        return {name: seeds_of(name, each) for name, each in given.items()}
    if isinstance(given, Predictions):
        return {"model": [given]}
    several = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    if several and all(isinstance(each, Predictions) for each in given):  # type: ignore[union-attr]
        return {"model": list(given)}  # type: ignore[arg-type]
    data = report_data_of(given)  # type: ignore[arg-type]
    if data.unfinished:
        raise EvenhandError(f"{data.unfinished[0].path} is not finished; continue it first.")
    return data.predictions()


def histories_of(given: object) -> dict[str, list[Sequence[Mapping[str, float]]]]:
    """Return the rows of the history of each objective, one list per seed; a mapping may hold rows or runs."""
    if isinstance(given, Mapping):
        return {
            name: [rows for each in _listed(seeds) for rows in _histories(name, each)] for name, seeds in given.items()
        }
    return {name: [run.history for run in seeds] for name, seeds in runs_of(given).items()}


def runs_of(given: object) -> dict[str, list[Run]]:
    """Return the runs of each objective, one per seed; unfinished ones if none is finished.

    Args:
        given: runs or folders of runs; a comparison or its folder; or a mapping from a name to the runs of each seed.

    Raises:
        EvenhandError: predictions are given, which are less than a run, or a folder is neither a run nor a comparison.
    """
    if isinstance(given, Mapping):
        return {name: [run for each in _listed(seeds) for run in _seeds(name, each)] for name, seeds in given.items()}
    if any(isinstance(each, Predictions) for each in _listed(given)):
        raise EvenhandError("This figure draws more than predictions hold; give the run or its folder.")
    return report_data_of(given).trained()  # type: ignore[arg-type]


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Predictions) else [given]


def _histories(name: str, given: Any) -> list[Sequence[Mapping[str, float]]]:
    rows = isinstance(given, Sequence) and not isinstance(given, str)
    return [given] if rows else [run.history for run in _seeds(name, given)]


def _seeds(name: str, given: object) -> list[Run]:
    found = runs_of(given)
    if len(found) != 1:
        raise EvenhandError(f"{name!r} is a comparison of several objectives; give it alone.")
    return next(iter(found.values()))


def report_data_of(given: Folder | Sequence[Folder] | Comparison) -> ReportData:
    """Read runs or a comparison."""
    if isinstance(given, Comparison):
        finished: dict[str, list[Run]] = {name: [] for name in given.objectives}
        for run in given.runs:
            if run.objective in finished:
                finished[run.objective].append(Run(run.folder))
        return ReportData(finished, [], given)
    folders = _listed(given)
    for folder in folders:
        if not isinstance(folder, str | os.PathLike):
            raise EvenhandError(
                f"Figures are drawn from predictions, runs or a comparison, not from {type(folder).__name__}."
            )
    return read_report_data([Path(folder) for folder in folders])


def seeds_of(name: str, given: One) -> list[Predictions]:
    """Return the predictions of one objective, one per seed."""
    found: list[Predictions] = []
    for each in _listed(given):
        read = {name: [each]} if isinstance(each, Predictions) else predictions_of(each)
        if len(read) != 1:
            raise EvenhandError(f"{name!r} is a comparison of several objectives; give it alone.")
        found += next(iter(read.values()))
    return found
