"""Decisions by cost: the class of least expected cost, and what decisions cost.

A cost matrix C is (K, K): row i, column j is the cost of deciding for class j where the true class is i. A cost per
class is the cost of missing it, whatever it is taken for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


def cost_matrix(costs: ArrayLike) -> NDArray[np.float64]:
    """Return the cost matrix, (K, K), of a cost per class, (K,), or of a matrix.

    Args:
        costs: (K,): the cost of missing each class, 0 or more and not all 0; or (K, K), negative on the diagonal only,
            for the gain of a correct decision.

    Example:
        >>> from evenhand.metrics.costs import cost_matrix
        >>> cost_matrix([1, 5])
        array([[0., 1.],
               [5., 0.]])
    """
    values = np.asarray(costs, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"costs must be finite, got {values.tolist()}.")
    if values.ndim == 1:
        if (values < 0).any() or not values.any():
            raise ValueError(f"The cost of missing a class must be 0 or more, and not all 0, got {values.tolist()}.")
        values = np.asarray(np.repeat(values[:, None], len(values), 1) * (1 - np.eye(len(values))))
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"costs must be one per class, (K,), or a matrix, (K, K), got shape {values.shape}.")
    errors = values[~np.eye(len(values), dtype=bool)]
    if (errors < 0).any():
        raise ValueError(f"The cost of an error must be 0 or more, got {errors.min():g}.")
    if (values == values[:, :1]).all():
        raise ValueError(
            "Every decision costs the same, so there is nothing to choose by; give higher costs of errors."
        )
    return values


def expected_costs(probabilities: ArrayLike, costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected cost of deciding for each class, (N, K).

    Args:
        probabilities: (N, K), for the class shares where the decisions are made.
        costs: (K, K).

    Example:
        >>> from evenhand.metrics.costs import cost_matrix, expected_costs
        >>> expected_costs([[0.8, 0.2]], cost_matrix([1, 5]))
        array([[1. , 0.8]])
    """
    return np.asarray(np.asarray(probabilities, np.float64) @ costs)


@dataclass(frozen=True)
class Cost:
    """What decisions cost per image, at given class shares."""

    realised: float
    """On the test images: the mean cost of each class, weighted by the class shares."""
    error: float
    """Its standard error over test images, or groups of them; a class of only one adds nothing to it."""
    expected: float
    """What the model's probabilities expect, averaged in the same way."""
    most_probable: float
    """Realised by deciding for the most probable class instead."""
    per_class: tuple[float | None, ...]
    """Realised mean cost of each class; None without a test image."""


def realised_costs(
    targets: NDArray[np.int64], decided: NDArray[np.int64], costs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the cost of each decision, (N,)."""
    return np.asarray(costs[targets, decided])


def cost_of_decisions(
    probabilities: NDArray[np.float64],
    targets: NDArray[np.int64],
    costs: NDArray[np.float64],
    shares: ArrayLike,
    *,
    groups: NDArray[np.str_] | None = None,
) -> Cost:
    """Return what the decisions of least expected cost cost per image.

    Args:
        probabilities: (N, K), for these class shares.
        targets: (N,).
        costs: (K, K).
        shares: how frequent each class is where the model is used, (K,); the test images may have other frequencies.
            Classes without a test image are left out.
        groups: (N,), group of each image, such as a track; None: images are independent.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.costs import cost_matrix, cost_of_decisions
        >>> found = cost_of_decisions(
        ...     np.array([[0.8, 0.2], [0.9, 0.1], [0.4, 0.6]]), np.array([0, 0, 1]), cost_matrix([1, 5]), [0.5, 0.5]
        ... )
        >>> found.realised, found.most_probable
        (0.25, 0.0)
    """
    expected = expected_costs(probabilities, costs)
    decided = expected.argmin(1)
    each = realised_costs(targets, decided, costs)
    weights = image_weights(targets, shares)
    counts = np.bincount(targets, minlength=costs.shape[0])
    sums = np.bincount(targets, each, minlength=costs.shape[0])
    means = sums / np.maximum(counts, 1)
    return Cost(
        realised=float(weights @ each),
        error=_standard_error(weights * (each - means[targets]), targets, groups),
        expected=float(weights @ expected.min(1)),
        most_probable=float(weights @ realised_costs(targets, np.asarray(probabilities).argmax(1), costs)),
        per_class=tuple(float(mean) if count else None for mean, count in zip(means, counts, strict=True)),
    )


def _standard_error(
    deviations: NDArray[np.float64], targets: NDArray[np.int64], groups: NDArray[np.str_] | None
) -> float:
    """Return the standard error of a weighted mean, from the weighted deviations of images from their class means."""
    number = np.arange(len(targets)) if groups is None else np.unique(groups, return_inverse=True)[1]
    pairs = np.unique(np.stack([number, targets]), axis=1)  # each group and class once
    independent = np.bincount(pairs[1], minlength=int(targets.max()) + 1)
    factor = np.where(independent > 1, independent / np.maximum(independent - 1, 1), 0)
    sums = np.bincount(number, deviations * np.sqrt(factor)[targets])
    return float(np.sqrt(sums @ sums))


def image_weights(targets: NDArray[np.int64], shares: ArrayLike) -> NDArray[np.float64]:
    """Return the weight of each test image, (N,), with which a mean over images has these class shares.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.costs import image_weights
        >>> image_weights(np.array([0, 0, 1]), [0.5, 0.5])
        array([0.25, 0.25, 0.5 ])
    """
    wanted = np.asarray(shares, np.float64)
    counts = np.bincount(targets, minlength=len(wanted))
    each = (wanted / np.maximum(counts, 1))[targets]
    return np.asarray(each / each.sum())
