"""`evenhand config`: the recipes, to read and to copy."""

from pathlib import Path
from typing import Annotated

import typer

config = typer.Typer(
    help="Show the recipes, or copy one to change it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@config.command()
def show(
    recipe: Annotated[str | None, typer.Argument(help="small, paper or road-marking; all are listed if none.")] = None,
) -> None:
    """Print a recipe, or list the recipes."""
    from evenhand.runs.config import RECIPES, read_recipe

    if recipe is not None:
        typer.echo(read_recipe(recipe).rstrip("\n"))
        return
    for name in RECIPES:
        first = read_recipe(name).splitlines()[0]
        typer.echo(f"{name:<{max(map(len, RECIPES))}}  {first.lstrip('# ')}")


@config.command()
def copy(
    recipe: Annotated[str, typer.Argument(help="small, paper or road-marking.")],
    file: Annotated[Path, typer.Argument(help="The YAML file to write; it must not exist.")],
) -> None:
    """Write a recipe to a file of your own, for evenhand train --config FILE."""
    from evenhand.core.errors import EvenhandError
    from evenhand.runs.config import read_recipe

    text = read_recipe(recipe)
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as error:
        raise EvenhandError(f"{file} exists and is not overwritten; choose another name.") from error
    except OSError as error:
        raise EvenhandError(f"Cannot write {file}: {error.strerror}; choose another place.") from error
    typer.echo(f"{file}: change it, then evenhand train SOURCE --config {file}")
