r"""Prediction sets with a coverage for each class, by class-conditional (Mondrian) conformal prediction.

A class is in the set of an image unless the image is less typical of it than nearly all calibration images of that
class. With one model, every class is covered with the probability asked for. Several models, each calibrated on images
that it has not seen, pool their calibration images (cross-conformal prediction); see :meth:`Calibration.guaranteed`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

Sets = NDArray[np.bool_]
"""(N, K): whether each class is in the prediction set of each image."""


def images_needed(coverage: float) -> int:
    r"""Return the smallest number of calibration images with which a class can be left out of a prediction set.

    The n for which :math:`\lceil (n + 1)(1 - \alpha) \rceil \le n`.

    Args:
        coverage: above 0 and below 1.

    Example:
        >>> from evenhand.statistics.conformal import images_needed
        >>> images_needed(0.9), images_needed(0.95)
        (9, 19)
    """
    alpha = _alpha(coverage)
    return math.ceil((1 - alpha) / alpha)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Typicality scores of calibration images, for prediction sets.

    Attributes:
        scores: for each fold the score of its calibration images for their own class, (n,): larger is more typical,
            such as the probability of the class.
        targets: for each fold the classes of these images, (n,).
        num_classes: K.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.conformal import Calibration
        >>> own = np.concatenate([np.linspace(0.1, 0.9, 9), [0.2, 0.7]])
        >>> calibration = Calibration((own,), (np.repeat([0, 1], [9, 2]),), num_classes=2)
        >>> calibration.counts, calibration.too_few(0.9)
        (array([9, 2]), array([1]))
        >>> calibration.sets([[[0.05, 0.95], [0.1, 0.9]]], 0.9)
        array([[False,  True],
               [ True,  True]])
    """

    scores: tuple[NDArray[np.float64], ...]
    targets: tuple[NDArray[np.int64], ...]
    num_classes: int

    @property
    def folds(self) -> int:
        """Models that are calibrated on images of their own."""
        return len(self.scores)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Calibration images of each class in all folds together, (K,)."""
        counts = [np.bincount(own, minlength=self.num_classes) for own in self.targets]
        return np.asarray(np.sum(counts, axis=0), np.int64)

    def too_few(self, coverage: float) -> NDArray[np.int64]:
        """Return the classes with too few calibration images, which are in every set."""
        return np.flatnonzero(self.counts < images_needed(coverage))

    def guaranteed(self, coverage: float) -> NDArray[np.float64]:
        r"""Return the probability with which each class is at least covered, (K,).

        With one fold that is the coverage asked for, and 1 for a class with too few images. With F folds the pooled
        rank r of an image is a weighted mean of F p-values, (r + F) / (n + F), whose double is a p-value (Vovk and Wang
        2020, *Combining p-values via averaging*), so that the bound is
        :math:`1 - 2 (\lfloor \alpha (n + 1) \rfloor - 1 + F) / (n + F)`: it tends to :math:`1 - 2 \alpha` for many
        images, while about :math:`1 - \alpha` is usual.
        """
        alpha, counts = _alpha(coverage), self.counts
        least = self._least(alpha)
        if self.folds == 1:
            missed = np.full(self.num_classes, float(alpha))
        else:
            missed = np.minimum(2 * (least - 1 + self.folds) / (counts + self.folds), 1.0)
        return np.asarray(np.where(least > 0, 1 - missed, 1.0))

    def sets(self, scores: Sequence[ArrayLike], coverage: float) -> Sets:
        """Return the prediction sets of images.

        Args:
            scores: for each fold the scores of its model, (N, K).
            coverage: above 0 and below 1.
        """
        alpha = _alpha(coverage)
        below = np.zeros(np.shape(scores[0]), np.int64)
        for own, targets, new in zip(self.scores, self.targets, scores, strict=True):
            below += _at_most(own, targets, np.asarray(new))
        return np.asarray(below >= self._least(alpha))

    def _least(self, alpha: Fraction) -> NDArray[np.int64]:
        """Return how many calibration images of each class must be at most as typical as an image in the set, (K,)."""
        # The p-value (number + 1) / (n + 1) must be above alpha.
        return np.array([math.floor(alpha * (int(n) + 1)) for n in self.counts])

    def thresholds(self, coverage: float) -> NDArray[np.float64]:
        """Return the score that each class needs to be in a set, (K,), of one fold; -inf: the class is in every set."""
        if self.folds != 1:
            raise ValueError(f"thresholds needs one fold, got {self.folds}.")
        alpha, found = _alpha(coverage), np.full(self.num_classes, -np.inf)
        for k in range(self.num_classes):
            own = np.sort(self.scores[0][self.targets[0] == k])
            place = math.floor(alpha * (len(own) + 1))
            if place:
                found[k] = own[place - 1]
        return found


def leave_one_out_sets(scores: ArrayLike, targets: NDArray[np.int64], coverage: float) -> Sets:
    """Return the prediction sets of images, each calibrated on all others.

    They estimate the size of sets with one image less per class. The coverage of a class follows from its count alone,
    and is no evidence.

    Args:
        scores: of one model, (N, K), larger is more typical of a class.
        targets: (N,).
        coverage: above 0 and below 1.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.conformal import leave_one_out_sets
        >>> p = np.linspace(0.1, 0.99, 20)
        >>> leave_one_out_sets(np.stack([p, 1 - p], 1), np.repeat([1, 0], 10), 0.8).sum(1).tolist()
        [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    """
    new, alpha = np.asarray(scores), _alpha(coverage)
    rows = np.arange(len(targets))
    below = _at_most(new[rows, targets], targets, new)
    below[rows, targets] -= 1  # the image itself
    counts = np.tile(np.bincount(targets, minlength=new.shape[1]), (len(new), 1))
    counts[rows, targets] -= 1
    least = np.array([math.floor(alpha * (n + 1)) for n in range(int(counts.max()) + 1)])
    return np.asarray(below >= least[counts])


def _at_most(own: NDArray[np.float64], targets: NDArray[np.int64], new: NDArray[np.float64]) -> NDArray[np.int64]:
    """Count for each image and class the calibration images of the class that are at most as typical, (N, K)."""
    found = np.empty(new.shape, np.int64)
    for k in range(new.shape[1]):
        found[:, k] = np.searchsorted(np.sort(own[targets == k]), new[:, k], side="right")
    return found


def _alpha(coverage: float) -> Fraction:
    """Return 1 - coverage as the decimal number that was written, so that counts do not depend on rounding."""
    if not 0 < coverage < 1:
        raise ValueError(f"The coverage must be above 0 and below 1, got {coverage:g}.")
    return 1 - Fraction(repr(float(coverage)))
