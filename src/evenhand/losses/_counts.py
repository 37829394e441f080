"""What the class counts say about a loss: offsets and margins of the logits, weights of the classes, shares of C.

Counts are the numbers of training images, one a class; only their ratios matter, except to `by="effective"`. A class
with a count of 0 is treated like the rarest class that has images: its log prior is finite, so nothing becomes NaN.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from evenhand.losses._input import check_number, check_stored, holds_anywhere

Counts = Sequence[float] | Tensor


def logit_offset(counts: Counts, tau: float = 1.0) -> Tensor:
    r"""Offset of the logits in training that takes the class counts out of what the network has to learn.

    .. math::
        o_k = \tau \log \frac{n_k}{\sum_j n_j}

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.) A network trained on `logits + offset` and used
    without it predicts as if the classes were equally frequent (tau = 1).

    Args:
        counts: training images a class, (K).
        tau: how much of the log prior; 0 is none.

    Returns:
        (K), float64.

    Example:
        >>> from evenhand.losses.functional import logit_offset
        >>> logit_offset([80, 10, 10])
        tensor([-0.2231, -2.3026, -2.3026], dtype=torch.float64)
    """
    tau = check_number(tau, "tau", least=0)
    n = positive_counts(counts)
    return tau * (n / n.sum()).log()


def ldam_margins(counts: Counts, max_margin: float = 0.5) -> Tensor:
    r"""Margins of the classes in LDAM: the rarer a class, the further its logit must be ahead.

    .. math::
        m_k = m_{\max} \left( \frac{\min_j n_j}{n_k} \right)^{1/4}

    (Cao et al. 2019, *Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss*.)

    Args:
        counts: training images a class, (K).
        max_margin: the margin of the rarest class.

    Returns:
        (K), float64.

    Example:
        >>> from evenhand.losses.functional import ldam_margins
        >>> ldam_margins([1600, 100])
        tensor([0.2500, 0.5000], dtype=torch.float64)
    """
    max_margin = check_number(max_margin, "max_margin", least=0)
    n = positive_counts(counts)
    return max_margin * (n.amin() / n) ** 0.25


def class_weights(counts: Counts, by: Literal["inverse", "effective"] = "inverse", *, beta: float = 0.999) -> Tensor:
    r"""Weights of the classes that make up for their counts, with a mean of 1 over the training images.

    `"inverse"`: :math:`w_k \propto 1 / n_k`, so that every class weighs the same in an epoch. `"effective"`:
    :math:`w_k \propto (1 - \beta) / (1 - \beta^{n_k})`, one over the effective number of images (Cui et al. 2019,
    *Class-Balanced Loss Based on Effective Number of Samples*), which is milder the smaller beta is.

    A mean of 1 over the images keeps the loss of an epoch at its scale, so that learning rates carry over.

    When to use it: late in training (deferred re-weighting) rather than from the start, where large weights of a few
    images make training unsteady; an offset of the logits is the simpler way to the same end.

    Args:
        counts: training images a class, (K).
        by: `"inverse"` or `"effective"`.
        beta: from 0 (all weights equal) to below 1 (towards inverse); for `"effective"` only.

    Returns:
        (K), of torch's default dtype: the `weight` of a loss.

    Example:
        >>> from evenhand.losses.functional import class_weights
        >>> class_weights([80, 10, 10])
        tensor([0.4167, 3.3333, 3.3333])
        >>> class_weights([80, 10, 10], by="effective", beta=0.9)
        tensor([0.9033, 1.3866, 1.3866])
    """
    n = positive_counts(counts)
    if by == "inverse":
        weights = 1 / n
    elif by == "effective":
        if not check_number(beta, "beta", least=0) < 1:
            raise ValueError(f"beta must be 0 or more and below 1, got {beta}.")
        weights = torch.ones_like(n) if beta == 0 else -1 / torch.expm1(n * math.log(beta))
    else:
        raise ValueError(f"by must be 'inverse' or 'effective', got {by!r}.")
    images = torch.as_tensor(counts).to(n)
    return (weights * images.sum() / (weights * images).sum()).to(torch.get_default_dtype())


def frequent_rivals(counts: Counts) -> Tensor:
    r"""Which wrong classes threaten the rows of each class: those with at least as many images as it has.

    Cross entropy lets a frequent class stand out where a rare one is correct; the other way round it is the rare
    class that needs what little it has learned, and evening it out takes that away.

    Args:
        counts: training images a class, (K).

    Returns:
        bool (K, K), the `rivals` of :func:`complement_cross_entropy`: row g is for rows of class g.

    Example:
        >>> from evenhand.losses.functional import frequent_rivals
        >>> frequent_rivals([90, 9, 9])
        tensor([[False, False, False],
                [ True, False,  True],
                [ True,  True, False]])
    """
    n = positive_counts(counts)
    own = torch.eye(len(n), dtype=torch.bool, device=n.device)
    return (n[None, :] >= n[:, None]) & ~own


def positive_counts(counts: Any) -> Tensor:
    """Return the counts as float64 (K), with the smallest that is not 0 in the place of 0."""
    check_stored(counts, "counts")
    try:
        n = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"counts must be one number a class, got {counts!r}.") from None
    if n.dim() != 1 or len(n) == 0 or n.is_complex():
        raise ValueError(f"counts must be one number a class, got {n.dtype} of shape {tuple(n.shape)}.")
    n = n.to(torch.float32 if n.device.type == "mps" else torch.float64)
    if holds_anywhere(~((n >= 0) & (n < math.inf))) or holds_anywhere((n == 0).all()):
        raise ValueError(
            f"counts must be finite, 0 or more, and not all 0, got {[round(x, 6) for x in n[:20].tolist()]}."
        )
    smallest = torch.where(n > 0, n, math.inf).amin()
    return torch.where(n > 0, n, smallest)


def check_length(counts: Any, classes: int) -> Tensor:
    """Return the counts of so many classes as a tensor, without zeros."""
    n = positive_counts(counts)
    if len(n) != classes:
        raise ValueError(f"counts must be {classes} numbers, one a class, got {len(n)}.")
    return n
