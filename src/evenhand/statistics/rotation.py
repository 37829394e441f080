"""The variance of a mean difference over new data where seeds rotate through the images, as in cross-validation."""

import numpy as np
from numpy.typing import NDArray

TEST_FRACTION = 0.2
"""Of a rotation, unless another is given: a fold is a fifth of the images."""
ERROR_WEIGHT, HALF_AT = 3.0, 40.0
"""Chosen by simulation: training sets matter in proportion to the error rate, and half as much with 40 images per class
as with very few."""
UNKNOWN_NOISE = 0.2
"""The part of the variance over images taken to be training noise where no image was tested twice."""


def repeated_share(tests: NDArray[np.int64], seeds: int) -> float:
    r"""Return which part of the variance over images a standard error over seeds misses, as images are tested again.

    With :math:`t_i` tests of image i, n seeds, N images and :math:`m = \sum_i t_i / n` tested per seed, the covariance
    of two seeds through the images that both tested is, in units of the variance over all N images,

    .. math:: \frac{N \sum_i t_i (t_i - 1)}{n (n - 1) \, m^2}

    It is 0 where no image is tested twice, and 1 where all seeds test all images.

    Args:
        tests: (N,), how often each image was tested, 1 or more.
        seeds: n, 2 or more.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.rotation import repeated_share
        >>> repeated_share(np.array([1, 1, 1, 1, 1]), 5), repeated_share(np.array([3, 3, 3]), 3)
        (0.0, 1.0)
        >>> round(repeated_share(np.array([2, 2, 2, 1, 1]), 8), 3)
        0.536
    """
    per_seed = float(tests.sum()) / seeds
    return float(len(tests) * (tests * (tests - 1)).sum() / (seeds * (seeds - 1) * per_seed**2))


def kept_share(
    train_counts: NDArray[np.int64], test_counts: NDArray[np.float64], *, test_fraction: float
) -> NDArray[np.float64]:
    """Return the share of the images that a fold leaves for training on which a seed trains, by class.

    Args:
        train_counts: (K,), training images of each class.
        test_counts: (K,), test images of each class per seed.
        test_fraction: of each fold.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.rotation import kept_share
        >>> kept_share(np.array([40, 10]), np.array([10.0, 10.0]), test_fraction=0.2)
        array([1.  , 0.25])
    """
    kept: NDArray[np.float64] = np.minimum(1.0, train_counts / (test_counts * (1 - test_fraction) / test_fraction))
    return kept


def training_overlap(
    train_counts: NDArray[np.int64], test_counts: NDArray[np.float64], seeds: int, *, test_fraction: float
) -> NDArray[np.float64]:
    r"""Return the share of its training images that a seed has in common with another one on average, by class.

    Two folds leave :math:`(1 - 2 \tau) / (1 - \tau)` of their training images in common, three quarters for a test
    fraction :math:`\tau` of 0.2, and a fold shares all of them with itself when its turn comes again. A seed that
    trains on a random part of what its fold leaves, as an imbalance asks for, shares that part only.

    Args:
        train_counts: (K,), training images of each class.
        test_counts: (K,), test images of each class per seed.
        seeds: 2 or more.
        test_fraction: of each fold.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.rotation import training_overlap
        >>> training_overlap(np.array([40, 10]), np.array([10.0, 10.0]), 5, test_fraction=0.2)
        array([0.75  , 0.1875])
    """
    fold = np.arange(seeds) % max(1, round(1 / test_fraction))
    same = ((fold[:, None] == fold).sum() - seeds) / (seeds * (seeds - 1))
    between = max(0.0, (1 - 2 * test_fraction) / (1 - test_fraction))
    shared: float = same + (1 - same) * between
    return shared * kept_share(train_counts, test_counts, test_fraction=test_fraction)


def training_variance(
    image_variances: NDArray[np.float64],
    tested: NDArray[np.int64],
    train_units: NDArray[np.float64],
    overlap: NDArray[np.float64],
    error_rates: NDArray[np.float64],
) -> float:
    r"""Return the covariance of two seeds that comes from training images they share.

    Seeds that train on the same images inherit the same luck, which a spread over seeds cannot show: there is no
    unbiased estimator of the variance of cross-validation (Bengio and Grandvalet, 2004). Nadeau and Bengio (2003) add
    test / train to 1 / n in the variance of the mean, whatever the learner. That is too strict where seeds differ by
    their initialisation rather than by their data, and where training sets are large. Here it is added to the variance
    over images only, with training noise taken out as far as seeds train on the same images, and by class:

    .. math:: \sum_k \omega_k \gamma_k V_k \frac{N_k}{m_k}, \quad
        \gamma_k = \frac{\min(1, 3 \epsilon_k)}{1 + m_k / 40}

    with :math:`V_k` what the :math:`N_k` test images of class k add to the variance of the mean, :math:`m_k` its
    training images, :math:`\omega_k` their overlap between seeds, and :math:`\epsilon_k` the error rate.
    :math:`\gamma_k = 1` is the covariance of Nadeau and Bengio for a learner without noise of its own.

    The assumption: training sets move a difference by no more than :math:`\gamma_k` says. It was chosen by simulation
    with nearest means, ridge regression and random networks for 10 to 150 images per class and 3 to 12 seeds
    (``tests/statistics/test_rotation.py``); learners that are less stable claim more than 5%.

    Args:
        image_variances: (K,), :math:`V_k`.
        tested: (K,), :math:`N_k`, images or groups of them.
        train_units: (K,), :math:`m_k`, in the same unit.
        overlap: (K,), see :func:`training_overlap`.
        error_rates: (K,), the mean of both objectives, 0 to 1.

    Example:
        >>> import numpy as np
        >>> from evenhand.statistics.rotation import training_variance
        >>> variances, overlap, wrong = np.array([0.001, 0.001]), np.array([0.75, 0.75]), np.array([0.4, 0.4])
        >>> round(training_variance(variances, np.array([10, 10]), np.array([8.0, 8.0]), overlap, wrong), 6)
        0.001563
        >>> round(training_variance(variances, np.array([150, 150]), np.array([120.0, 120.0]), overlap, wrong / 4), 6)
        0.000141
    """
    share = np.minimum(1.0, ERROR_WEIGHT * error_rates) / (1 + train_units / HALF_AT)
    return float((overlap * share * image_variances * tested / train_units).sum())
