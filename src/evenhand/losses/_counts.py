"""Numbers per class that losses take, computed from the class counts: offsets, margins, weights.

Counts are training images per class; only their ratios matter, except to `by="effective"`. A class with a count of 0
is treated like the rarest class that has images: its log prior is finite, so nothing becomes NaN.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from evenhand.losses._input import check_number, check_numbers, holds_anywhere

Counts = Sequence[float] | Tensor


def logit_offset(counts: Counts, tau: float = 1.0) -> Tensor:
    r"""Return the log prior of each class, times tau: the offset of the logits in training.

    .. math::
        o_k = \tau \log \frac{n_k}{\sum_j n_j}

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.) A network trained on `logits + offset` and used
    without it predicts as if the classes were equally frequent (tau = 1).

    Args:
        counts: training images per class, (K).
        tau: the multiple of the log prior, 0 or more.

    Returns:
        (K), float64.

    Example:
        >>> from evenhand.losses.functional import logit_offset
        >>> logit_offset([80, 10, 10])
        tensor([-0.2231, -2.3026, -2.3026], dtype=torch.float64)
    """
    tau = check_number(tau, "tau", least=0)
    n = check_counts(counts)
    return tau * (n / n.sum()).log()


def ldam_margins(counts: Counts, max_margin: float = 0.5) -> Tensor:
    r"""Return the margin of each class in LDAM; rarer classes have wider margins.

    .. math::
        m_k = m_{\max} \left( \frac{\min_j n_j}{n_k} \right)^{1/4}

    (Cao et al. 2019, *Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss*.)

    Args:
        counts: training images per class, (K).
        max_margin: the margin of the rarest class.

    Returns:
        (K), float64.

    Example:
        >>> from evenhand.losses.functional import ldam_margins
        >>> ldam_margins([1600, 100])
        tensor([0.2500, 0.5000], dtype=torch.float64)
    """
    max_margin = check_number(max_margin, "max_margin", least=0)
    n = check_counts(counts)
    return max_margin * (n.amin() / n) ** 0.25


def class_weights(counts: Counts, by: Literal["inverse", "effective"] = "inverse", *, beta: float = 0.999) -> Tensor:
    r"""Return class weights that correct for the class counts, with a mean of 1 over the training images.

    `"inverse"`: :math:`w_k \propto 1 / n_k`, so that every class has the same total weight in an epoch. `"effective"`:
    :math:`w_k \propto (1 - \beta) / (1 - \beta^{n_k})`, the inverse of the effective number of images (Cui et al.
    2019, *Class-Balanced Loss Based on Effective Number of Samples*); a smaller beta brings the weights closer to 1.

    A mean of 1 over the images keeps the scale of the loss, so that learning rates carry over.

    When to use it: late in training (deferred re-weighting). From the start, large weights of a few images make
    training unstable; an offset of the logits (:func:`logit_offset`) is then the simpler correction.

    Args:
        counts: training images per class, (K).
        by: `"inverse"` or `"effective"`.
        beta: 0 (equal weights) to below 1 (towards inverse weights); only for `"effective"`.

    Returns:
        (K), of torch's default dtype, to pass as the `weight` of a loss.

    Example:
        >>> from evenhand.losses.functional import class_weights
        >>> class_weights([80, 10, 10])
        tensor([0.4167, 3.3333, 3.3333])
        >>> class_weights([80, 10, 10], by="effective", beta=0.9)
        tensor([0.9033, 1.3866, 1.3866])
    """
    n = check_counts(counts)
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
    r"""Return, for each target class, which wrong classes are at least as frequent in training as it is.

    Restricting the complement entropy to these classes flattens frequent wrong classes for images of a rare class. It
    does not push probability towards rare wrong classes for images of a frequent class.

    Args:
        counts: training images per class, (K).

    Returns:
        bool (K, K), to pass as `rivals` to :func:`complement_cross_entropy`; row g is for images of class g.

    Example:
        >>> from evenhand.losses.functional import frequent_rivals
        >>> frequent_rivals([90, 9, 9])
        tensor([[False, False, False],
                [ True, False,  True],
                [ True,  True, False]])
    """
    n = check_counts(counts)
    own = torch.eye(len(n), dtype=torch.bool, device=n.device)
    return (n[None, :] >= n[:, None]) & ~own


def check_counts(counts: Any, classes: int | None = None) -> Tensor:
    """Return the counts as float64 (K), with zeros replaced by the smallest positive count.

    Raises:
        ValueError: they are not finite numbers of 0 or more, one per class, with at least one above 0.
    """
    check_numbers(counts, "counts")
    try:
        n = torch.as_tensor(counts)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"counts must be one number per class, got {counts!r}.") from None
    if n.dim() != 1 or len(n) == 0 or n.is_complex():
        raise ValueError(f"counts must be one number per class, got {n.dtype} of shape {tuple(n.shape)}.")
    n = n.to(torch.float32 if n.device.type == "mps" else torch.float64)
    if holds_anywhere(~((n >= 0) & (n < math.inf))) or holds_anywhere((n == 0).all()):
        raise ValueError(
            f"counts must be finite, 0 or more, and not all 0, got {[round(x, 6) for x in n[:20].tolist()]}."
        )
    if classes is not None and len(n) != classes:
        raise ValueError(f"counts must be {classes} numbers, one per class, got {len(n)}.")
    smallest = torch.where(n > 0, n, math.inf).amin()
    return torch.where(n > 0, n, smallest)
