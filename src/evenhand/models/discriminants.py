"""Linear discriminants in closed form, for features of a frozen network."""

import torch
from torch import Tensor

SHRINKAGE = 0.1
"""Weight of the mean variance in the covariance, against the covariance of the training images."""
ROWS = 4096
"""Images whose deviations from the class means are computed at once."""


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
        The weight (K, F) and the bias (K,): 0 for classes without images, and everywhere if images do not vary within
        classes.

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
    degrees = len(features) - int(has_images.sum())
    if degrees == 0:
        return torch.zeros_like(offsets), torch.zeros(num_classes)
    weight = _solve(features, labels, means, offsets, degrees)
    lengths = (weight * offsets).sum(1)[has_images].clamp(min=0).sqrt()
    weight = weight / lengths.mean() if lengths.sum() > 0 else torch.zeros_like(weight)
    return weight, -weight @ centre


def _solve(features: Tensor, labels: Tensor, means: Tensor, offsets: Tensor, degrees: int) -> Tensor:
    """Return the offsets (K, F) times the inverse of the shrunk covariance, by the smaller of two systems."""
    images, size = features.shape
    factor = (1 - SHRINKAGE) / degrees
    if images > size:
        scatter = torch.zeros(size, size)
        for start in range(0, images, ROWS):
            rows = slice(start, start + ROWS)
            deviations = features[rows] - means[labels[rows]]
            scatter.addmm_(deviations.T, deviations)
        ridge = SHRINKAGE * scatter.trace() / degrees / min(degrees, size)
        system = factor * scatter
    else:
        deviations = features - means[labels]
        products = deviations @ deviations.T
        ridge = SHRINKAGE * products.trace() / degrees / min(degrees, size)
        system = factor * products
    if ridge <= 0:
        return torch.zeros_like(offsets)
    system.diagonal().add_(ridge)
    root = torch.linalg.cholesky(system)
    if images > size:
        return torch.cholesky_solve(offsets.T, root).T
    inner = torch.cholesky_solve(deviations @ offsets.T, root)  # by the Woodbury identity
    weight: Tensor = (offsets - factor * inner.T @ deviations) / ridge
    return weight
