"""Linear discriminants in closed form, for features of a frozen network."""

import torch
from torch import Tensor

SHRINKAGE = 0.1
"""Weight of the mean variance in the covariance, against the covariance of the training images."""
MOST_IMAGES = 2048
"""Images that the covariance is computed from, evenly spaced in their order; class means are those of all."""
LEAST_VARIANCE = 1e-8
"""Relative to that of the class means; what is below is rounding, as of copies of one image per class."""


def linear_discriminants(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    r"""Fit a linear layer to features: one discriminant per class, for equal class priors.

    .. math:: w_k = \Sigma^{-1} (\mu_k - \bar\mu) / c, \quad b_k = -w_k \cdot \bar\mu

    with the covariance :math:`\Sigma` within classes, shrunk towards its mean variance, and :math:`c` the mean length
    of the whitened class means. The term :math:`\mu_k^\top \Sigma^{-1} \mu_k / 2` of linear discriminant analysis is
    left out: the mean of few images is long by noise alone, so it costs rare classes their recall.

    Args:
        features: (N, F).
        labels: (N,).
        num_classes: K.

    Returns:
        The weight (K, F) and the bias (K,): 0 for classes without images, and for all classes if images do not vary
        within them.

    Example:
        >>> import torch
        >>> from evenhand.models.discriminants import linear_discriminants
        >>> features = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.0, 0.9], [0.0, 1.1]])
        >>> weight, bias = linear_discriminants(features, torch.tensor([0, 0, 1, 1]), 2)
        >>> (features @ weight.T + bias).argmax(1)
        tensor([0, 0, 1, 1])
    """
    counts = torch.bincount(labels, minlength=num_classes)
    has_images = counts > 0
    sums = torch.zeros(num_classes, features.shape[1]).index_add(0, labels, features)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    centre = means[has_images].mean(0)
    offsets = (means - centre) * has_images.unsqueeze(1)
    used = torch.linspace(0, len(features) - 1, min(len(features), MOST_IMAGES)).round().long()
    freedom = 1 - int(has_images.sum()) / max(len(features), 1)
    weight = _solve(features[used] - means[labels[used]], offsets, freedom)
    lengths = (weight * offsets).sum(1)[has_images].clamp(min=0).sqrt()
    weight = weight / lengths.mean().clamp(min=1e-12)
    return weight, -weight @ centre


def _solve(deviations: Tensor, offsets: Tensor, freedom: float) -> Tensor:
    """Return the offsets (K, F) times the inverse of the shrunk covariance of the deviations (N, F).

    Deviations have as many degrees of freedom as images, times `freedom`: the rest went into the class means.
    """
    images, size = deviations.shape
    system = deviations.T @ deviations if images > size else deviations @ deviations.T
    degrees = freedom * images
    ridge = SHRINKAGE * system.trace() / max(degrees, 1) / min(max(degrees, 1), size)
    if ridge <= LEAST_VARIANCE * offsets.square().mean():
        return torch.zeros_like(offsets)
    factor = (1 - SHRINKAGE) / degrees
    system *= factor
    system.diagonal().add_(ridge)
    root = torch.linalg.cholesky(system)
    if images > size:
        return torch.cholesky_solve(offsets.T, root).T
    inner = torch.cholesky_solve(deviations @ offsets.T, root)  # by the Woodbury identity
    weight: Tensor = (offsets - factor * inner.T @ deviations) / ridge
    return weight
