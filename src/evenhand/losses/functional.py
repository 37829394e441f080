"""Losses for imbalanced classification, as pure functions with the keywords of `torch.nn.functional.cross_entropy`."""

from evenhand.losses._adjusted import (
    adjust_logits,
    adjusted_cross_entropy,
    balanced_softmax_loss,
    ldam_loss,
    logit_adjusted_cross_entropy,
)
from evenhand.losses._cce import complement_cross_entropy, complement_entropy
from evenhand.losses._counts import class_weights, frequent_rivals, ldam_margins, logit_offset
from evenhand.losses._focal import focal_loss

__all__ = [
    "adjust_logits",
    "adjusted_cross_entropy",
    "balanced_softmax_loss",
    "class_weights",
    "complement_cross_entropy",
    "complement_entropy",
    "focal_loss",
    "frequent_rivals",
    "ldam_loss",
    "ldam_margins",
    "logit_adjusted_cross_entropy",
    "logit_offset",
]
