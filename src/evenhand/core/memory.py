"""Whether the libraries fit into the memory that this process may have, and whether it keeps what it has."""

import ctypes
import os
import platform
import subprocess
import sys

from evenhand.core.errors import EvenhandError

PATIENCE = 90.0
"""Seconds that loading may take."""
EVERYTHING = (
    "room = bytearray(2**28); import evenhand.cli.grid_progress, evenhand.experiments.api, evenhand.report.page"
)
"""All that a verb loads, and some room to work in."""
KEPT = 2**30
"""Bytes that are kept for the next step instead of being given back to the system."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


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


def keep_freed_memory() -> bool:
    """Have this process keep the memory that a training step frees: the next step asks for the same again.

    The GNU C library gives large blocks back to the system at once, which clears every page of them when they come
    again: 4,000 to 5,000 pages for a step of `resnet8` with 64 images, and a tenth of its time on a processor. Nothing
    is done with another C library, or where the user has set how this one behaves.

    Returns:
        Whether it does so now.

    Example:
        >>> from evenhand.core.memory import keep_freed_memory
        >>> keep_freed_memory() in (True, False)
        True
    """
    chosen = any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"))
    if chosen or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # a program that is linked with another allocator
        return False
    return all(mallopt(which, KEPT) == 1 for which in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
