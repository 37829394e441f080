"""Words for messages."""

from collections.abc import Sequence


def some(names: Sequence[str], most: int = 5) -> str:
    """Name the first few of many.

    Example:
        >>> from evenhand.core.text import some
        >>> some(["cat", "dog", "bird"], most=2)
        "'cat', 'dog' and 1 more"
    """
    listed = ", ".join(repr(str(name)) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"
