"""Selective classification: answers only where a precision is shown, by Learn-then-Test with binomial bounds.

(Angelopoulos et al. 2021, *Learn then Test*.) A threshold of the confidence is a hypothesis: the precision above it is
too low. Thresholds are fixed in advance and tested in sequences from strict to lenient, so the error of all tests
together is at most delta, whatever the model and the data.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

DELTA = 0.1
"""The chance of a threshold whose precision is too low."""
SEQUENCES: tuple[tuple[float, ...], ...] = (
    (0.999, 0.998, 0.995, 0.99, 0.985, 0.98, 0.97, 0.96, 0.95, 0.925, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.0),
    (0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4, 0.3, 0.0),
    (0.5, 0.45, 0.4, 0.35, 0.3, 0.2, 0.0),
)
"""Thresholds in the order of testing. Each sequence has an equal part of delta and ends at its first failure; several
are started, since the strictest threshold may leave too few images to show anything."""


@dataclass(frozen=True)
class Threshold:
    """The confidence from which a precision is shown."""

    value: float | None
    """The smallest such threshold; None: the precision is shown at none."""
    images: int
    """Calibration images that were answered, right or wrong, at any confidence."""
    needed: int
    """The images that would be needed if no answer were wrong."""


def precision_images_needed(precision: float, delta: float = DELTA) -> int:
    """Return the smallest number of answers, all correct, that shows a precision.

    Example:
        >>> from evenhand.statistics.selective import precision_images_needed
        >>> precision_images_needed(0.95), precision_images_needed(0.8)
        (67, 16)
    """
    _check(precision, delta)
    return math.ceil(math.log(delta / len(SEQUENCES)) / math.log(precision))


def precision_threshold(
    confidences: NDArray[np.float64], correct: NDArray[np.bool_], precision: float, delta: float = DELTA
) -> Threshold:
    """Return the smallest confidence from which answers have a precision, shown on calibration images.

    With probability 1 - delta or more over the calibration images, new images of the same kind that are answered at or
    above the threshold are classified correctly with at least this precision.

    Args:
        confidences: of the answers on calibration images, (n,), 0 to 1.
        correct: whether they are correct, (n,).
        precision: above 0 and below 1.
        delta: the chance of an error.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.selective import precision_threshold
        >>> confidences = np.linspace(0.4, 1, 400)
        >>> precision_threshold(confidences, confidences > 0.62, precision=0.95).value
        0.65
    """
    _check(precision, delta)
    level, shown = delta / len(SEQUENCES), []
    for sequence in SEQUENCES:
        for value in sequence:
            answered = confidences >= value
            wrong = int((~correct[answered]).sum())
            if bdtr(wrong, int(answered.sum()), 1 - precision) > level:
                break
            shown.append(value)
    return Threshold(min(shown, default=None), len(confidences), precision_images_needed(precision, delta))


def _check(precision: float, delta: float) -> None:
    if not 0 < precision < 1:
        raise ValueError(f"The precision must be above 0 and below 1, got {precision:g}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta:g}.")
