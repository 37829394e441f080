from .backbone import Backbone as Backbone
from .backbone import load_backbone as load_backbone
from .build import build_model as build_model
from .build import known_model as known_model
from .build import list_models as list_models
from .classifier import Classifier as Classifier
