"""evenhand: image classification on imbalanced data, built around the complement cross entropy loss."""

import os
import sys
from typing import Any

import lazy_loader

if "torch" not in sys.modules:  # torch reads it when it is loaded
    # Waiting threads sleep: spinning ones would take the cores that other processes wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_lazy_getattr, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    return _lazy_getattr(name)
