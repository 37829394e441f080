"""`evenhand report`: write an HTML report."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.output import echo


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...|COMPARISON", help="Folders of runs, or of one comparison.")
    ],
    out: Annotated[Path | None, typer.Option(help="File to write; default: report.html in the folder.")] = None,
) -> None:
    """Write a self-contained HTML report."""
    from evenhand.report.page import write_report

    echo(f"report: {write_report(folders, out)}")
