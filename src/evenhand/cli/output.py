"""Output of the commands: control characters are escaped, and a first line comes before anything slow."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from evenhand.core.text import json_line, visible

if TYPE_CHECKING:
    from rich.text import Text

# Tables of up to so many rows are listed in full; of longer ones, the first and the last rows.
MOST_LISTED, ENDS = 40, 12
COLOURS = {"many": "blue", "medium": "green", "few": "red"}

GUIDE = "Which objective to try: docs/which-objective.md; `evenhand objectives` lists the parts."
"""A pointer to the documentation."""

_Row = TypeVar("_Row")


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, with control characters escaped."""
    typer.echo(visible(text, keep="\n"), err=err)


def remark(text: str) -> None:
    """Print a line on stderr."""
    echo(f"evenhand: {text}", err=True)


def show_chosen_model(run: Path, *, ensemble: bool) -> None:
    """Print which model of a comparison is used; a run has only one."""
    from evenhand.runs.comparison import is_comparison, read_recommended

    if not is_comparison(run):
        return
    best = read_recommended(run)
    if ensemble:
        remark(f"using the recommended objective {best.objective}: mean of {len(best.runs)} seeds")
    else:
        remark(f"using the recommended objective {best.objective}: {best.runs[0].path.name}")


def echo_json(content: object, *, indent: int | None = None) -> None:
    """Print JSON, with control characters escaped."""
    typer.echo(json_line(content, indent=indent))


def cell(text: str, style: str = "") -> "Text":
    """Return text for rich that is not parsed as markup, with control characters escaped."""
    from rich.text import Text

    return Text(visible(text), style=style)


def begin(text: str) -> None:
    """Print what is started, before anything slow, and show the package's log from then on."""
    logger = logging.getLogger("evenhand")
    if not any(isinstance(handler, _Remarks) for handler in logger.handlers):
        logger.addHandler(_Remarks())
    logger.setLevel(logging.INFO)
    remark(f"{text} ...")


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        remark(record.getMessage())


def ends_of(rows: Sequence[_Row]) -> tuple[Sequence[_Row], int, Sequence[_Row]]:
    """Return the first rows of a long table, the number of rows left out, and the last rows."""
    if len(rows) <= MOST_LISTED:
        return rows, 0, []
    return rows[:ENDS], len(rows) - 2 * ENDS, rows[-ENDS:]


def two_examples(first: str, second: str) -> str:
    """Return the epilog of a help text."""
    return f"Examples:\n\n\b\n  {first}\n  {second}"
