"""Classification metrics, as pure functions of a confusion matrix or of probabilities.

A function of the confusion matrix also takes the labels themselves, as keywords only, because scikit-learn and
torchmetrics disagree on their order: `balanced_accuracy(preds=predicted, target=actual)`. Both are integer classes,
arrays, lists or CPU tensors of shape (N,); `num_classes` is one more than the largest label if it is not given.

A class that does not occur among the targets has no recall: it is left out of every mean, never counted as 0. In
arrays of one value per class, (K,), NaN marks it; :func:`absent_classes` lists it.
"""

from collections.abc import Callable, Iterable
from functools import update_wrapper
from typing import Protocol, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Confusion = NDArray[np.int64]
"""(K, K): the number of images of each actual class (row) predicted as each class (column)."""

_Result = TypeVar("_Result", covariant=True)


class ConfusionMetric(Protocol[_Result]):
    """A metric of a confusion matrix, or of predicted and actual labels."""

    @overload
    def __call__(self, confusion: Confusion) -> _Result: ...
    @overload
    def __call__(self, *, preds: ArrayLike, target: ArrayLike, num_classes: int | None = None) -> _Result: ...


def _or_labels(function: Callable[[Confusion], _Result]) -> ConfusionMetric[_Result]:
    """Let a function of the confusion matrix also take `preds=` and `target=`."""

    def metric(
        confusion: Confusion | None = None,
        *,
        preds: ArrayLike | None = None,
        target: ArrayLike | None = None,
        num_classes: int | None = None,
    ) -> _Result:
        if confusion is None and preds is not None and target is not None:
            return function(confusion_matrix(preds=preds, target=target, num_classes=num_classes))
        if confusion is None or preds is not None or target is not None or num_classes is not None:
            raise TypeError(f"{function.__name__} takes a confusion matrix, or preds= and target=.")
        return function(confusion)

    update_wrapper(metric, function, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    del vars(metric)["__wrapped__"]  # so that help() shows the keywords
    return metric


@overload
def confusion_matrix(targets: ArrayLike, predicted: ArrayLike, num_classes: int | None = None) -> Confusion: ...
@overload
def confusion_matrix(*, preds: ArrayLike, target: ArrayLike, num_classes: int | None = None) -> Confusion: ...
def confusion_matrix(
    targets: ArrayLike | None = None,
    predicted: ArrayLike | None = None,
    num_classes: int | None = None,
    *,
    preds: ArrayLike | None = None,
    target: ArrayLike | None = None,
) -> Confusion:
    """Count the images of each actual class by predicted class.

    Args:
        targets: integers (N,), the actual classes. Positional order is that of scikit-learn.
        predicted: integers (N,), the predicted classes.
        num_classes: K; None: one more than the largest label.
        preds: `predicted`, by the keyword of torchmetrics.
        target: `targets`, by the keyword of torchmetrics.

    Returns:
        (K, K): N_ij, the number of images of class i (row) predicted as class j (column).

    Example:
        >>> from evenhand.metrics.classification import confusion_matrix
        >>> confusion_matrix([0, 0, 1], [0, 1, 1], 2)
        array([[1, 1],
               [0, 1]])
        >>> confusion_matrix(preds=[0, 1, 1], target=[0, 0, 1])
        array([[1, 1],
               [0, 1]])
    """
    if (targets is None) == (target is None) or (predicted is None) == (preds is None):
        raise TypeError("confusion_matrix takes targets and predicted, or preds= and target=.")
    actual = _labels(target if targets is None else targets, "targets")
    chosen = _labels(preds if predicted is None else predicted, "predicted")
    if actual.shape != chosen.shape:
        raise ValueError(f"targets and predicted must both be (N,), got {actual.shape} and {chosen.shape}.")
    size = int(max(actual.max(initial=-1), chosen.max(initial=-1))) + 1 if num_classes is None else num_classes
    for name, labels in (("targets", actual), ("predicted", chosen)):
        # A label outside would not fail below, but be counted in a wrong cell.
        if len(labels) and not 0 <= labels.min() <= labels.max() < size:
            raise ValueError(f"{name} must be 0 to {size - 1}, got {labels.min()} to {labels.max()}.")
    return np.bincount(actual * size + chosen, minlength=size**2).astype(np.int64, copy=False).reshape(size, size)


def _labels(values: ArrayLike | None, name: str) -> NDArray[np.int64]:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be integer classes of shape (N,), got {labels.dtype} of shape {labels.shape}; "
            "take the argmax of logits or probabilities first."
        )
    return labels.astype(np.int64)


