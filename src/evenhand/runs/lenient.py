"""Read what can be read of a run, for lists in which one bad run must not hide the others."""

import os
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.runs import filenames as names
from evenhand.runs.run import Run

_FILES = {
    "splits": names.SPLITS,
    "predictions": names.PREDICTIONS,
    "summary": names.SUMMARY,
    "stored_summary": names.SUMMARY,
}


def read_leniently(run: Run, *properties: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the files of a run that can be read, for a list in which one bad run must not hide the others.

    Args:
        run: its files may be missing, incomplete or damaged.
        properties: such as `config`; those whose file does not exist yet are left out.

    Returns:
        The values by property, and one sentence per unreadable file, without the path of the folder.

    Example:
        >>> import tempfile
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.runs.lenient import read_leniently
        >>> from evenhand.runs.run import Run
        >>> run = Run(tempfile.mkdtemp())
        >>> run.write_config(make_config())
        >>> _ = (run.path / "summary.json").write_text("{")
        >>> read, problems = read_leniently(run, "config", "predictions", "summary")
        >>> list(read), [problem[:24] for problem in problems]
        (['config'], ['Cannot read summary.json'])
    """
    read: dict[str, Any] = {}
    problems: list[str] = []
    for name in properties:
        if name in _FILES and not run.has(_FILES[name]):
            continue
        try:
            read[name] = getattr(run, name)
        except EvenhandError as error:
            problems.append(str(error).replace(f"{run.path}{os.sep}", "").replace(str(run.path), run.path.name))
    return read, tuple(problems)
