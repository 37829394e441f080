"""The command line: one small file per command. torch is not imported before a command runs."""

import io
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from evenhand.cli.cache import cache
from evenhand.cli.compare import compare
from evenhand.cli.config import config
from evenhand.cli.doctor import doctor
from evenhand.cli.evaluate import evaluate
from evenhand.cli.export import export
from evenhand.cli.guide import guide
from evenhand.cli.help import GroupedCommand, ShortRefusals
from evenhand.cli.inspect import inspect
from evenhand.cli.objectives import objectives
from evenhand.cli.output import echo, remark, two_examples
from evenhand.cli.predict import predict
from evenhand.cli.report import report
from evenhand.cli.reproduce import reproduce
from evenhand.cli.serve import serve
from evenhand.cli.train import train
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.memory import require_memory

app = typer.Typer(
    name="evenhand",
    cls=ShortRefusals,
    help="Train and evaluate image classifiers on imbalanced data.",
    epilog="To begin: evenhand compare photos/ (a folder with one folder per class), or evenhand guide.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
EXAMPLES: dict[Callable[..., None], tuple[str, str]] = {
    inspect: ("evenhand inspect photos/", "evenhand inspect digits --imbalance exp:20 --figure classes.png"),
    train: ("evenhand train photos/", "evenhand train cifar10 --imbalance exp:100 --objective balanced-softmax+cce"),
    compare: ("evenhand compare photos/", "evenhand compare digits --imbalance exp:20 --objectives ce,cce --seeds 3"),
    objectives: ("evenhand objectives", "evenhand objectives --json"),
    evaluate: ("evenhand evaluate runs/first", "evenhand evaluate runs/first --adjust auto"),
    predict: ("evenhand predict runs/photos holiday.jpg", "evenhand predict runs/photos inbox/ --out inbox.csv"),
    export: ("evenhand export runs/photos --onnx photos.onnx", "evenhand export photos.safetensors --onnx photos.onnx"),
    report: ("evenhand report runs/photos", "evenhand report runs/a runs/b --out both.html"),
    reproduce: ("evenhand reproduce", "evenhand reproduce table-cifar10 --dry-run"),
    guide: ("evenhand guide", "evenhand guide objectives"),
    doctor: ("evenhand doctor", "evenhand doctor --json"),
    serve: ("evenhand serve", "evenhand serve runs/ --port 9000"),
}
"""Two per command, shown at the end of its help."""


for _command, _examples in EXAMPLES.items():
    app.command(epilog=two_examples(*_examples), cls=GroupedCommand)(_command)
app.add_typer(
    config, name="config", epilog=two_examples("evenhand config show", "evenhand config copy small mine.yaml")
)
app.add_typer(cache, name="cache", epilog=two_examples("evenhand cache", "evenhand cache clear pixels"))


def _show_version(given: bool) -> None:
    if given:
        echo(f"evenhand {version('evenhand')}")
        raise typer.Exit


@app.callback()
def _evenhand(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train and evaluate image classifiers on imbalanced data."""
    require_memory()


def main() -> None:
    """Run the command line; an error that the user can fix is one sentence on stderr and exit code 2."""
    _prepare_streams()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # a full disk is noticed here, not by Python when it ends
    except EvenhandError as error:
        remark(str(error))
        sys.exit(2)
    except MemoryError:
        remark("Out of memory; close other programs, raise the memory limit, or lower --jobs.")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        about = f"Cannot use {error.filename}: " if error.filename else ""
        remark(f"{about}{reason(error)}.")
        sys.exit(2)


def _prepare_streams() -> None:
    """Write nowhere where a stream is closed, and a ? where its encoding lacks a letter, instead of an exception."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        elif isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
