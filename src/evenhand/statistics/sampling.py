"""How far a mean over classes could move if other test images, or other groups of them, had been drawn."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

BORROWED = 4.0
"""Each class borrows its spread from all of them as if so many more of its units had shown the usual one."""


@dataclass(frozen=True, eq=False)
class Units:
    """What was drawn as a whole: groups of test images, as frames of one scene stand or fall together, or single ones.

    A group that holds images of several classes is a unit in each.
    """

    kept: NDArray[np.bool_]
    """(N,): which images belong to the classes of the mean."""
    of: NDArray[np.int64]
    """Of each kept image: its unit."""
    classes: NDArray[np.int64]
    """(U,): the class of each unit, counted among those of the mean."""
    names: NDArray[np.int64]
    """(U,): the group of each unit."""

    @cached_property
    def sizes(self) -> NDArray[np.float64]:
        """(U,): images of each unit."""
        return np.bincount(self.of).astype(np.float64)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(K,): units of each class."""
        return np.bincount(self.classes).astype(np.int64)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """(U,): what each unit counts for in the mean over classes."""
        images = np.bincount(self.classes, self.sizes)
        weights: NDArray[np.float64] = self.sizes / images[self.classes] / len(images)
        return weights

    @property
    def freedom(self) -> int:
        """Units less one a class, at least 1."""
        return max(1, len(self.classes) - len(self.counts))

    def around(self, values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the mean over classes of a value an image, (N,), and what each unit is above its class, (U,)."""
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
        groups: (N,), names of what belongs together; None: every image stands for itself.
        classes: those of the mean; None: all. Those that do not occur are left out.

    Returns:
        None where none of the classes occurs.
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
    cells, of = np.unique(labels * (int(named.max()) + 1) + named.reshape(-1), return_inverse=True)
    return Units(kept, of.reshape(-1), cells // (int(named.max()) + 1), cells % (int(named.max()) + 1))


def sampling_variance(around: NDArray[np.float64], units: Units, *, floor: bool = False) -> float:
    r"""Return the variance over units of a mean over classes, each class's spread drawn towards that of all.

    .. math:: V = \sum_k \frac{(G_k - 1) \, V_k + 4 \, V_k^0}{G_k + 3}, \quad
        V_k = \frac{G_k}{G_k - 1} \sum_{g \in k} (w_g x_g)^2, \quad V_k^0 = s_0^2 \sum_{g \in k} w_g^2

    with :math:`x_g` what unit g is above its class, :math:`w_g` its weight in the mean, :math:`G_k` the units of a
    class and :math:`s_0^2` the usual variance of a unit, in which one more unit is taken to be wholly off. So a handful
    of images that all fell alike is not taken for certainty, and a class of one unit counts too.

    Args:
        around: (U,).
        units: which they are.
        floor: take at least what the usual variance gives, for shares that may all be 0 or 1.
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
    usual = float(((around**2).sum() + 1) / (len(around) - len(counts) + BORROWED))
    squares = np.bincount(units.classes, (weights * around) ** 2)
    own = np.divide(counts * squares, counts - 1, out=np.zeros(len(counts)), where=counts > 1)
    borrowed = usual * np.bincount(units.classes, weights**2)
    variances = ((counts - 1) * own + BORROWED * borrowed) / (counts - 1 + BORROWED)
    return variances.astype(np.float64), borrowed.astype(np.float64)
