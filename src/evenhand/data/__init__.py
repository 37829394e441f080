"""Data: any source becomes one table of samples, honest splits of it, and fast batches."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
