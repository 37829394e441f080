"""What can be done about the class shares after training: shift the logits, or even out the last layer's weights.

The probabilities of a classifier hold for the class shares it was trained on. `logits + log new - log old` makes them
hold for other shares, and a shift by the log prior is the change to equal ones.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.metrics.classification import balanced_accuracy, confusion_matrix


def class_prior(counts: ArrayLike) -> NDArray[np.float64]:
    """Return the share of each class among the training images, (K); a count of 0 is taken for the smallest above it.

    Example:
        >>> from evenhand.metrics.priors import class_prior
        >>> class_prior([80, 10, 10])
        array([0.8, 0.1, 0.1])
    """
    n = _shares(counts, "counts")
    n = np.where(n > 0, n, n[n > 0].min())
    return np.asarray(n / n.sum())


def implied_prior(counts: ArrayLike, tau: float) -> NDArray[np.float64]:
    r"""Return the class shares, (K), that the logits of a training with logit adjustment stand for.

    Training on `logits + tau log prior` leaves logits that belong to shares proportional to prior^(1 - tau): equal ones
    at tau = 1 (balanced softmax), those of the training images at tau = 0 (cross entropy).

    Example:
        >>> from evenhand.metrics.priors import implied_prior
        >>> implied_prior([900, 100], tau=0.5)
        array([0.75, 0.25])
    """
    power = class_prior(counts) ** (1 - _number(tau, "tau"))
    return np.asarray(power / power.sum())


def subtract_prior(logits: ArrayLike, counts: ArrayLike, tau: float = 1.0) -> NDArray[np.float64]:
    r"""Post-hoc logit adjustment: :math:`z_k - \tau \log \pi_k`, with :math:`\pi` the shares of the training images.

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.)

    When to use it: on a finished classifier that was trained with plain cross entropy and neglects its rare classes; it
    costs no training. Not after a training that adjusted its logits itself, which would adjust twice.

    Args:
        logits: (N, K).
        counts: training images a class, (K); a count of 0 is taken for the smallest above it.
        tau: how much of the log prior; 1 makes up for it, 0 changes nothing.

    Returns:
        (N, K), float64.

    Example:
        >>> from evenhand.metrics.priors import subtract_prior
        >>> subtract_prior([[1.0, 0.0]], counts=[90, 10]).round(3)
        array([[1.105, 2.303]])
    """
    prior = class_prior(counts)
    return _logits(logits, len(prior)) - _number(tau, "tau") * np.log(prior)


adjust_logits = subtract_prior
"""Its former name."""

TAUS = np.linspace(0, 3, 31)
"""What `best_tau` tries."""


def best_tau(logits: ArrayLike, targets: ArrayLike, counts: ArrayLike) -> float:
    """Return the tau of :func:`subtract_prior` with the best balanced accuracy, of several the one nearest to 1.

    Args:
        logits: of validation images, (N, K).
        targets: their classes, (N,); a class without images is left out of the mean.
        counts: training images a class, (K).

    Example:
        >>> from evenhand.metrics.priors import best_tau
        >>> best_tau([[2.0, 1.0], [2.0, 0.0]], [1, 0], counts=[90, 10])  # right from 0.5 to 0.9
        0.9
    """
    labels, z = np.asarray(targets, np.int64), np.asarray(logits, np.float64)
    shift = np.log(class_prior(counts))
    each = [balanced_accuracy(confusion_matrix(labels, (z - tau * shift).argmax(1), len(shift))) for tau in TAUS]
    best = TAUS[np.isclose(each, max(each), rtol=0, atol=1e-12)]
    return float(round(best[np.argmin(np.abs(best - 1))], 3))


def change_prior(logits: ArrayLike, old: ArrayLike, new: ArrayLike) -> NDArray[np.float64]:
    r"""Logits for other class shares: :math:`z_k + \log q_k - \log p_k`, from shares p to q.

    It is Bayes' rule where what an image of a class looks like stays the same and only the shares change (Saerens et
    al. 2002, *Adjusting the Outputs of a Classifier to New a Priori Probabilities*).

    When to use it: where the classes occur in use in shares that are known, and not those that were trained on.

    Args:
        logits: (N, K).
        old: the shares that the logits stand for, (K), in any unit, all above 0.
        new: the shares to change to, (K), in any unit; a class with share 0 gets a probability of 0.

    Returns:
        (N, K), float64.

    Example:
        >>> from evenhand.metrics.priors import change_prior
        >>> change_prior([[0.0, 0.0]], old=[0.5, 0.5], new=[0.9, 0.1]).round(3)
        array([[ 0.588, -1.609]])
    """
    before, after = _shares(old, "the old shares"), _shares(new, "the new shares")
    if len(before) != len(after):
        raise ValueError(f"There are {len(before)} old shares and {len(after)} new ones: give one of each a class.")
    if (before == 0).any():
        raise ValueError("A class with an old share of 0 cannot be given another: its logit says nothing.")
    with np.errstate(divide="ignore"):
        shift = np.log(after / after.sum()) - np.log(before / before.sum())
    return np.asarray(_logits(logits, len(before)) + shift)


def tau_normalise(weights: ArrayLike, tau: float = 1.0) -> NDArray[np.float64]:
    r"""Weights of a linear classifier with their lengths evened out: :math:`w_k / \lVert w_k \rVert^\tau`.

    (Kang et al. 2020, *Decoupling Representation and Classifier for Long-Tailed Recognition*.) Frequent classes tend to
    have longer weights. They are used without a bias.

    When to use it: as an alternative to :func:`subtract_prior` on a finished classifier whose last layer is at hand;
    tau is tuned on validation images.

    Args:
        weights: one row a class, (K, D).
        tau: 0 leaves the weights as they are, 1 makes all rows equally long. Without its bias a classifier answers
            otherwise even at 0.

    Returns:
        (K, D), float64; a row of zeros stays one.

    Example:
        >>> from evenhand.metrics.priors import tau_normalise
        >>> tau_normalise([[3.0, 4.0], [0.0, 1.0]])
        array([[0.6, 0.8],
               [0. , 1. ]])
    """
    rows = np.asarray(weights, np.float64)
    if rows.ndim != 2:
        raise ValueError(f"The weights of a classifier are one row a class, (K, D), not of shape {rows.shape}.")
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1.0) ** _number(tau, "tau"))


def _number(value: float, name: str) -> float:
    if not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}.")
    return float(value)


def _shares(values: ArrayLike, name: str) -> NDArray[np.float64]:
    try:
        shares = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be one number a class, got {values!r}.") from None
    if shares.ndim != 1 or not (np.isfinite(shares) & (shares >= 0)).all() or not shares.any():
        raise ValueError(f"{name} must be one finite number a class, 0 or more and not all 0, got {shares.tolist()}.")
    return shares


def _logits(logits: ArrayLike, classes: int) -> NDArray[np.float64]:
    z = np.asarray(logits, np.float64)
    if z.ndim != 2 or z.shape[1] != classes:
        raise ValueError(f"Logits for {classes} classes have the shape (N, {classes}), not {z.shape}.")
    return z
