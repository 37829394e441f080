"""Losses: pure functions of logits and targets in `functional`, and their modules."""

from evenhand.losses.modules import ComplementCrossEntropyLoss, FocalLoss

__all__ = ["ComplementCrossEntropyLoss", "FocalLoss"]
