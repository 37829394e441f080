"""Training: a config becomes a run folder."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.training.api import train as train
    from evenhand.training.evaluation import Evaluation as Evaluation
    from evenhand.training.evaluation import evaluate_on as evaluate_on
    from evenhand.training.evaluation import evaluate_run as evaluate_run
    from evenhand.training.export import export_onnx as export_onnx
    from evenhand.training.inference import TrainedModel as TrainedModel
    from evenhand.training.inference import load as load
    from evenhand.training.objectives import build_objective as build_objective
    from evenhand.training.objectives import list_objectives as list_objectives
    from evenhand.training.run import resume_run as resume_run
    from evenhand.training.run import train_run as train_run
    from evenhand.training.trainer import Callback as Callback
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
