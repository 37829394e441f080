"""`evenhand config`: show and copy recipes."""

import json
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.help import GroupedCommand
from evenhand.cli.options import RECIPE_NAMES
from evenhand.cli.output import echo, two_examples

config = typer.Typer(
    help="Show the recipes and settings, or copy a recipe.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@config.command(cls=GroupedCommand, epilog=two_examples("evenhand config show", "evenhand config show paper"))
def show(
    recipe: Annotated[str | None, typer.Argument(help=f"{RECIPE_NAMES}.")] = None,
) -> None:
    """Print a recipe; without one, list all recipes and settings."""
    from evenhand.core.text import text_table
    from evenhand.runs.config import RECIPES, read_recipe
    from evenhand.runs.settings import list_settings

    if recipe is not None:
        echo(read_recipe(recipe).rstrip("\n"))
        return
    echo("Recipes, for --recipe:")
    for line in text_table([[name, read_recipe(name).splitlines()[0].lstrip("# ")] for name in RECIPES], left=(0, 1)):
        echo(f"  {line}")
    echo("\nSettings, for --set KEY=VALUE or a YAML file; recipes change some of the defaults shown:")
    for each in list_settings():
        default = each.default if isinstance(each.default, str) else json.dumps(each.default)
        echo(f"  {each.key} = {default}  ({each.allowed})\n      {each.help}")


@config.command(
    cls=GroupedCommand,
    epilog=two_examples("evenhand config copy small mine.yaml", "evenhand config copy paper recipes/long.yaml"),
)
def copy(
    recipe: Annotated[str, typer.Argument(help=f"{RECIPE_NAMES}.")],
    file: Annotated[Path, typer.Argument(help="YAML file to write; must not exist.")],
) -> None:
    """Copy a recipe to a file.

    Change it and use it with evenhand train --config.
    """
    from evenhand.core.errors import EvenhandError
    from evenhand.core.files import cannot_write
    from evenhand.runs.config import read_recipe

    text = read_recipe(recipe)
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as error:
        raise EvenhandError(f"{file} exists; choose another name.") from error
    except OSError as error:
        raise cannot_write(file, error) from error
    echo(f"wrote {file}; use it with evenhand train SOURCE --config {file}")