@_or_labels
def absent_classes(confusion: Confusion) -> list[int]:
    """Return the classes without a test image, which no mean includes."""
    return [int(k) for k in np.flatnonzero(confusion.sum(axis=1) == 0)]


@_or_labels
def accuracy(confusion: Confusion) -> float:
    """Return the fraction of images that were classified correctly.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import accuracy
        >>> accuracy(np.array([[97, 0], [3, 0]]))
        0.97
    """
    _occurring(confusion)
    return float(confusion.trace() / confusion.sum())


@_or_labels
def balanced_accuracy(confusion: Confusion) -> float:
    r"""Return the mean recall of the classes that occur: every class has the same weight, however rare it is.

    .. math:: \text{bACC} = \frac{1}{K}\sum_{i=1}^{K} \frac{N_{i,i}}{\sum_j N_{i,j}}

    This is equation 6 of the complement cross entropy paper, K being the number of classes with a test image.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import balanced_accuracy
        >>> balanced_accuracy(np.array([[97, 0], [3, 0]]))
        0.5
        >>> balanced_accuracy(preds=[0, 0, 0, 1, 1], target=[0, 0, 0, 0, 1])
        0.875
    """
    return float(class_recall(confusion)[_occurring(confusion)].mean())


def mean_recall(confusion: Confusion, classes: Iterable[int]) -> float | None:
    """Return the mean recall of some classes, those with many training images for instance.

    Args:
        confusion: (K, K).
        classes: the classes to average over.

    Returns:
        The mean recall of those that occur; None where none does.

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


@_or_labels
def class_recall(confusion: Confusion) -> NDArray[np.float64]:
    """Return the recall of each class, (K,), NaN for a class that does not occur.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import class_recall
        >>> class_recall(np.array([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
        array([0.75, 1.  ,  nan])
    """
    return _ratio(confusion.diagonal(), confusion.sum(axis=1))


@_or_labels
def class_precision(confusion: Confusion) -> NDArray[np.float64]:
    """Return the precision of each class, (K,), NaN for a class that does not occur.

    A class that occurs but was never predicted has precision 0, as with scikit-learn's `zero_division=0`. A class that
    does not occur has none even if it was predicted: it would be 0 for any model.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import class_precision
        >>> class_precision(np.array([[3, 0, 1], [1, 0, 0], [0, 0, 0]]))
        array([0.75, 0.  ,  nan])
    """
    precision = _ratio(confusion.diagonal(), np.maximum(confusion.sum(axis=0), 1))
    precision[confusion.sum(axis=1) == 0] = np.nan
    return precision


@_or_labels
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
    f1 = _ratio(2 * confusion.diagonal(), support + confusion.sum(axis=0))
    f1[support == 0] = np.nan
    return f1


@_or_labels
def macro_f1(confusion: Confusion) -> float:
    """Return the mean F1 of the classes that occur.

    scikit-learn and torchmetrics also count, as 0, classes that do not occur but were predicted for some image. Where
    every predicted class occurs, all three agree; scikit-learn always does with `labels=` the classes that occur.

    Example:
        >>> from evenhand.metrics.classification import macro_f1
        >>> macro_f1(preds=[0, 0, 1, 1], target=[0, 0, 1, 1])
        1.0
    """
    return float(class_f1(confusion)[_occurring(confusion)].mean())


@_or_labels
def geometric_mean(confusion: Confusion) -> float:
    """Return the geometric mean of the recalls of the classes that occur: 0 if one class is never recognised.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import geometric_mean
        >>> round(geometric_mean(np.array([[9, 1], [6, 4]])), 6), geometric_mean(np.array([[9, 1], [10, 0]]))
        (0.6, 0.0)
    """
    recall = class_recall(confusion)[_occurring(confusion)]
    # By logarithms, as the product of a thousand recalls underflows.
    return float(np.exp(np.log(recall).mean())) if recall.all() else 0.0


@_or_labels
def matthews_correlation(confusion: Confusion) -> float:
    """Return the multiclass Matthews correlation coefficient, -1 to 1: 1 is perfect, 0 no better than chance.

    It is 0 where all images are of one class, or are predicted as one, as in scikit-learn.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import matthews_correlation
        >>> matthews_correlation(np.array([[97, 0], [3, 0]])), matthews_correlation(np.array([[0, 5], [5, 0]]))
        (0.0, -1.0)
    """
    _occurring(confusion)
    n, actual, predicted = confusion.sum(), confusion.sum(axis=1), confusion.sum(axis=0)
    spread = float(n**2 - actual @ actual) * float(n**2 - predicted @ predicted)
    return float((n * confusion.trace() - actual @ predicted) / np.sqrt(spread)) if spread else 0.0


@_or_labels
def cohen_kappa(confusion: Confusion) -> float:
    """Return Cohen's kappa, -1 to 1: the agreement of actual and predicted classes above chance; 1 is perfect.

    It is 0 where all images are of one class and are predicted as it, where scikit-learn returns NaN.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.classification import cohen_kappa
        >>> cohen_kappa(np.array([[97, 0], [3, 0]])), cohen_kappa(np.array([[40, 10], [10, 40]]))
        (0.0, 0.6)
    """
    _occurring(confusion)
    n, chance = confusion.sum(), confusion.sum(axis=1) @ confusion.sum(axis=0)
    return float((n * confusion.trace() - chance) / (n**2 - chance)) if n**2 > chance else 0.0


@_or_labels
def worst_class(confusion: Confusion) -> int:
    """Return the class with the lowest recall among those that occur; of equal ones the first."""
    occurring = _occurring(confusion)
    return int(occurring[class_recall(confusion)[occurring].argmin()])


def negative_log_likelihood(log_probabilities: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """Return the mean negative log probability of the actual class, in nats.

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
    r"""Return the expected calibration error: the mean gap between confidence and accuracy over bins of confidence.

    .. math:: \text{ECE} = \sum_{m=1}^{M} \frac{|B_m|}{N} \, \left|\text{acc}(B_m) - \text{conf}(B_m)\right|

    The bins :math:`((m - 1)/M, m/M]` are of equal width, closed above, as in Guo et al. (2017), *On calibration of
    modern neural networks*. (torchmetrics closes them below, so a confidence of exactly 1 has a bin of its own there.)
    The value depends on the number of bins, and is larger with fewer images per bin: compare models only with the same
    bins and the same images.

    Args:
        confidences: (N,), the probability of the predicted class.
        correct: (N,), whether the prediction is correct.
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
    # |B| |acc(B) - conf(B)| is the absolute sum of the differences in B.
    gaps = np.bincount(np.searchsorted(inner_edges, confidences, side="left"), correct - confidences, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidences))


def _occurring(confusion: Confusion) -> NDArray[np.intp]:
    """Return the classes that occur; there must be one."""
    classes = np.flatnonzero(confusion.sum(axis=1))
    if not len(classes):
        raise ValueError(f"the confusion matrix, {confusion.shape}, counts no image.")
    return classes


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.float64]:
    """Divide, with NaN where the whole is 0."""
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio
