"""Whether the libraries fit into the memory that this process may have."""

import subprocess
import sys

from evenhand.core.errors import EvenhandError

PATIENCE = 90.0
"""Seconds that loading may take."""
EVERYTHING = (
    "room = bytearray(2**28); import evenhand.cli.grid_progress, evenhand.experiments.api, evenhand.report.page"
)
"""All that a verb loads, and some room to work in."""


def require_memory() -> None:
    """Refuse a limit on memory (`ulimit -v`) that does not hold what is loaded: some libraries would wait for ever.

    Without a limit nothing is done; with one, another process tries.

    Raises:
        EvenhandError: the limit is too low.
    """
    try:
        import resource
    except ImportError:  # Windows knows no such limit
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    try:
        ended = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, timeout=PATIENCE, check=False)
        fits = ended.returncode == 0
    except subprocess.TimeoutExpired:
        fits = False
    except OSError:
        return  # no process can be made to try it
    if not fits:
        raise EvenhandError(
            f"Memory is limited to {limit / 2**30:.1f} GiB, which does not hold what evenhand loads; raise ulimit -v."
        )
