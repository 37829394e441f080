"""evenhand: image classification on imbalanced data, built around the complement cross entropy loss."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evenhand.core.processor import prepare_processor

if TYPE_CHECKING:
    from evenhand.losses.modules import ComplementCrossEntropyLoss, FocalLoss
    from evenhand.training.inference import load

__all__ = ["ComplementCrossEntropyLoss", "FocalLoss", "__version__", "load"]

prepare_processor()  # here, because it has to come before torch is loaded

# Where each public name lives: importing evenhand imports none of them, and so not torch.
_HOMES = {
    "ComplementCrossEntropyLoss": "evenhand.losses.modules",
    "FocalLoss": "evenhand.losses.modules",
    "load": "evenhand.training.inference",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    if name not in _HOMES:
        raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
