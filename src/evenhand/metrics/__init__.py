"""Metrics: pure functions of predictions; they know no model."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.metrics._sampling import sampling_variance as sampling_variance
    from evenhand.metrics.classification import accuracy as accuracy
    from evenhand.metrics.classification import balanced_accuracy as balanced_accuracy
    from evenhand.metrics.classification import class_f1 as class_f1
    from evenhand.metrics.classification import class_precision as class_precision
    from evenhand.metrics.classification import class_recall as class_recall
    from evenhand.metrics.classification import confusion_matrix as confusion_matrix
    from evenhand.metrics.classification import expected_calibration_error as expected_calibration_error
    from evenhand.metrics.classification import geometric_mean as geometric_mean
    from evenhand.metrics.classification import macro_f1 as macro_f1
    from evenhand.metrics.classification import mean_recall as mean_recall
    from evenhand.metrics.classification import negative_log_likelihood as negative_log_likelihood
    from evenhand.metrics.classification import worst_class as worst_class
    from evenhand.metrics.intervals import mean_recall_interval as mean_recall_interval
    from evenhand.metrics.intervals import wilson_interval as wilson_interval
    from evenhand.metrics.paired import PairedDifference as PairedDifference
    from evenhand.metrics.paired import holm as holm
    from evenhand.metrics.paired import paired_difference as paired_difference
    from evenhand.metrics.predictions import Predictions as Predictions
    from evenhand.metrics.predictions import load_predictions as load_predictions
    from evenhand.metrics.shots import ShotGroups as ShotGroups
    from evenhand.metrics.shots import shot_groups as shot_groups
    from evenhand.metrics.summary import summarise as summarise
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
