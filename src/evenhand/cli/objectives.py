"""`evenhand objectives`: list the parts of objectives."""

from typing import Annotated

import typer

from evenhand.cli.output import cell, echo_json


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
    for kind, of_kind in groupby(parts, key=lambda part: part.kind):
        console.print(cell(f"{kind}: {KINDS[kind]}"), style="bold", soft_wrap=True)
        for part in of_kind:
            console.print(cell(f"  {part.name:<16} {part.help}"), soft_wrap=True)
            for name, text in part.settings.items():
                console.print(cell(f"  {'':<16} {part.name}:{name}=  {text}"), style="dim", soft_wrap=True)
            if part.tuning_grid:
                tried = f"compare --tune also tries {', '.join(part.tuning_grid)}"
                console.print(cell(f"  {'':<16} {tried}"), style="dim", soft_wrap=True)
