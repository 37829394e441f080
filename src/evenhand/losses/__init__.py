"""Losses: pure functions of logits and targets in `functional`, and their modules."""

from evenhand.losses.modules import (
    BalancedSoftmaxLoss,
    ComplementCrossEntropyLoss,
    FocalLoss,
    LDAMLoss,
    LogitAdjustedLoss,
)

__all__ = ["BalancedSoftmaxLoss", "ComplementCrossEntropyLoss", "FocalLoss", "LDAMLoss", "LogitAdjustedLoss"]
