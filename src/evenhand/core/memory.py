"""Memory limits, and keeping freed memory in the process."""

import ctypes
import os
import platform
import subprocess
import sys

from evenhand.core.errors import EvenhandError

PATIENCE = 90.0
"""Seconds to wait for the trial import."""
EVERYTHING = (
    "room = bytearray(2**28); import evenhand.cli.grid_progress, evenhand.experiments.api, evenhand.report.page"
)
"""Imports everything that commands need, with some memory to spare."""
KEPT = 2**30
"""Bytes that are kept for the next step instead of being returned to the system."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h


def require_memory() -> None:
    """Refuse a memory limit (`ulimit -v`) that is too low for the libraries: some would hang.

    Without a limit nothing is done; with one, another process tries to import them.

    Raises:
        EvenhandError: the limit is too low.
    """
    try:
        import resource
    except ImportError:  # not on Windows
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
        return  # no process can be started
    if not fits:
        raise EvenhandError(
            f"Memory is limited to {limit / 2**30:.1f} GiB, too little for the libraries of evenhand; raise ulimit -v."
        )


def keep_freed_memory() -> bool:
    """Keep the memory that a training step frees in the process, for the next step.

    The GNU C library returns large blocks to the system, which clears every page when it is allocated again: 4,000 to
    5,000 pages per step of `resnet8` with 64 images, a tenth of its time on a CPU. Nothing is done with another C
    library, or if the user has configured malloc.

    Returns:
        Whether freed memory is kept now.

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
    except (OSError, AttributeError):  # linked with another allocator
        return False
    return all(mallopt(which, KEPT) == 1 for which in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
