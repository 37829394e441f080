"""The command line: thin verbs, one small file each. Nothing heavy is imported before a verb runs."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from evenhand.cli.compare import compare
from evenhand.cli.config import config
from evenhand.cli.evaluate import evaluate
from evenhand.cli.export import export
from evenhand.cli.inspect import inspect
from evenhand.cli.predict import predict
from evenhand.cli.report import report
from evenhand.cli.reproduce import reproduce
from evenhand.cli.serve import serve
from evenhand.cli.train import train
from evenhand.core.errors import EvenhandError

app = typer.Typer(
    name="evenhand",
    help="Train and judge image classifiers on imbalanced data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(inspect)
app.command()(train)
app.command()(compare)
app.command()(evaluate)
app.command()(predict)
app.command()(export)
app.command()(report)
app.command()(reproduce)
app.command()(serve)
app.add_typer(config, name="config")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evenhand {version('evenhand')}")
        raise typer.Exit


@app.callback()
def _evenhand(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train and judge image classifiers on imbalanced data."""


def main() -> None:
    """Run the command line; what a user can mend is one sentence on stderr and exit code 2."""
    try:
        app()
    except EvenhandError as error:
        typer.echo(f"evenhand: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
