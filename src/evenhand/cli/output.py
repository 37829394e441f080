"""What verbs say: nothing that a terminal would obey, and a first line before anything slow."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from evenhand.core.text import json_line, visible

if TYPE_CHECKING:
    from rich.text import Text

# So many rows of a table are listed whole; of more, the first and the last.
MOST_LISTED, ENDS = 40, 12
COLOURS = {"many": "blue", "medium": "green", "few": "red"}

GUIDE = "Which objective to try: docs/which-objective.md; `evenhand objectives` lists the parts."
"""A line for those who have rare classes."""

_Row = TypeVar("_Row")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines; letters that would steer a terminal are spelled out."""
    typer.echo(visible(text, keep="\n"), err=err)


def remark(text: str) -> None:
    """Print a line beside the results, on stderr."""
    echo(f"evenhand: {text}", err=True)


def tell_which_model(run: Path, *, ensemble: bool) -> None:
    """Say which model of a comparison is taken; of anything else there is only one."""
    from evenhand.runs.comparison import is_comparison, read_recommended

    if not is_comparison(run):
        return
    best = read_recommended(run)
    if ensemble:
        remark(f"{best.objective}, which the comparison recommends: all {len(best.runs)} seeds, averaged")
    else:
        remark(f"{best.objective}, which the comparison recommends: {best.runs[0].path.name}")


def echo_json(content: object, *, indent: int | None = None) -> None:
    """Print JSON in which everything can be read as it stands."""
    typer.echo(json_line(content, indent=indent))


def cell(text: str, style: str = "") -> "Text":
    """Return a cell of a rich table, or a line, that is neither markup nor an order to the terminal."""
    from rich.text import Text

    return Text(visible(text), style=style)


def begin(text: str) -> None:
    """Say what is begun, before anything that takes time, and pass on what the package says while it works."""
    logger = logging.getLogger("evenhand")
    if not any(isinstance(handler, _Remarks) for handler in logger.handlers):
        logger.addHandler(_Remarks())
    logger.setLevel(logging.INFO)
    remark(f"{text} ...")


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        remark(record.getMessage())


def ends_of(rows: Sequence[_Row]) -> tuple[Sequence[_Row], int, Sequence[_Row]]:
    """Return the rows to list first, how many are left out after them, and the rows to list last."""
    if len(rows) <= MOST_LISTED:
        return rows, 0, []
    return rows[:ENDS], len(rows) - 2 * ENDS, rows[-ENDS:]


def two_examples(first: str, second: str) -> str:
    """Return the end of a help text."""
    return f"Examples:\n\n\b\n  {first}\n  {second}"
