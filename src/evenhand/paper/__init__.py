"""The paper: its numbers, its studies as plans, its tables, figures and claims, measured against published."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
