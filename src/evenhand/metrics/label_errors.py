"""Wrong labels: rank images by how far out-of-fold predictions contradict their label, and flag some of them.

A class that the model knows less well, as a rare one, has low probabilities for its own images. With one threshold for
all classes, its correct labels would be flagged first; so each class has a threshold of its own.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """How likely each label is wrong, by :func:`find_label_errors`."""

    scores: NDArray[np.float64]
    """(N,): probability of the label divided by that of the most probable other class; the lowest is the most likely
    wrong."""
    suggested: NDArray[np.int64]
    """(N,): the most probable class other than the label."""
    flagged: NDArray[np.bool_]
    """(N,): whether it is among the images of its class with the lowest scores, as many as contradict their label."""
    thresholds: NDArray[np.float64]
    """(K,): mean probability of a class over the images with its label; NaN for a class without images."""

    def ranking(self) -> NDArray[np.int64]:
        """Return the rows, the most likely wrong label first."""
        return np.asarray(np.argsort(self.scores, kind="stable"), np.int64)


def find_label_errors(probabilities: ArrayLike, targets: ArrayLike) -> LabelErrors:
    r"""Rank labels by the odds of the label against the best other class; flag some by confident learning.

    The score of an image is :math:`p_{i y_i} / \max_{j \ne y_i} p_{ij}`: a doubtful image, whose probability is spread
    over many classes, contradicts its label less than one that is surely of another class.

    How many labels are wrong is counted for each class (Northcutt et al. 2021, *Confident Learning: Estimating
    Uncertainty in Dataset Labels*). The threshold of class k is its mean self-confidence,
    :math:`t_k = \mathrm{mean}_{i: y_i = k}\, p_{ik}`. An image contradicts its label if, among the classes with
    :math:`p_{ij} \ge t_j`, the most probable one is not the label. Flagged are as many images of a class as contradict
    their label (the confident joint), those with the lowest scores. Classes without images are left out.

    Args:
        probabilities: (N, K), of models that were not trained on the image, for the class shares of these labels.
        targets: the labels, (N,), 0 to K - 1.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.label_errors import find_label_errors
        >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.5, 0.5], [0.4, 0.6]]
        >>> found = find_label_errors(probabilities, [0, 0, 0, 1, 1])
        >>> found.ranking().tolist(), found.flagged.tolist(), found.thresholds.round(2).tolist()
        ([2, 3, 4, 1, 0], [False, False, True, False, False], [0.6, 0.55])
    """
    p, labels = np.asarray(probabilities, np.float64), np.asarray(targets, np.int64)
    if p.ndim != 2 or labels.shape != p.shape[:1] or not len(labels):
        raise ValueError(f"needs probabilities (N, K) and targets (N,), N of 1 or more, got {p.shape}, {labels.shape}.")
    if labels.min() < 0 or labels.max() >= p.shape[1]:
        raise ValueError(f"targets must be 0 to {p.shape[1] - 1}, got {labels.min()} to {labels.max()}.")
    if not (np.isfinite(p) & (p >= 0)).all():
        raise ValueError("probabilities must be finite and 0 or more.")
    rows, classes = np.arange(len(p)), p.shape[1]
    own = p[rows, labels]
    counts = np.bincount(labels, minlength=classes)
    with np.errstate(invalid="ignore"):
        thresholds = np.bincount(labels, own, minlength=classes) / counts
    bound = np.where(counts > 0, np.maximum(thresholds, _SMALLEST), np.inf)
    others = np.where(counts > 0, p, 0.0)
    others[rows, labels] = -1
    reached = np.where(p >= bound - _SMALLEST, p, -1)
    best = np.where(reached.max(1) == reached[rows, labels], labels, reached.argmax(1))
    scores = own / np.maximum(others.max(1), _SMALLEST)
    wrong = np.bincount(labels[(reached.max(1) >= 0) & (best != labels)], minlength=classes)
    order = np.lexsort((scores, labels))  # by class, the lowest score first
    flagged = np.zeros(len(p), bool)
    flagged[order] = rows - (counts.cumsum() - counts)[labels[order]] < wrong[labels[order]]
    return LabelErrors(
        scores=scores,
        suggested=np.asarray(others.argmax(1), np.int64),
        flagged=flagged,
        thresholds=np.asarray(thresholds),
    )
