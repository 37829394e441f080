"""AMX (Intel's matrix extensions) on machines that announce it without having it.

Some virtual machines do. There, bfloat16 in oneDNN ends the process with an illegal instruction, unless oneDNN is set
not to use AMX before its first convolution or matrix product.
"""

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path

_LIMIT = "ONEDNN_MAX_CPU_ISA"


def avoid_missing_amx() -> None:
    """Keep oneDNN from using AMX where it is missing; a limit that the user has set is not changed."""
    if _LIMIT not in os.environ and lacks_amx():
        os.environ[_LIMIT] = "AVX512_CORE_BF16"


def lacks_amx() -> bool:
    """Return whether the CPU announces AMX but has no tiles to compute with, or cannot be asked.

    Example:
        >>> from evenhand.models.amx import lacks_amx
        >>> lacks_amx() in (True, False)
        True
    """
    try:
        announced = "amx_tile" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    return announced and not tile_palettes()


def tile_palettes() -> int | None:
    """Return how many kinds of tiles the CPU describes (CPUID leaf 0x1D); None: the C extension was not built."""
    found = find_spec("evenhand.losses.kernels._cce")
    try:
        return None if found is None else int(ctypes.CDLL(str(found.origin)).evenhand_amx_palettes())
    except (OSError, AttributeError):  # it cannot be loaded, or was built from older source
        return None
