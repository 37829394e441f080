"""`evenhand cache`: list and clear the cache."""

from typing import Annotated

import typer

from evenhand.cli.help import GroupedCommand
from evenhand.cli.output import echo, two_examples

cache = typer.Typer(
    help="List the cache with sizes, or clear it.",
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cache.callback(invoke_without_command=True)
def _listing(context: typer.Context) -> None:
    """List the cache with sizes, or clear it."""
    if context.invoked_subcommand is None:
        listing()


@cache.command("list", cls=GroupedCommand, epilog=two_examples("evenhand cache list", "evenhand cache list | tail -1"))
def listing() -> None:
    """List the folders of the cache with their sizes."""
    from evenhand.core.cache import cache_root, list_cache
    from evenhand.core.text import text_table
    from evenhand.runs.kept import readable_size

    parts = list_cache()
    rows = [[part.name, f"{part.files:,} files", readable_size(part.bytes), part.holds] for part in parts]
    rows.append(
        ["all", f"{sum(part.files for part in parts):,} files", readable_size(sum(part.bytes for part in parts)), ""]
    )
    echo(f"{cache_root()}:")
    for line in text_table(rows, left=(0, 3)):
        echo(f"  {line}")


@cache.command(cls=GroupedCommand, epilog=two_examples("evenhand cache clear", "evenhand cache clear pixels data"))
def clear(
    parts: Annotated[
        list[str] | None, typer.Argument(help="Folders to remove; default: pixels, features and tables.")
    ] = None,
) -> None:
    """Remove folders of the cache.

    They are computed or downloaded again when needed.
    """
    from evenhand.core.cache import clear_cache
    from evenhand.runs.kept import readable_size

    removed = clear_cache(parts or None)
    for part in removed:
        echo(f"removed {part.name}: {part.files:,} files, {readable_size(part.bytes)}")
    if not removed:
        echo("nothing to remove")
