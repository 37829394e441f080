"""A run is a folder: its config, and the one reader and writer of each of its files; no torch."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
