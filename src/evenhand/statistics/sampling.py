"""Sampling variance of a mean over classes, over test images or groups of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BORROWED = 4.0
"""The pooled variance counts as this many additional units of each class."""


@dataclass(frozen=True, eq=False)
class Units:
    """Sampling units: groups of test images, such as the frames of one scene, or single images.

    A group with images of several classes is a unit in each.
    """

    kept: NDArray[np.bool_]
    """(N,): whether each image is of a class of the mean."""
    of: NDArray[np.int64]
    """The unit of each kept image."""
    classes: NDArray[np.int64]
    """(U,): the class of each unit, as an index among those of the mean."""
    names: NDArray[np.int64]
    """(U,): the group of each unit."""

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """(U,): images per unit."""
        return np.bincount(self.of).astype(np.float64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(K,): units per class."""
        return np.bincount(self.classes).astype(np.int64)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """(U,): the weight of each unit in the mean over classes."""
        images = np.bincount(self.classes, self.sizes)
        return np.asarray(self.sizes / images[self.classes] / len(images))

    @property
    def freedom(self) -> int:
        """Units minus one per class, at least 1."""
        return max(1, len(self.classes) - len(self.counts))

    def around(self, values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the mean over classes of image values, (N,), and the deviation of each unit from its class, (U,)."""
        units = np.bincount(self.of, values[self.kept]) / self.sizes
        images = np.bincount(self.classes, self.sizes)
        means = np.bincount(self.classes, units * self.sizes) / images
        return float(means.mean()), units - means[self.classes]


def find_units(
    targets: NDArray[np.int64], groups: NDArray[np.str_] | None = None, classes: Iterable[int] | None = None
) -> Units | None:
    """Return the units of some classes.

    Args:
        targets: (N,).
        groups: (N,), group of each image; None: images are independent.
        classes: those of the mean; None: all. Those that do not occur are left out.

    Returns:
        None if none of the classes occurs.
    """
    present = np.unique(targets)
    tested = present if classes is None else np.intersect1d(present, np.array(list(classes), np.int64))
    if not len(tested):
        return None
    kept = np.isin(targets, tested)
    labels = np.searchsorted(tested, targets[kept])
    if groups is None:
        single = np.arange(len(labels))
        return Units(kept, single, labels, single)
    _, named = np.unique(groups[kept], return_inverse=True)
    number = int(named.max()) + 1
    cells, of = np.unique(labels * number + named.reshape(-1), return_inverse=True)
    return Units(kept, of.reshape(-1), cells // number, cells % number)


def sampling_variance(around: NDArray[np.float64], units: Units, *, floor: bool = False) -> float:
    r"""Return the variance over units of a mean over classes, with class variances shrunk towards the pooled one.

    .. math:: V = \sum_k \frac{(G_k - 1) \, V_k + 4 \, V_k^0}{G_k + 3}, \quad
        V_k = \frac{G_k}{G_k - 1} \sum_{g \in k} (w_g x_g)^2, \quad V_k^0 = s_0^2 \sum_{g \in k} w_g^2

    with :math:`x_g` the deviation of unit g from its class, :math:`w_g` its weight in the mean, :math:`G_k` the units
    of a class and :math:`s_0^2` the pooled variance of a unit, to which one unit with a deviation of 1 is added. So a
    few images with equal results do not give a variance of 0, and a class of one unit counts too.

    Args:
        around: (U,), deviations.
        units: the units.
        floor: return at least the variance that the pooled one gives, for proportions that may all be 0 or 1.
    """
    weights = units.weights
    by_class, borrowed = class_variances(around, units)
    variance = float(by_class.sum())
    # Classes that share groups move together; where they move against each other, nothing is taken off.
    together = float((np.bincount(units.names, weights * around) ** 2).sum() - ((weights * around) ** 2).sum())
    variance += max(0.0, together)
    return max(variance, float(borrowed.sum())) if floor else variance


def class_variances(around: NDArray[np.float64], units: Units) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (K,), what each class adds to :func:`sampling_variance`, and (K,), what the usual variance would add.

    Args:
        around: (U,).
        units: which they are.
    """
    counts, weights = units.counts, units.weights
    pooled = float(((around**2).sum() + 1) / (len(around) - len(counts) + BORROWED))
    squares = np.bincount(units.classes, (weights * around) ** 2)
    own = np.divide(counts * squares, counts - 1, out=np.zeros(len(counts)), where=counts > 1)
    borrowed = pooled * np.bincount(units.classes, weights**2)
    variances = ((counts - 1) * own + BORROWED * borrowed) / (counts - 1 + BORROWED)
    return variances.astype(np.float64), borrowed.astype(np.float64)
