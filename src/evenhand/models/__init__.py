"""Models: a name becomes a network whose stem suits the size of the images."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.models.backbone import Backbone as Backbone
    from evenhand.models.backbone import load_backbone as load_backbone
    from evenhand.models.build import build_model as build_model
    from evenhand.models.build import known_model as known_model
    from evenhand.models.build import list_models as list_models
    from evenhand.models.classifier import Classifier as Classifier
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
