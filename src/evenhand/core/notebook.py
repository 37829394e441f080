"""A line of progress in a Jupyter notebook, which needs no widgets."""

import sys
import time
from html import escape
from typing import Any

EVERY = 0.2
"""Seconds between two updates."""


def in_notebook() -> bool:
    """Return whether this code runs in the kernel of a notebook.

    Example:
        >>> from evenhand.core.notebook import in_notebook
        >>> in_notebook()
        False
    """
    ipython = sys.modules.get("IPython")  # a notebook has imported it
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


class NotebookBar:
    """A bar with a text under the cell that runs; it is shown by the first call of :meth:`show`."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = 0.0

    def show(self, done: float, total: float, text: str, *, now: bool = False) -> None:
        """Update the bar, at most every 0.2 seconds unless `now`."""
        if not now and time.monotonic() - self._shown < EVERY:
            return
        self._shown = time.monotonic()
        from IPython.display import display

        content = _Bar(done, total, text)
        if self._handle is None:
            self._handle = display(content, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(content)


class _Bar:
    def __init__(self, done: float, total: float, text: str) -> None:
        self.done, self.total, self.text = done, total, text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<progress value="{self.done:g}" max="{self.total:g}"></progress> {escape(self.text)}'
