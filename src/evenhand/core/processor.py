"""What has to be told to the numerical libraries about this processor, before they are loaded; no torch here."""

import ctypes
import mmap
import os
import platform
import sys
from pathlib import Path

TILE_LEAF = 0x1D
"""The CPUID leaf that describes the tile registers of AMX."""
# push rbx; mov eax, edi; mov ecx, esi; cpuid; pop rbx; ret
_CPUID = bytes.fromhex("53 89f8 89f1 0fa2 5b c3")


def prepare_processor() -> None:
    """Set environment variables for torch's libraries, unless the user has set them.

    - `OMP_WAIT_POLICY=PASSIVE`: threads that wait sleep instead of spinning. On an idle machine that costs little;
      beside other processes spinning threads take the cores that the others wait for. It is read when torch is loaded.
    - `ONEDNN_MAX_CPU_ISA`: some virtual machines announce AMX without being able to run it, and bfloat16 would end the
      process with an illegal instruction. It is read at the first convolution.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if announces_amx() and not has_tiles():
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def announces_amx() -> bool:
    """Return whether the processor says that it has AMX (advanced matrix extensions)."""
    try:
        return "amx_tile" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def has_tiles() -> bool:
    """Return whether the processor describes the tiles that AMX computes with; one that does not cannot run it.

    Example:
        >>> from evenhand.core.processor import announces_amx, has_tiles
        >>> isinstance(has_tiles() and announces_amx(), bool)
        True
    """
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform == "win32":
        return True
    try:
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:  # the system lets no process make code
        return True
    with code:
        code.write(_CPUID)
        address = ctypes.addressof(here := ctypes.c_char.from_buffer(code))
        eax_of = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)(address)
        described = bool(eax_of(0, 0) >= TILE_LEAF and eax_of(TILE_LEAF, 0))  # the highest leaf; the number of palettes
        del here, eax_of  # a buffer that is in use cannot be closed
    return described
