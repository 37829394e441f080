"""Selective classification: answers only where a precision is shown, by Learn-then-Test with binomial bounds.

(Angelopoulos et al. 2021, *Learn then Test*.) A threshold of the confidence is a hypothesis: the precision above it is
too low. Thresholds are fixed in advance and tested in sequences from strict to lenient, so the error of all tests
together is at most delta, whatever the model and the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

DELTA = 0.1
"""The chance of a threshold whose precision is too low."""
SEQUENCES: tuple[tuple[float, ...], ...] = (
    (0.999, 0.998, 0.995, 0.99, 0.985, 0.98, 0.97, 0.96, 0.95, 0.925, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.0),
    (0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4, 0.3, 0.2, 0.0),
)
"""Thresholds in the order of testing. Each sequence has an equal part of delta and ends at its first failure; two are
started, since the strictest threshold may leave too few images to show anything."""


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
        (59, 14)
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
    return precision_thresholds([(confidences, correct)], precision, delta)[0]


def precision_thresholds(
    groups: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]], precision: float, delta: float = DELTA
) -> list[Threshold]:
    """Return the threshold of each group of answers, such that all hold together with probability 1 - delta.

    Delta is divided equally among the groups with enough images. A sequence that is shown to its end hands its part to
    the next smaller group (graphical testing): nothing in it is left to err. Both depend on the sizes of groups and on
    other groups only, given which the answers of a group are independent.

    Args:
        groups: confidences and whether they are correct, as :func:`precision_threshold` takes them, for each group.
        precision: above 0 and below 1.
        delta: the chance of an error in any group.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.selective import precision_thresholds
        >>> sure, right = np.full(80, 0.9999), np.ones(80, bool)
        >>> [found.value for found in precision_thresholds([(sure, right), (sure[:60], right[:60])], 0.95)]
        [0.0, 0.0]
        >>> precision_thresholds([(sure[:60], right[:60])] * 3, 0.95)[2]  # 60 are enough for all of delta only
        Threshold(value=0.0, images=60, needed=59)
        >>> precision_thresholds([(sure[:60], ~right[:60]), (sure[:60], right[:60])], 0.95)[1]
        Threshold(value=None, images=60, needed=72)
    """
    _check(precision, delta)
    order = sorted(range(len(groups)), key=lambda place: -len(groups[place][0]))
    tested = len(groups)
    while tested > 1 and len(groups[order[tested - 1]][0]) < precision_images_needed(precision, delta / tested):
        tested -= 1  # it cannot show anything: the others get its part
    found: dict[int, Threshold] = {}
    handed = 0.0
    for rank, place in enumerate(order):
        confidences, correct = groups[place]
        own = (delta / tested if rank < tested else 0.0) + handed
        shown, handed = _test_sequences(confidences, correct, precision, own)
        needed = precision_images_needed(precision, own or delta / (tested + 1))
        found[place] = Threshold(shown, len(confidences), needed)
    return [found[place] for place in range(len(groups))]


def _test_sequences(
    confidences: NDArray[np.float64], correct: NDArray[np.bool_], precision: float, delta: float
) -> tuple[float | None, float]:
    """Return the smallest threshold that is shown, if any, and the part of delta of sequences shown to their end."""
    level, shown, left = delta / len(SEQUENCES), [], 0.0
    for sequence in SEQUENCES:
        for value in sequence:
            answered = confidences >= value
            wrong = int((~correct[answered]).sum())
            if bdtr(wrong, int(answered.sum()), 1 - precision) > level:
                break
            shown.append(value)
        else:
            left += level
    return min(shown, default=None), left


def _check(precision: float, delta: float) -> None:
    if not 0 < precision < 1:
        raise ValueError(f"The precision must be above 0 and below 1, got {precision:g}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, got {delta:g}.")
