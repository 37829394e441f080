"""The environment of a run: versions, commit, machine."""

import hashlib
import os
import platform
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from evenhand.core.extras import installed_version

PACKAGES = ("evenhand", "torch", "torchvision", "lightning-fabric", "numpy", "pillow")


def describe_environment(fabric: Fabric, seed: int) -> dict[str, Any]:
    """Return the environment of a run, as :class:`evenhand.runs.schemas.Environment` reads it."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "versions": {package: installed_version(package) or "unknown" for package in PACKAGES},
        "commit": _commit(),
        "code": code_fingerprint(),
        "system": platform.platform(),
        "processor": processor_name(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(fabric.device),
        "devices": fabric.world_size,
        "precision": fabric._precision.precision,
        "seed": seed,
    }


def processor_name() -> str:
    """Return the model of this machine's processor, as far as it is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@cache  # the code of this process stays as it was loaded, and many runs of a comparison ask
def code_fingerprint() -> str:
    """Return a hash of the package's own code."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _commit() -> str | None:
    """Return the commit of the checkout that this package runs from; None: it is not a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
