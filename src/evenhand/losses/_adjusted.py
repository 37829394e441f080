"""Cross entropy of logits that know the class counts: logit adjustment, balanced softmax, LDAM.

All three are cross entropy of adjusted logits: an offset of every class, or a margin that the correct class must make
up for. :func:`adjusted_cross_entropy` takes any of both.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses._counts import Counts, check_length, ldam_margins, logit_offset
from evenhand.losses._formula import softplus
from evenhand.losses._input import (
    check,
    check_per_class,
    check_scale,
    check_smoothing,
    check_stored,
    class_indices,
    like_cross_entropy,
    reduce,
    refuse_ignore_index,
    with_batch,
)


def adjusted_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    offset: Tensor | None = None,
    margin: Tensor | None = None,
    scale: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy of `scale * input + offset`, with `margin` taken off the logit of the correct class.

    What the losses of this module have in common. Without the three it is `torch.nn.functional.cross_entropy`.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape. With a margin, a
            row of probabilities t costs the sum over its classes k of t_k times what it costs as class k.
        weight: a factor for each class, (K).
        offset: what is added to the logits of each class, (K); -inf masks a class.
        margin: what is taken off the logit of a class where it is the correct one, (K).
        scale: what the input is multiplied by first, above 0.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the adjusted logits.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import adjusted_cross_entropy
        >>> logits, target = torch.zeros(1, 2), torch.tensor([1])
        >>> adjusted_cross_entropy(logits, target, offset=torch.tensor([0.9, 0.1]).log())  # -ln 0.1
        tensor(2.3026)
        >>> adjusted_cross_entropy(logits, target, margin=torch.tensor([0.0, 2.0]))  # ln(1 + e^2)
        tensor(2.1269)
    """
    classes = check(input, target, weight, reduction)
    check_smoothing(label_smoothing)
    check_per_class(offset, "offset", classes)
    check_per_class(margin, "margin", classes)
    check_scale(scale)
    if target.is_floating_point():
        refuse_ignore_index(ignore_index)
    else:
        class_indices(target, classes, ignore_index)  # says in one sentence what torch would say in its own words
    cross_entropy = partial(
        F.cross_entropy, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    if offset is None and margin is None and scale == 1:
        return cross_entropy(input, target, None if weight is None else weight.to(input.dtype))
    logits, labels = with_batch(input, target)
    logits = shifted(logits, offset, scale)
    if margin is not None and target.is_floating_point():
        rows = _soft_margin_rows(logits, labels, weight, margin, label_smoothing)
        return reduce(rows, None, reduction, input)
    logits = adjust_logits(logits, labels, margin=margin, ignore_index=ignore_index)
    if labels.is_floating_point():
        labels = labels.to(logits.dtype)
    loss = cross_entropy(logits, labels, None if weight is None else weight.to(logits.dtype))
    return like_cross_entropy(loss.squeeze(0) if loss.dim() and input.dim() == 1 else loss, input)


def adjust_logits(
    logits: Tensor,
    target: Tensor,
    *,
    offset: Tensor | None = None,
    margin: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Return `logits + offset`, with `margin` taken off the logit of each row's correct class; for any loss to take.

    Args:
        logits: (N, K) or (N, K, d1, ...).
        target: class indices, (N) or (N, d1, ...); with an offset alone, class probabilities as well.
        offset: (K), or None.
        margin: (K), or None.
        ignore_index: rows with this class index have no margin.

    Returns:
        Of the logits' shape, in float32 at least.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import adjust_logits
        >>> adjust_logits(torch.zeros(2, 3), torch.tensor([0, 2]), margin=torch.tensor([0.1, 0.2, 0.5]))
        tensor([[-0.1000,  0.0000,  0.0000],
                [ 0.0000,  0.0000, -0.5000]])
    """
    for name, value in (("logits", logits), ("target", target), ("offset", offset), ("margin", margin)):
        check_stored(value, name)
    logits = shifted(logits, offset)
    if target.is_floating_point():
        if margin is not None:
            raise ValueError("a margin needs class indices to know the correct class, got class probabilities.")
        return logits
    if margin is None:
        return logits
    index, valid = class_indices(target, logits.shape[1], ignore_index)
    back = margin.to(logits.dtype)[index]
    if valid is not None:
        back = torch.where(valid, back, 0.0)
    return logits.scatter_add(1, index.unsqueeze(1), -back.unsqueeze(1))


def shifted(logits: Tensor, offset: Tensor | None, scale: float = 1.0) -> Tensor:
    """Return logits (N, K, ...), scaled, plus an offset (K), in float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if scale != 1:
        logits = logits * scale
    return logits if offset is None else logits + offset.to(logits.dtype).view(-1, *[1] * (logits.dim() - 2))


def _soft_margin_rows(
    logits: Tensor, target: Tensor, weight: Tensor | None, margin: Tensor, label_smoothing: float
) -> Tensor:
    """Return sum_g t_g CE(logits less the margin of g at g, g) of each row: what it costs as each class, mixed."""
    target = target.to(logits.dtype).movedim(1, -1)
    margin = margin.to(logits.dtype)
    weight = torch.ones_like(margin) if weight is None else weight.to(logits.dtype)
    odds = _log_odds_against_each(logits.movedim(1, -1))
    odds = odds.masked_fill(target == 0, 0.0)  # what costs nothing may be anything, but not infinite
    own = softplus(odds + margin)
    each = weight * own
    if label_smoothing > 0:
        log_p = F.log_softmax(logits, 1).movedim(1, -1)
        others = weight.sum() * (own + log_p - margin) - (weight * log_p).sum(-1, keepdim=True) + weight * margin
        each = (1 - label_smoothing) * each + label_smoothing / len(margin) * others
    return torch.where(target == 0, 0.0, target * each).sum(-1)


def _log_odds_against_each(logits: Tensor) -> Tensor:
    """Return for each class k the logsumexp of the others less z_k, (..., K): without 1 - p, which loses its digits."""
    top, place = logits.detach().max(-1, keepdim=True)
    leads = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, place, 1)
    # Among the others of every class but the leading one is the leading one, so what is left of the sum is 1 or more.
    terms = (logits - top).exp()
    left = torch.where(leads, 1.0, terms.sum(-1, keepdim=True) - terms).log() + top
    behind = logits.masked_fill(leads, torch.finfo(logits.dtype).min).logsumexp(-1, keepdim=True)
    return torch.where(leads, behind, left) - logits


def logit_adjusted_cross_entropy(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    *,
    tau: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy of logits that are shifted by the log prior of their classes.

    .. math::
        \mathrm{LA} = -\log \frac{\exp(z_g + \tau \log \pi_g)}{\sum_j \exp(z_j + \tau \log \pi_j)},
        \qquad \pi_k = \frac{n_k}{\sum_j n_j}

    (Menon et al. 2021, *Long-tail learning via logit adjustment*.) The shift is for training only: the network is used
    without it. Equal counts leave cross entropy.

    When to use it: where classes are rare in training but every class counts alike in use; tau above 1 favours rare
    classes more, below 1 less, so it is worth tuning on validation images.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        counts: training images a class, (K); a count of 0 is treated like the smallest that is not.
        tau: how much of the log prior, 0 or more; 0 is cross entropy.
        weight: a factor for each class, (K).
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the shifted logits.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for shapes, dtypes, counts or settings that do not fit.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import logit_adjusted_cross_entropy
        >>> logits, target = torch.zeros(2, 2), torch.tensor([0, 1])
        >>> logit_adjusted_cross_entropy(logits, target, [90, 10], reduction="none")  # a rare class costs more
        tensor([0.1054, 2.3026])
    """
    classes = check(input, target, weight, reduction)
    return adjusted_cross_entropy(
        input,
        target,
        weight,
        offset=logit_offset(check_length(counts, classes), tau).to(input.device),
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def balanced_softmax_loss(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Balanced softmax: cross entropy with each class weighed by its count inside the softmax.

    .. math::
        \mathrm{BS} = -\log \frac{n_g \exp(z_g)}{\sum_j n_j \exp(z_j)}

    (Ren et al. 2020, *Balanced Meta-Softmax for Long-Tailed Visual Recognition*.) It is
    :func:`logit_adjusted_cross_entropy` at tau = 1, and takes the same arguments but for that.

    When to use it: as the first thing to try where classes are rare in training but count alike in use; it has nothing
    to tune.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import balanced_softmax_loss
        >>> balanced_softmax_loss(torch.zeros(1, 4), torch.tensor([3]), counts=[5, 2, 2, 1])  # -ln(1 / 10)
        tensor(2.3026)
    """
    return logit_adjusted_cross_entropy(
        input,
        target,
        counts,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def ldam_loss(
    input: Tensor,
    target: Tensor,
    counts: Counts,
    *,
    max_margin: float = 0.5,
    scale: float = 30.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Label-distribution-aware margin loss (LDAM): cross entropy with a margin that is wider for rarer classes.

    .. math::
        \mathrm{LDAM} = -\log \frac{\exp(s (z_g - m_g))}{\exp(s (z_g - m_g)) + \sum_{j \ne g} \exp(s z_j)},
        \qquad m_k = m_{\max} \left( \frac{\min_j n_j}{n_k} \right)^{1/4}

    (Cao et al. 2019, *Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss*.) The input are cosines:
    outputs of a last layer whose weights and features are both normalised, between -1 and 1; a margin means nothing to
    logits that can grow.

    When to use it: together with re-weighting that sets in late (DRW), as its authors do.

    Args:
        input: cosines, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities t of the input's shape; then a row costs
            the sum over its classes k of t_k times what it costs as class k.
        counts: training images a class, (K); a count of 0 is treated like the smallest that is not.
        max_margin: the margin of the rarest class, 0 or more.
        scale: what cosines are multiplied by to become logits, above 0.
        weight: a factor for each class, (K).
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.
        label_smoothing: as in cross entropy, of the logits with their margin.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for shapes, dtypes, counts or settings that do not fit.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import ldam_loss
        >>> cosines, target = torch.tensor([[0.9, 0.5], [0.5, 0.9]]), torch.tensor([0, 1])
        >>> ldam_loss(cosines, target, [1600, 100], reduction="none")  # the rare class is not far enough ahead
        tensor([0.0110, 3.0486])
    """
    classes = check(input, target, weight, reduction)
    margins = ldam_margins(check_length(counts, classes), max_margin).to(input.device)
    return adjusted_cross_entropy(
        input,
        target,
        weight,
        margin=check_scale(scale) * margins,
        scale=scale,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
