"""evenhand: image classification on imbalanced data, built around the complement cross entropy loss."""

from typing import Any

import lazy_loader

from evenhand.core.processor import prepare_processor

prepare_processor()  # here, because it has to come before torch is loaded

_lazy_getattr, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    return _lazy_getattr(name)
