"""Help of commands with many options: grouped by panel, in plain text. Wrong options are quoted in short."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from evenhand.cli.output import shortened
from evenhand.core.text import visible

SECTIONS = {
    "data": "Data",
    "augmentation": "Data",
    "model": "Network",
    "start": "Network",
    "compute": "Machine",
}
"""The panel of an option, by the section of the setting that it sets; settings outside sections are of the training."""
TRAINING = "Training"
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer exports only this subclass of it."""
OWN = "Options"
"""The panel of the options that set nothing of a run."""


def panel(key: str) -> str:
    """Return the panel of the option that sets a setting.

    Example:
        >>> from evenhand.cli.help import panel
        >>> panel("data.imbalance"), panel("epochs")
        ('Data', 'Training')
    """
    section, dot, _ = key.partition(".")
    return SECTIONS.get(section, TRAINING) if dot else TRAINING


class GroupedCommand(TyperCommand):
    """A command whose help lists arguments, then its own options, then those of a run by panel.

    Arguments are in capitals, optional ones in brackets, with every version of Typer.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name in its usage."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(_name(each) if each.required else f"[{_name(each)}]" for each in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one list per panel."""
        order = [OWN, TRAINING, *dict.fromkeys(SECTIONS.values())]

        def place(parameter: Any) -> int:
            if parameter.param_type_name == "argument":
                return -1
            return order.index(getattr(parameter, "rich_help_panel", None) or OWN)

        for where, parameters in groupby(sorted(self.get_params(ctx), key=place), key=place):
            rows = [row for parameter in parameters if (row := _row(parameter, ctx))]
            if rows:
                with formatter.section("Arguments" if where < 0 else order[where]):
                    formatter.write_dl(rows)


def _name(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper()
    return f"{name}..." if argument.nargs == -1 and "..." not in name else name


def _row(parameter: Any, ctx: Any) -> tuple[str, str] | None:
    """Return name and help of a parameter, without the range of a number and without [required]."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None
    name, text = record
    text = re.sub(r"(; |\s+\[)?(required|[\d.]*[<=]*x[<>=]+[\d.]+)\]$", lambda found: "]" * (found[1] == "; "), text)
    return _name(parameter) if parameter.param_type_name == "argument" else name.replace(" range>", ">"), text


class ShortRefusals(TyperGroup):
    """Commands whose wrong arguments are quoted in short, and without control characters."""

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the options before the command."""
        with _short_refusals():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Parse the rest and run the command."""
        with _short_refusals():
            return super().invoke(ctx)


@contextmanager
def _short_refusals() -> Iterator[None]:
    try:
        yield
    except _USAGE_ERROR as error:
        error.message = shortened(visible(str(error.message)))  # type: ignore[attr-defined]
        raise
