"""How good predictions are, as pure functions of a confusion matrix or of probabilities.

A class that does not occur among the targets has no recall: it is left out of every mean here, never counted as 0. In
arrays of one value a class, (K,), NaN marks it; :func:`absent_classes` names it.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Confusion = NDArray[np.int64]
"""(K, K): how many images of each actual class (rows) were taken for each class (columns)."""


def confusion_matrix(targets: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int) -> Confusion:
    """Count how often each class was taken for each.

    Args:
        targets: (N,), the actual classes.
        predicted: (N,), what they were taken for.
        num_classes: K.

    Returns:
        (K, K): N_ij, the images of class i (row) taken for class j (column).

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import confusion_matrix
        >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
        array([[1, 1],
               [0, 1]])
    """
    if targets.ndim != 1 or targets.shape != predicted.shape:
        raise ValueError(f"targets and predicted must both be (N,), got {targets.shape} and {predicted.shape}.")
    for name, labels in (("targets", targets), ("predicted", predicted)):
        # A label outside would not fail below, but be counted in a wrong cell.
        if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
            raise ValueError(f"{name} must be 0 to {num_classes - 1}, got {labels.min()} to {labels.max()}.")
    cells = targets.astype(np.int64) * num_classes + predicted
    return np.bincount(cells, minlength=num_classes**2).astype(np.int64, copy=False).reshape(num_classes, num_classes)


def absent_classes(confusion: Confusion) -> list[int]:
    """Return the classes without a test image, which no mean includes."""
    return [int(k) for k in np.flatnonzero(confusion.sum(axis=1) == 0)]


def accuracy(confusion: Confusion) -> float:
    """Return the share of images that were classified rightly.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import accuracy
        >>> accuracy(np.array([[97, 0], [3, 0]]))
        0.97
    """
    _tested(confusion)
    return float(confusion.trace() / confusion.sum())


def balanced_accuracy(confusion: Confusion) -> float:
    r"""Return the mean of the recalls of the classes that occur, each counting the same however rare it is.

    .. math:: \text{bACC} = \frac{1}{K}\sum_{i=1}^{K} \frac{N_{i,i}}{\sum_j N_{i,j}}

    This is equation 6 of the complement cross entropy paper, K being the number of classes with a test image.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import balanced_accuracy
        >>> balanced_accuracy(np.array([[97, 0], [3, 0]]))
        0.5
        >>> balanced_accuracy(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
        0.875
    """
    return float(class_recall(confusion)[_tested(confusion)].mean())


def mean_recall(confusion: Confusion, classes: Iterable[int]) -> float | None:
    """Return the balanced accuracy of some classes, those with many training images for instance.

    Args:
        confusion: (K, K).
        classes: the classes of the group.

    Returns:
        The mean recall of those classes that occur; None where none of them does.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import mean_recall
        >>> confusion = np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]])
        >>> mean_recall(confusion, [1, 2]), mean_recall(confusion, [2])
        (1.0, None)
    """
    recall = class_recall(confusion)[list(classes)]
    recall = recall[~np.isnan(recall)]
    return float(recall.mean()) if len(recall) else None


def class_recall(confusion: Confusion) -> NDArray[np.float64]:
    """Return the share of the images of each class that were recognised, (K,), NaN for a class that does not occur.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import class_recall
        >>> class_recall(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
        array([0.75, 1.  ,  nan])
    """
    return _shares(confusion.diagonal(), confusion.sum(axis=1))


def class_precision(confusion: Confusion) -> NDArray[np.float64]:
    """Return the share of the images taken for each class that really are of it, (K,).

    A class that occurs but was never predicted has precision 0, as with scikit-learn's `zero_division=0`: the ratio is
    0/0 there, and 0 says that nothing of it was found. NaN marks a class that does not occur, even if it was predicted:
    its precision would be 0 for any model.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import class_precision
        >>> class_precision(np.array([[3, 0, 1], [1, 0, 0], [0, 0, 0]]))
        array([0.75, 0.  ,  nan])
    """
    hits, support = confusion.diagonal(), confusion.sum(axis=1)
    precision = _shares(hits, np.maximum(confusion.sum(axis=0), 1))
    precision[support == 0] = np.nan
    return precision


def class_f1(confusion: Confusion) -> NDArray[np.float64]:
    """Return the harmonic mean of recall and precision of each class, (K,), NaN for a class that does not occur.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import class_f1
        >>> class_f1(np.array([[3, 1, 0], [1, 3, 0], [0, 0, 0]]))
        array([0.75, 0.75,  nan])
    """
    support = confusion.sum(axis=1)
    # 2 TP / (2 TP + FN + FP): the same number, and 0 rather than 0/0 where recall and precision are both 0.
    f1 = _shares(2 * confusion.diagonal(), support + confusion.sum(axis=0))
    f1[support == 0] = np.nan
    return f1


def macro_f1(confusion: Confusion) -> float:
    """Return the mean F1 of the classes that occur.

    scikit-learn and torchmetrics also count, as 0, classes that do not occur but were predicted for some image; they
    agree with this where every predicted class occurs, scikit-learn also with `labels=` the classes that do.
    """
    return float(class_f1(confusion)[_tested(confusion)].mean())


def geometric_mean(confusion: Confusion) -> float:
    """Return the geometric mean of the recalls of the classes that occur: 0 as soon as one class is never recognised.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import geometric_mean
        >>> round(geometric_mean(np.array([[9, 1], [6, 4]])), 6), geometric_mean(np.array([[9, 1], [10, 0]]))
        (0.6, 0.0)
    """
    recall = class_recall(confusion)[_tested(confusion)]
    # By logarithms, as the product of a thousand recalls underflows.
    return float(np.exp(np.log(recall).mean())) if recall.all() else 0.0


def worst_class(confusion: Confusion) -> int:
    """Return the class of lowest recall among those that occur, of equal ones the first."""
    tested = _tested(confusion)
    return int(tested[class_recall(confusion)[tested].argmin()])


def negative_log_likelihood(log_probabilities: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """Return the mean over images of minus the log probability given to the actual class, in nats.

    Args:
        log_probabilities: (N, K), see :meth:`evenhand.metrics.predictions.Predictions.log_probabilities`.
        targets: (N,), the actual classes.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import negative_log_likelihood
        >>> round(negative_log_likelihood(np.log([[0.5, 0.5], [0.1, 0.9]]), np.array([0, 1])), 4)
        0.3993
    """
    return float(-log_probabilities[np.arange(len(targets)), targets].mean())


def expected_calibration_error(
    confidences: NDArray[np.float64], correct: NDArray[np.bool_], *, bins: int = 15
) -> float:
    r"""Return how far confidence is from accuracy, as a mean over bins of similar confidence.

    .. math:: \text{ECE} = \sum_{m=1}^{M} \frac{|B_m|}{N} \, \left|\text{acc}(B_m) - \text{conf}(B_m)\right|

    The bins :math:`((m - 1)/M, m/M]` are of equal width, closed above, as in Guo et al. (2017), *On calibration of
    modern neural networks*. (torchmetrics closes them below, so a confidence of exactly 1 has a bin of its own there.)
    The value depends on the number of bins, and few images in a bin make it larger: compare it between models only
    with the same bins and the same images.

    Args:
        confidences: (N,), the probability of the most likely class.
        correct: (N,), whether that class is the actual one.
        bins: M.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import expected_calibration_error
        >>> confidences, correct = np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, True, True, False])
        >>> round(expected_calibration_error(confidences, correct), 6)
        0.05
    """
    if bins < 1 or not len(confidences) or confidences.shape != correct.shape:
        raise ValueError(
            f"needs 1 or more bins and images, got {bins} bins, confidences {confidences.shape} and correct "
            f"{correct.shape}."
        )
    inner_edges = np.linspace(0, 1, bins + 1)[1:-1]
    # |B| |acc(B) - conf(B)| is the size of the sum of the differences in B.
    gaps = np.bincount(np.searchsorted(inner_edges, confidences, side="left"), correct - confidences, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidences))


def _tested(confusion: Confusion) -> NDArray[np.intp]:
    """Return the classes that occur; without any there is nothing to judge."""
    tested = np.flatnonzero(confusion.sum(axis=1))
    if not len(tested):
        raise ValueError(f"the confusion matrix, {confusion.shape}, counts no image.")
    return tested


def _shares(parts: NDArray[np.int64], wholes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Divide, with NaN where the whole is 0."""
    shares = np.full(len(wholes), np.nan)
    np.divide(parts, wholes, out=shares, where=wholes > 0)
    return shares
