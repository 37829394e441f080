"""Losses: pure functions of logits and targets, their modules, and the choice of what computes them."""

from typing import TYPE_CHECKING

from evenhand.core.lazy import lazy_exports

if TYPE_CHECKING:
    from evenhand.losses.functional import adjust_logits as adjust_logits
    from evenhand.losses.functional import adjusted_cross_entropy as adjusted_cross_entropy
    from evenhand.losses.functional import balanced_softmax_loss as balanced_softmax_loss
    from evenhand.losses.functional import class_weights as class_weights
    from evenhand.losses.functional import complement_cross_entropy as complement_cross_entropy
    from evenhand.losses.functional import complement_entropy as complement_entropy
    from evenhand.losses.functional import focal_loss as focal_loss
    from evenhand.losses.functional import frequent_rivals as frequent_rivals
    from evenhand.losses.functional import ldam_loss as ldam_loss
    from evenhand.losses.functional import ldam_margins as ldam_margins
    from evenhand.losses.functional import logit_adjusted_cross_entropy as logit_adjusted_cross_entropy
    from evenhand.losses.functional import logit_offset as logit_offset
    from evenhand.losses.kernels.backend import get_backend as get_backend
    from evenhand.losses.kernels.backend import set_backend as set_backend
    from evenhand.losses.kernels.linear import ComplementCrossEntropyHead as ComplementCrossEntropyHead
    from evenhand.losses.kernels.linear import linear_complement_cross_entropy as linear_complement_cross_entropy
    from evenhand.losses.modules import BalancedSoftmaxLoss as BalancedSoftmaxLoss
    from evenhand.losses.modules import ComplementCrossEntropyLoss as ComplementCrossEntropyLoss
    from evenhand.losses.modules import FocalLoss as FocalLoss
    from evenhand.losses.modules import LDAMLoss as LDAMLoss
    from evenhand.losses.modules import LogitAdjustedLoss as LogitAdjustedLoss
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
