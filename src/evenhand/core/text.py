"""Text for messages, file names and tables."""

import json
import re
from collections.abc import Iterable, Sequence

_JOINERS = "\u200c\u200d"
"""Zero-width joiners, which some scripts and emoji need."""
_FORMULA = re.compile(r"[=+\-@\t\r\n|%]")


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first few names of a list, and how many more there are.

    Example:
        >>> from evenhand.core.text import some
        >>> some(["cat", "dog", "bird"], most=2)
        "'cat', 'dog' and 1 more"
    """
    listed = ", ".join(clipped(repr(str(name))) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def clipped(text: str, most: int = 150) -> str:
    """Shorten a text to its beginning and its end.

    Example:
        >>> from evenhand.core.text import clipped
        >>> clipped("a" * 20 + "b" * 20, most=11)
        'aaaa...bbbb'
    """
    half = (most - 3) // 2
    return text if len(text) <= most else f"{text[:half]}...{text[-half:]}"


def visible(text: str, *, keep: str = "") -> str:
    r"""Escape control characters, such as terminal escapes and marks of direction.

    Args:
        text: any text.
        keep: characters that are not escaped, such as line breaks.

    Example:
        >>> from evenhand.core.text import visible
        >>> print(visible("\x1b[31mred\u202e \u00e9t\u00e9"))
        \x1b[31mred\u202e été
    """
    if text.isprintable():
        return text
    kept = _JOINERS + keep
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode() for each in text
    )


def json_line(content: object, *, indent: int | None = None) -> str:
    r"""Return JSON with letters of any script, but control characters escaped.

    Example:
        >>> from evenhand.core.text import json_line
        >>> print(json_line({"name": "\u00e9\u202e"}))
        {"name": "é\u202e"}
    """
    text = json.dumps(content, ensure_ascii=False, indent=indent, allow_nan=False)
    return "".join(
        each if each.isprintable() or each == "\n" or each in _JOINERS else json.dumps(each)[1:-1] for each in text
    )


def plain_cell(value: object) -> object:
    r"""Return a CSV cell that no spreadsheet runs as a formula: such text gets an apostrophe in front.

    Example:
        >>> from evenhand.core.text import plain_cell
        >>> [plain_cell(value) for value in ("=cmd()", "-1 degrees", "cat", -0.5, None)]
        ["'=cmd()", "'-1 degrees", 'cat', -0.5, None]
    """
    risky = isinstance(value, str) and (_FORMULA.match(value) or _FORMULA.match(value.lstrip()))
    return f"'{value}" if risky else value


def slug(*parts: str, most: int = 40) -> str:
    """Return a file name from texts: safe on any system, at most `most` characters of each, joined by _.

    Example:
        >>> from evenhand.core.text import slug
        >>> slug("photos", "exp:100", "cce:gamma=-2")
        'photos_exp-100_cce-gamma-2'
    """
    safe = (re.sub(r"[^A-Za-z0-9.+-]+", "-", part.replace("=", ""))[:most].strip("-.") for part in parts)
    return "_".join(each or "data" for each in safe) or "data"


def markdown_escaped(text: str) -> str:
    r"""Escape a text for Markdown.

    Example:
        >>> from evenhand.core.text import markdown_escaped
        >>> print(markdown_escaped("a|b <i> *c*"))
        a\|b &lt;i> \*c\*
    """
    clean = visible(text.replace("\\", "\\\\"))
    return clean.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def markdown_table(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table.

    Example:
        >>> from evenhand.core.text import markdown_table
        >>> print(markdown_table(["class", "recall"], [["cat", "91.0"]]))
        | class | recall |
        | --- | --- |
        | cat | 91.0 |
    """
    first = [markdown_escaped(cell) for cell in heading]
    lines = [first, ["---"] * len(first), *([markdown_escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def text_table(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table with aligned columns, two spaces apart.

    Args:
        rows: rows of equally many cells.
        left: left-aligned columns; the others are right-aligned.

    Example:
        >>> from evenhand.core.text import text_table
        >>> text_table([["class", "images"], ["猫", "1,500"]])
        ['class  images', '猫      1,500']
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return []
    number = len(rows[0])
    starts = {place % number for place in left}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for place in range(number):
        table.add_column(justify="left" if place in starts else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console = Console(width=100_000, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]
