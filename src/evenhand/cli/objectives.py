"""`evenhand objectives`: list the parts of objectives."""

from textwrap import wrap
from typing import Annotated, Any

import typer

from evenhand.cli.output import cell, echo_json

INDENT = 19
"""Columns before the descriptions."""
WHOLE: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}


def objectives(as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """List losses and other parts of objectives.

    An objective is one loss (default ce) and any number of other parts, joined by +.
    """
    from dataclasses import asdict
    from itertools import groupby

    from rich.console import Console

    from evenhand.objectives.part import KINDS
    from evenhand.objectives.registry import describe_objectives

    parts = describe_objectives()
    if as_json:
        echo_json([asdict(part) for part in parts], indent=2)
        return
    console = Console(highlight=False)

    def show(text: str, first: str = "", style: str = "") -> None:
        more = " " * (INDENT + 2 * (style == "dim")) * bool(first)
        for line in wrap(text, min(console.width, 100), initial_indent=first, subsequent_indent=more, **WHOLE):
            console.print(cell(line), style=style, soft_wrap=True)

    show("An objective is one loss (default ce) and any number of other parts, joined by +, each with its settings:")
    show("evenhand compare photos/ --objectives ce,balanced-softmax,ce+cosine:scale=20+post-hoc", "  ")
    for kind, of_kind in groupby(parts, key=lambda part: part.kind):
        show(f"{kind}: {KINDS[kind]}", style="bold")
        for part in of_kind:
            show(part.help, f"  {part.name:<{INDENT - 2}}")
            for name, text in part.settings.items():
                show(f"{part.name}:{name}=  {text}", " " * INDENT, "dim")
            if part.tuning_grid:
                show(f"compare --tune also tries {', '.join(part.tuning_grid)}", " " * INDENT, "dim")
    show("H: cross entropy, C: complement entropy, K: number of classes (evenhand guide loss)")
