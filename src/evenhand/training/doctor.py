"""The installation: versions, devices, loss backends, folders, and missing packages."""

import os
import platform
import re
import shutil
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import torch

from evenhand.core.cache import cache_root
from evenhand.core.extras import how_to_install, installed_version
from evenhand.data.sources import find_data_root
from evenhand.losses.kernels import native
from evenhand.losses.kernels.backend import BACKENDS, VARIABLE, chosen, why_not
from evenhand.training.environment import processor_name

PACKAGES = ("evenhand", "torch", "torchvision", "triton", "lightning-fabric", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Backend:
    """A loss backend: the devices it is used for, or why it is not used."""

    name: str
    used_for: tuple[str, ...]
    detail: str
    why_not: str


@dataclass(frozen=True)
class Folder:
    """A folder that evenhand reads or writes."""

    use: str
    path: str
    exists: bool
    writable: bool
    free_bytes: int


@dataclass(frozen=True)
class Missing:
    """Something that is not installed: what it is for, and how to install it."""

    name: str
    use: str
    how: str


@dataclass(frozen=True)
class Examination:
    """The installation and what is missing."""

    versions: dict[str, str]
    devices: dict[str, str]
    backend: str
    backends: tuple[Backend, ...]
    folders: tuple[Folder, ...]
    missing: tuple[Missing, ...]


def examine() -> Examination:
    """Examine this machine and installation.

    Example:
        >>> from evenhand.training.doctor import examine
        >>> found = examine()
        >>> [backend.name for backend in found.backends], found.backend
        (['eager', 'native', 'triton'], 'auto')
    """
    installed = {name: version for name in PACKAGES if (version := installed_version(name))}
    if "torch" in installed:
        installed["torch"] = torch.__version__  # with the build, such as +cpu
    return Examination(
        versions={"python": platform.python_version(), "system": platform.platform(terse=True), **installed},
        devices=_devices(),
        backend=chosen.name,
        backends=tuple(_backend(name) for name in BACKENDS if name != "auto"),
        folders=(_folder("cache", cache_root()), _folder("data", find_data_root())),
        missing=tuple(_missing()),
    )


def _devices() -> dict[str, str]:
    devices = {
        "cpu": f"{processor_name()}, {os.cpu_count()} cores, torch uses {torch.get_num_threads()} of them "
        f"and {torch.backends.cpu.get_cpu_capability()}"
    }
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        devices[f"cuda:{number}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    if torch.backends.mps.is_available():
        devices["mps"] = platform.processor()
    return devices


def _backend(name: str) -> Backend:
    used = ["cpu"] if chosen.cpu == name else []
    if chosen.gpu == name and torch.cuda.is_available():
        used.append("gpu")
    detail = {"eager": "torch operations; also the fallback for inputs that no kernel takes"}.get(name, "")
    if name == "native" and native.level:
        threads = "torch's threads" if native.threads else "one thread"
        detail = f"C, {native.LEVELS[native.level]}, {threads}"
    reason = why_not(name)
    if name == "triton" and not reason:
        detail = "GPU kernel, not benchmarked on a GPU yet"
        reason = "" if torch.cuda.is_available() else "no GPU found"
    if not used and not reason and name != "eager":
        reason = f"backend {chosen.name!r} was set by {VARIABLE} or set_backend"
    return Backend(name, tuple(used), detail, reason)


def _folder(use: str, path: Path) -> Folder:
    there = next(place for place in (path, *path.parents) if place.exists())
    return Folder(use, str(path), path.exists(), os.access(there, os.W_OK), shutil.disk_usage(there).free)


def _missing() -> list[Missing]:
    missing = []
    if native.level == 0 and shutil.which("cc") is None:
        missing.append(
            Missing("C compiler", "the native kernel of the loss", "install gcc or clang, then evenhand again")
        )
    for extra, packages in _extras().items():
        absent = [name for name in packages if installed_version(name) is None]
        if absent:
            missing.append(Missing(", ".join(absent), f"the extra {extra!r}", how_to_install(extra)))
    return missing


def _extras() -> dict[str, list[str]]:
    """Return the packages of each extra of evenhand, without the developer tools."""
    try:
        requirements = metadata("evenhand").get_all("Requires-Dist") or []
    except PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {}
    for line in requirements:
        named = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if named and package and named[1] != "dev":
            extras.setdefault(named[1], []).append(package[0])
    return extras
