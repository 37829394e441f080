"""`evenhand guide`: the pages of the guide, which come with the package."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from evenhand.cli.output import echo
from evenhand.core.errors import EvenhandError


def guide_folder() -> Path:
    """Return the folder of the guide: in an installed package, else in the source tree."""
    package = Path(__file__).parents[1]
    return next(
        (folder for folder in (package / "guide", package.parents[1] / "docs" / "guide") if folder.is_dir()),
        package / "guide",
    )


def title(page: Path) -> str:
    """Return the first heading of a page."""
    return page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def guide(
    topic: Annotated[str | None, typer.Argument(help="Page to show; none: list them.")] = None,
) -> None:
    """Show the guide in the terminal."""
    pages = {page.stem: page for page in sorted(guide_folder().glob("*.md"))}
    if topic is None:
        width = max(map(len, pages), default=0)
        for name, page in pages.items():
            echo(f"{name:<{width}}  {title(page)}")
        echo("\nTo read one: evenhand guide TOPIC")
        return
    if topic not in pages:
        raise EvenhandError(f"The guide has no topic {topic!r}; it has {', '.join(pages)}.")
    text = re.sub(r"<!--.*?-->\n?", "", pages[topic].read_text(encoding="utf-8"), flags=re.S)
    if not sys.stdout.isatty():
        echo(text.rstrip())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(fit_terminal(text, console.width), hyperlinks=False))


def fit_terminal(text: str, width: int) -> str:
    r"""Return a page for a terminal: long comments of commands above them, links between pages as plain text.

    Example:
        >>> from evenhand.cli.guide import fit_terminal
        >>> page = "See [start](start.md).\n\n```\nevenhand inspect photos/    # counts of all classes\n```"
        >>> print(fit_terminal(page, 40))
        See start.
        <BLANKLINE>
        ```
        # counts of all classes
        evenhand inspect photos/
        ```
    """
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)
    lines, in_code = [], False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        command, mark, comment = line.partition("  # ")
        if in_code and mark and command.strip() and len(line) > width - 2:
            lines += [f"# {comment}", command.rstrip()]
        else:
            lines.append(line)
    return "\n".join(lines)
