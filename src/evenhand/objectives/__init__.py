"""Objectives: one loss and any number of parts, joined by `+`, from one registry.

A new part is one class in the file of its kind; `part.py` describes what each kind can do. Importing this room does not
import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
