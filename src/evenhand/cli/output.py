"""Output of the commands: control characters are escaped, and a first line comes before anything slow."""

import logging
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from evenhand.core.text import clipped, json_line, visible

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

# Tables of up to so many rows are listed in full; of longer ones, the first and the last rows.
MOST_LISTED, ENDS = 40, 12
COLOURS = {"many": "blue", "medium": "green", "few": "red"}

GUIDE = "Which objective to try: `evenhand guide objectives`; `evenhand objectives` lists the parts."
"""A pointer to the documentation."""

NO_SOURCE = "the built-in digits, as no source is given"
"""What a command that was given no source works on."""

LONGEST_LINE, LONGEST_WORD = 600, 200
"""Characters of a line on stderr, and of one word in it, such as a path."""


def echo(text: str = "", *, err: bool = False) -> None:
    """Print lines, with control characters escaped."""
    typer.echo(visible(text, keep="\n"), err=err)


def remark(text: str) -> None:
    """Print a line on stderr, shortened."""
    escaped = visible(text, keep="\n")  # first, since it becomes longer
    echo(f"evenhand: {shortened(escaped)}", err=True)


def shortened(text: str) -> str:
    """Shorten long words and lines, which quote what was given, to their beginning and end."""
    text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", lambda word: clipped(word[0], LONGEST_WORD), text)
    return clipped(text, LONGEST_LINE)


def show_chosen_model(run: Path, *, ensemble: bool, prior: str | None = None) -> None:
    """Print which model of a comparison is used, and the class shares or the adjustment that are applied."""
    from evenhand.runs.comparison import is_comparison, read_recommended
    from evenhand.runs.run import Run

    if prior is not None:
        remark(f"probabilities are for the class shares: {prior}")
    if not is_comparison(run):
        adjustment = Run(run).adjustment if run.is_dir() else None
        if adjustment is not None and prior is None:
            remark(f"applying the run's adjustment: {adjustment.describe()}")
        return
    best = read_recommended(run)
    used = f"mean of {len(best.runs)} seeds" if ensemble else best.runs[0].path.name
    sure = "" if best.certainty == "shown" else " (undecided)"
    remark(f"using the recommended objective {best.objective}{sure}: {used}")


def show_kept(folder: Path) -> None:
    """Print what a command leaves on disk: its folder, and the cache."""
    from evenhand.core.cache import cache_root, list_cache
    from evenhand.runs.kept import describe_kept, readable_size

    cached = sum(part.bytes for part in list_cache())
    elsewhere = f"; {readable_size(cached)} in {cache_root()} (evenhand cache)" if cached else ""
    echo(f"kept: {describe_kept(folder)}{elsewhere}")


def echo_json(content: object, *, indent: int | None = None) -> None:
    """Print JSON, with control characters escaped."""
    typer.echo(json_line(content, indent=indent))


def cell(text: str, style: str = "") -> "Text":
    """Return text for rich that is not parsed as markup, with control characters escaped."""
    from rich.text import Text

    return Text(visible(text), style=style)


def named(given: object) -> str:
    """Return what was given as the first line of a command names it."""
    return clipped(visible(str(given)), 100)


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


@contextmanager
def exiting_on_signals(stopped: Callable[[], None]) -> Iterator[None]:
    """End the block on SIGINT and SIGTERM: call `stopped`, and exit with code 130 or 143."""
    received = signal.SIGINT

    def interrupt(number: int, _: FrameType | None) -> None:
        nonlocal received
        received = signal.Signals(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except KeyboardInterrupt:
        stopped()
        sys.exit(128 + received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def percent(value: float | None) -> str:
    """Return a fraction in percent; empty for None."""
    return "" if value is None else f"{value:.1%}"


def interval(ends: Sequence[float] | None) -> "RenderableType":
    """Return the ends of an interval of fractions in percent, dimmed; empty for None."""
    return cell("" if ends is None else f"{ends[0]:.1%} to {ends[1]:.1%}", "dim")


def class_table(columns: Sequence[str], rows: Sequence[Sequence["RenderableType"]]) -> "Table":
    """Return a table with one row per class; of a long one, the first and the last rows."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("class", overflow="fold", max_width=40)
    for column in columns:
        table.add_column(column, justify="left" if column in ("", "95%", "shots") else "right", no_wrap=True)
    hidden = len(rows) - 2 * ENDS if len(rows) > MOST_LISTED else 0
    for position, row in enumerate([*rows[:ENDS], *rows[-ENDS:]] if hidden else rows):
        if hidden and position == ENDS:
            table.add_row(cell(f"... {hidden} more (--json lists all)", "dim"))
        table.add_row(*row)
    return table


def two_examples(first: str, second: str) -> str:
    """Return the epilog of a help text."""
    return f"Examples:\n\n\b\n  {first}\n  {second}"
