"""Post-hoc correction for the class prior: shift the logits, or normalise the weights of the last layer.

The probabilities of a classifier hold for the class prior it was trained on. `logits + log new - log old` makes them
hold for another prior; post-hoc logit adjustment is the change to a uniform one.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.metrics.classification import balanced_accuracy, confusion_matrix


def class_prior(counts: ArrayLike) -> NDArray[np.float64]:
    """Return the class prior, (K,): the fraction of training images per class.

    A count of 0 is replaced by the smallest count above 0.

    Example:
        >>> from evenhand.metrics.priors import class_prior
        >>> class_prior([80, 10, 10])
        array([0.8, 0.1, 0.1])
    """
    n = _frequencies(counts, "counts")
    n = np.where(n > 0, n, n[n > 0].min())
    return np.asarray(n / n.sum())


def implied_prior(counts: ArrayLike, tau: float) -> NDArray[np.float64]:
    r"""Return the class prior, (K,), for which the logits hold after training with logit adjustment.

    Training on `logits + tau log prior` gives logits for a prior proportional to prior^(1 - tau): uniform at tau = 1
    (balanced softmax), that of the training images at tau = 0 (cross entropy).

    Example:
        >>> from evenhand.metrics.priors import implied_prior
        >>> implied_prior([900, 100], tau=0.5)
        array([0.75, 0.25])
    """
    power = class_prior(counts) ** (1 - _number(tau, "tau"))
    return np.asarray(power / power.sum())


def subtract_prior(logits: ArrayLike, counts: ArrayLike, tau: float = 1.0) -> NDArray[np.float64]:
    r"""Post-hoc logit adjustment: :math:`z_k - \tau \log \pi_k`, with :math:`\pi` the class prior.

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.)

    Use it on a classifier trained with plain cross entropy that neglects rare classes; it needs no training. Do not use
    it after training with adjusted logits, which would adjust twice.

    Args:
        logits: (N, K).
        counts: training images per class, (K,); a count of 0 is replaced by the smallest above 0.
        tau: 1 corrects for the prior, 0 changes nothing.

    Returns:
        (N, K), float64.

    Example:
        >>> from evenhand.metrics.priors import subtract_prior
        >>> subtract_prior([[1.0, 0.0]], counts=[90, 10]).round(3)
        array([[1.105, 2.303]])
    """
    prior = class_prior(counts)
    return _logits(logits, len(prior)) - _number(tau, "tau") * np.log(prior)


TAUS = np.linspace(0, 3, 31)
"""The grid of :func:`best_tau`."""


def best_tau(logits: ArrayLike, targets: ArrayLike, counts: ArrayLike) -> float:
    """Return the tau of :func:`subtract_prior` with the best balanced accuracy; of equal ones the nearest to 1.

    Args:
        logits: of validation images, (N, K).
        targets: their classes, (N,); a class without images is left out of the mean.
        counts: training images per class, (K,).

    Example:
        >>> from evenhand.metrics.priors import best_tau
        >>> best_tau([[2.0, 1.0], [2.0, 0.0]], [1, 0], counts=[90, 10])  # correct from 0.5 to 0.9
        0.9
    """
    labels, z = np.asarray(targets, np.int64), np.asarray(logits, np.float64)
    shift = np.log(class_prior(counts))
    each = [balanced_accuracy(confusion_matrix(labels, (z - tau * shift).argmax(1), len(shift))) for tau in TAUS]
    best = TAUS[np.isclose(each, max(each), rtol=0, atol=1e-12)]
    return float(round(best[np.argmin(np.abs(best - 1))], 3))


def change_prior(logits: ArrayLike, old: ArrayLike, new: ArrayLike) -> NDArray[np.float64]:
    r"""Return logits for another class prior: :math:`z_k + \log q_k - \log p_k`, from prior p to q.

    This is Bayes' rule where only the prior changes, and not how the images of a class look (Saerens et al. 2002,
    *Adjusting the Outputs of a Classifier to New a Priori Probabilities*).

    Use it where the class frequencies in use are known and differ from those of training.

    Args:
        logits: (N, K).
        old: the prior of the logits, (K,), in any unit, all above 0.
        new: the new prior, (K,), in any unit; a class with 0 gets a probability of 0.

    Returns:
        (N, K), float64.

    Example:
        >>> from evenhand.metrics.priors import change_prior
        >>> change_prior([[0.0, 0.0]], old=[0.5, 0.5], new=[0.9, 0.1]).round(3)
        array([[ 0.588, -1.609]])
    """
    before, after = _frequencies(old, "old"), _frequencies(new, "new")
    if len(before) != len(after):
        raise ValueError(f"old and new must have one value per class, got {len(before)} and {len(after)}.")
    if (before == 0).any():
        raise ValueError(f"old must be above 0 for every class, got {before.tolist()}.")
    with np.errstate(divide="ignore"):
        shift = np.log(after / after.sum()) - np.log(before / before.sum())
    return np.asarray(_logits(logits, len(before)) + shift)


def tau_normalise(weights: ArrayLike, tau: float = 1.0) -> NDArray[np.float64]:
    r"""Return tau-normalised weights of a linear classifier: :math:`w_k / \lVert w_k \rVert^\tau`.

    (Kang et al. 2020, *Decoupling Representation and Classifier for Long-Tailed Recognition*.) Frequent classes tend to
    have weights of larger norm. They are used without a bias.

    Use it as an alternative to :func:`subtract_prior` where the last layer is available; tune tau on validation images.

    Args:
        weights: one row per class, (K, D).
        tau: 0 changes nothing, 1 gives all rows the norm 1. Without the bias, predictions differ even at 0.

    Returns:
        (K, D), float64; a row of zeros stays as it is.

    Example:
        >>> from evenhand.metrics.priors import tau_normalise
        >>> tau_normalise([[3.0, 4.0], [0.0, 1.0]])
        array([[0.6, 0.8],
               [0. , 1. ]])
    """
    rows = np.asarray(weights, np.float64)
    if rows.ndim != 2:
        raise ValueError(f"weights must be one row per class, (K, D), got shape {rows.shape}.")
    norm = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norm > 0, norm, 1.0) ** _number(tau, "tau"))


def _number(value: float, name: str) -> float:
    if not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def _frequencies(values: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be one number per class, got {values!r}.") from None
    if array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all() or not array.any():
        raise ValueError(f"{name} must be one finite number per class, 0 or more and not all 0, got {array.tolist()}.")
    return array


def _logits(logits: ArrayLike, classes: int) -> NDArray[np.float64]:
    z = np.asarray(logits, np.float64)
    if z.ndim != 2 or z.shape[1] != classes:
        raise ValueError(f"logits must be (N, {classes}) for {classes} classes, got shape {z.shape}.")
    return z
