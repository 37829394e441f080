"""How far other test images could move the difference between two objectives."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PSEUDO = 2.0
"""Each class borrows its spread from all of them as if so many more of its units had shown the usual one."""


@dataclass(frozen=True)
class ImageError:
    """The sampling of test images in a difference of two mean recalls."""

    mean: float
    """The measured difference, a share."""
    error: float
    """Its standard error over test images, or over groups of them, with the models as they are."""
    shared: float
    """The part of that error that training noise does not explain: what all seeds do alike on these images."""
    freedom: float
    """Units, images or groups of them, less one a class."""


def paired_image_error(
    ours: NDArray[np.bool_],
    baseline: NDArray[np.bool_],
    targets: NDArray[np.int64],
    *,
    groups: NDArray[np.str_] | None = None,
    classes: Iterable[int] | None = None,
) -> ImageError | None:
    r"""Measure how far the mean gain over seeds would move if other test images had been drawn.

    The gain of an image is the mean over seeds of whether it was classified rightly, less that of the baseline. The
    difference is the mean over classes of the mean gain; its variance over images is that of the stratified sample,

    .. math:: V = \frac1{K^2} \sum_k \frac{G_k}{G_k - 1} \sum_{g \in k} \Bigl(\frac{m_g (\bar x_g - \bar x_k)}{n_k}\Bigr)^2

    over units g of :math:`m_g` images: the groups where there are any, as frames of one scene stand or fall together,
    or else single images. A class of few units borrows the spread of all: its own counts for :math:`G_k - 1` units and
    the usual one, in which one more unit is taken to have flipped, for 2. So a handful of images that all moved alike
    is not taken for certainty, and a class of one unit counts too.

    Part of V is training noise that a mean over a few seeds has left in each image. It is what seeds differ by within
    units, and without it V is what all seeds share.

    Args:
        ours: (n, N), whether each image was classified rightly, for each seed.
        baseline: (n, N), of what it is compared with: the same seeds and images.
        targets: (N,).
        groups: (N,), names of what belongs together; None: every image stands for itself.
        classes: the classes to average over; None: all. Those that do not occur are left out.

    Returns:
        None where none of the classes occurs, or all of them in a single unit.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.images import paired_image_error
        >>> targets = np.repeat([0, 1], 20)
        >>> right = np.ones((3, 40), bool)
        >>> wrong_in_six = right & (np.arange(40) >= 6)
        >>> found = paired_image_error(right, wrong_in_six, targets)
        >>> round(found.mean, 3), round(found.error, 3), round(found.shared, 3)
        (0.15, 0.053, 0.053)
        >>> by_scene = paired_image_error(right, wrong_in_six, targets, groups=(np.arange(40) // 5).astype(str))
        >>> round(by_scene.error, 2)
        0.1
    """
    gains = ours.astype(np.float64) - baseline
    support = np.bincount(targets, minlength=int(targets.max()) + 1)
    wanted = range(len(support)) if classes is None else classes
    tested = np.array([k for k in wanted if k < len(support) and support[k]], np.int64)
    if not len(tested):
        return None
    kept = np.isin(targets, tested)
    gains, labels = gains[:, kept], np.searchsorted(np.sort(tested), targets[kept])
    names = np.arange(len(labels)) if groups is None else np.unique(groups[kept], return_inverse=True)[1]
    cells, unit_of = np.unique(np.stack([labels, names]), axis=1, return_inverse=True)
    unit_of, unit_class = unit_of.reshape(-1), cells[0]
    if len(unit_class) < 2:
        return None
    sizes = np.bincount(unit_of).astype(np.float64)
    units = np.stack([np.bincount(unit_of, own) for own in gains]) / sizes  # (n, U): mean gain of each unit
    images = np.bincount(unit_class, sizes)
    means = np.stack([np.bincount(unit_class, own * sizes) for own in units]) / images  # (n, K)
    around = units - means[:, unit_class]
    weights = sizes / images[unit_class] / len(tested)
    variance = _variance(around.mean(axis=0), weights, unit_class, cells[1])
    noise = 0.0
    if len(gains) > 1:
        noise = float((around.var(axis=0, ddof=1) * weights**2).sum() / len(gains))
    freedom = max(1, len(unit_class) - len(tested))
    return ImageError(float(means.mean()), variance**0.5, max(0.0, variance - noise) ** 0.5, float(freedom))


def _variance(
    around: NDArray[np.float64], weights: NDArray[np.float64], unit_class: NDArray[np.int64], names: NDArray[np.int64]
) -> float:
    """Return the variance of a weighted sum of units, each class's spread drawn towards that of all.

    Args:
        around: (U,), what each unit is above its class.
        weights: (U,), of the units in the difference.
        unit_class: (U,).
        names: (U,), the group of each unit; one that holds images of several classes is several units.
    """
    units = np.bincount(unit_class)
    usual = float(((around**2).sum() + 1) / (len(around) - len(units) + PSEUDO))
    squares = np.bincount(unit_class, (weights * around) ** 2)
    own = np.divide(units * squares, units - 1, out=np.zeros(len(units)), where=units > 1)
    borrowed = usual * np.bincount(unit_class, weights**2)
    variance = float((((units - 1) * own + PSEUDO * borrowed) / (units - 1 + PSEUDO)).sum())
    # Classes that share groups move together; where they move against each other, nothing is taken off.
    together = float((np.bincount(names, weights * around) ** 2).sum() - ((weights * around) ** 2).sum())
    return variance + max(0.0, together)
