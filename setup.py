"""The native kernel: everything else about the package stands in pyproject.toml."""

from glob import glob

from setuptools import Extension, setup

kernels = "src/evenhand/losses/kernels"
setup(
    ext_modules=[
        Extension(
            "evenhand.losses.kernels._cce",
            [f"{kernels}/cce.c"],
            depends=sorted(glob(f"{kernels}/*.h")),
            extra_compile_args=["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"],
            optional=True,  # without a compiler the package installs all the same, and computes with torch
        )
    ]
)
