"""What pyproject.toml cannot say: the native kernel, one wheel for all Pythons, and the guide in the package."""

import shutil
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

KERNELS = "src/evenhand/losses/kernels"
GUIDE = sorted(Path("docs/guide").glob("*.md"))


class BuildKernel(build_ext):
    """Name the kernel without the tag of one Python: ctypes loads it, so every Python of the platform can."""

    def get_ext_filename(self, ext_name: str) -> str:
        """Return evenhand/losses/kernels/_cce.so, or .dll on Windows."""
        return str(Path(*ext_name.split("."))) + Path(super().get_ext_filename(ext_name)).suffix.replace(".pyd", ".dll")

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Export what the kernel declares; there is no function that initialises a Python module."""
        return list(ext.export_symbols)


class TagWheel(bdist_wheel):
    """Tag the wheel for the platform, and for every Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return py3-none-PLATFORM."""
        return "py3", "none", super().get_tag()[2]


class CopyGuide(build_py):
    """Copy the guide from docs/ into the package, where `evenhand guide` reads it."""

    def run(self) -> None:
        """Copy Python files and data, then the guide."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "evenhand" / "guide"
            target.mkdir(parents=True, exist_ok=True)
            for page in GUIDE:
                shutil.copyfile(page, target / page.name)

    def get_source_files(self) -> list[str]:
        """List the guide too, so that a source distribution holds it."""
        return [*super().get_source_files(), *(str(page) for page in GUIDE)]


setup(
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": TagWheel, "build_py": CopyGuide},
    ext_modules=[
        Extension(
            "evenhand.losses.kernels._cce",
            [f"{KERNELS}/cce.c"],
            depends=sorted(glob(f"{KERNELS}/*.h")),
            extra_compile_args=["-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"],
            optional=True,  # without a compiler the package installs all the same, and computes with torch
        )
    ],
)
