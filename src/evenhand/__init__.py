"""evenhand: image classification on imbalanced data, built around the complement cross entropy loss."""

from typing import TYPE_CHECKING, Any

from evenhand.core.lazy import lazy_exports
from evenhand.core.processor import prepare_processor

prepare_processor()  # here, because it has to come before torch is loaded

if TYPE_CHECKING:
    __version__: str

    from evenhand.core.errors import EvenhandError as EvenhandError
    from evenhand.data.sources import list_datasets as list_datasets
    from evenhand.experiments.api import compare as compare
    from evenhand.losses.modules import BalancedSoftmaxLoss as BalancedSoftmaxLoss
    from evenhand.losses.modules import ComplementCrossEntropyLoss as ComplementCrossEntropyLoss
    from evenhand.losses.modules import FocalLoss as FocalLoss
    from evenhand.losses.modules import LDAMLoss as LDAMLoss
    from evenhand.losses.modules import LogitAdjustedLoss as LogitAdjustedLoss
    from evenhand.models.build import list_models as list_models
    from evenhand.training.api import train as train
    from evenhand.training.inference import load as load
    from evenhand.training.objectives import list_objectives as list_objectives
else:
    _get, __dir__, __all__ = lazy_exports(__name__)

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("evenhand")
        return _get(name)
