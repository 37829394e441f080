"""Losses: pure functions of logits and targets, their modules, and the choice of what computes them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
