"""Errors that a user can cause or fix."""

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_HINTS = (
    "(1) In PyTorch",
    "In PyTorch 2.6",
    "Please file an issue",
    "Check the documentation of torch.load",
    "Re-running `torch.load`",
)
"""Where torch begins to advise loading with `weights_only=False`, which runs code from the file."""


class EvenhandError(Exception):
    """An error that a user can fix: one sentence with what was wrong, the value seen, and what to do."""


def reason(error: BaseException, most: int = 160) -> str:
    r"""Return the reason of an error as part of a sentence: one short line without a full stop.

    Example:
        >>> from evenhand.core.errors import reason
        >>> reason(ValueError("bad\n  magic."))
        'bad magic'
        >>> reason(FileNotFoundError(2, "No such file or directory", "x"))
        'No such file or directory'
        >>> from urllib.error import URLError
        >>> reason(URLError(OSError(-2, "Name or service not known")))
        'Name or service not known'
        >>> reason(MemoryError())
        'there is not enough memory'
    """
    within = getattr(error, "reason", None)
    if isinstance(within, BaseException):  # a failed connection
        return reason(within, most)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    line = " ".join(str(error).split())
    for hint in _HINTS:
        line = line.partition(hint)[0].rstrip()
    return (line if len(line) <= most else f"{line[: most - 3]}...").rstrip(".") or type(error).__name__


def none_if_unreadable(read: Callable[[], _T]) -> _T | None:
    """Return what a function reads; None if it raises an `EvenhandError`, which is reported where it matters.

    Example:
        >>> from evenhand.core.errors import EvenhandError, none_if_unreadable
        >>> def read() -> str:
        ...     raise EvenhandError("It is damaged.")
        >>> none_if_unreadable(read) is None
        True
    """
    try:
        return read()
    except EvenhandError:
        return None
