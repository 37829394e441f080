__version__: str

from . import data as data
from . import experiments as experiments
from . import losses as losses
from . import metrics as metrics
from . import models as models
from . import objectives as objectives
from . import paper as paper
from . import report as report
from . import runs as runs
from . import statistics as statistics
from . import training as training
from .core.errors import EvenhandError as EvenhandError
from .data.sources import list_datasets as list_datasets
from .experiments.api import compare as compare
from .losses.modules import BalancedSoftmaxLoss as BalancedSoftmaxLoss
from .losses.modules import ComplementCrossEntropyLoss as ComplementCrossEntropyLoss
from .losses.modules import FocalLoss as FocalLoss
from .losses.modules import LDAMLoss as LDAMLoss
from .losses.modules import LogitAdjustedLoss as LogitAdjustedLoss
from .losses.modules import VSLoss as VSLoss
from .models.build import list_models as list_models
from .objectives.registry import list_objectives as list_objectives
from .training.api import train as train
from .training.predict import load as load
