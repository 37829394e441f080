"""The native kernel is there wherever it can be."""

import platform
import shutil
from pathlib import Path

import pytest

from evenhand.losses.kernels import native


def can_be_built() -> bool:
    flags = Path("/proc/cpuinfo")
    able = flags.exists() and {"avx2", "fma"} <= set(flags.read_text().split())
    return able and platform.machine() == "x86_64" and shutil.which("cc") is not None


@pytest.mark.skipif(not can_be_built(), reason="no compiler, or a processor without AVX2 and FMA")
def test_the_kernel_is_there_where_it_can_be():
    assert native.level > 0, native.why_not
