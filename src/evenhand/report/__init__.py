"""Report: figures, the page and the local server, from run folders alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
