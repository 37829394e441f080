"""`evenhand report`: one page about runs or a comparison."""

from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.output import echo


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...|COMPARISON", help="Folders of runs, or that of one comparison.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page; report.html in the folder of the comparison or the run if not given.")
    ] = None,
) -> None:
    """Write one HTML page that needs no network: the verdict, figures, every class, and the pictures it gets wrong."""
    from evenhand.report.page import write_report

    echo(f"report: {write_report(folders, out)}")
