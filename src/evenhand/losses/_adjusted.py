"""Cross entropy of adjusted logits: scaled, shifted, or with a margin subtracted from the correct class.

Every loss that knows the class counts is :func:`adjusted_cross_entropy` with numbers computed from them.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses._formula import log_odds_against_each, softplus, undefined_as_nan
from evenhand.losses._input import (
    check,
    check_per_class,
    check_scale,
    check_smoothing,
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
    scale: float | Tensor = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Cross entropy of `scale * input + offset`, with `margin` subtracted from the logit of the correct class.

    .. math::
        -\log \frac{\exp(s_g z_g + o_g - m_g)}{\exp(s_g z_g + o_g - m_g) + \sum_{j \ne g} \exp(s_j z_j + o_j)}

    The losses that know the class counts are special cases. By default it is `torch.nn.functional.cross_entropy`.

    Args:
        input: logits z, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities t of the input's shape. With a margin,
            the loss of a row of probabilities is the sum over classes k of t_k times its loss as class k.
            A class masked by -inf that has probability 0 adds nothing then, where cross entropy is NaN.
        weight: a weight per class, (K).
        offset: added to the logits of each class, (K); -inf masks a class.
        margin: subtracted from the logit of a class where it is the correct one, (K).
        scale: the factor of the input: a number above 0, or one per class, (K).
        ignore_index: rows with this class index are ignored.
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
    check_per_class(offset, "offset", classes, input.device)
    check_per_class(margin, "margin", classes, input.device)
    if isinstance(scale, Tensor) and scale.dim() > 0:
        check_per_class(scale, "scale", classes, input.device)
    else:
        scale = check_scale(scale)
    if target.is_floating_point():
        refuse_ignore_index(ignore_index)
    else:
        class_indices(target, classes, ignore_index)  # its error message is clearer than torch's
    cross_entropy = partial(
        F.cross_entropy, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )
    if offset is None and margin is None and not isinstance(scale, Tensor) and scale == 1:
        return cross_entropy(input, target, None if weight is None else weight.to(input.dtype))
    logits, labels = with_batch(input, target)
    logits = scale_and_shift(logits, offset, scale)
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
    """Return `logits + offset`, with `margin` subtracted from the logit of each row's correct class.

    The result can be passed to any loss. To remove a class prior from the logits of a trained network, use
    `evenhand.metrics.subtract_prior`.

    Args:
        logits: (N, K) or (N, K, d1, ...).
        target: class indices, (N) or (N, d1, ...); without a margin, class probabilities as well.
        offset: (K), or None.
        margin: (K), or None.
        ignore_index: rows with this class index get no margin.

    Returns:
        Of the logits' shape, in float32 at least.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import adjust_logits
        >>> adjust_logits(torch.zeros(2, 3), torch.tensor([0, 2]), margin=torch.tensor([0.1, 0.2, 0.5]))
        tensor([[-0.1000,  0.0000,  0.0000],
                [ 0.0000,  0.0000, -0.5000]])
    """
    check(logits, target, None, "none")
    if logits.dim() < 2:
        raise ValueError(f"input must be logits of shape (N, K, ...), got shape {tuple(logits.shape)}.")
    for name, value in (("offset", offset), ("margin", margin)):
        check_per_class(value, name, logits.shape[1], logits.device)
    logits = scale_and_shift(logits, offset)
    if margin is None:
        return logits
    if target.is_floating_point():
        raise ValueError("a margin needs class indices to know the correct class, got class probabilities.")
    index, valid = class_indices(target, logits.shape[1], ignore_index)
    margins = margin.to(logits.dtype)[index]
    if valid is not None:
        margins = torch.where(valid, margins, 0.0)
    return logits.scatter_add(1, index.unsqueeze(1), -margins.unsqueeze(1))


def scale_and_shift(logits: Tensor, offset: Tensor | None, scale: float | Tensor = 1.0) -> Tensor:
    """Return scale * logits + offset, for logits (N, K, ...), in float32 at least; scale and offset may be (K)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    per_class = (-1, *[1] * (logits.dim() - 2))
    if isinstance(scale, Tensor):
        logits = logits * scale.to(logits.dtype).view(per_class)
    elif scale != 1:
        logits = logits * scale
    return logits if offset is None else logits + offset.to(logits.dtype).view(per_class)


def _soft_margin_rows(
    logits: Tensor, target: Tensor, weight: Tensor | None, margin: Tensor, label_smoothing: float
) -> Tensor:
    """Return sum_g t_g CE(logits with the margin of g subtracted at g, g) of each row."""
    target = target.to(logits.dtype).movedim(1, -1)
    margin = margin.to(logits.dtype)
    logits = undefined_as_nan(logits)
    weight = torch.ones_like(margin) if weight is None else weight.to(logits.dtype)
    odds = log_odds_against_each(logits.movedim(1, -1))
    idle = (target == 0) & ~odds.isnan()
    odds = odds.masked_fill(idle, 0.0)  # keeps terms with zero weight finite, so that 0 * inf is no NaN
    own = softplus(odds + margin)
    each = weight * own
    if label_smoothing > 0:
        log_p = F.log_softmax(logits, 1).movedim(1, -1)
        others = weight.sum() * (own + log_p - margin) - (weight * log_p).sum(-1, keepdim=True) + weight * margin
        each = (1 - label_smoothing) * each + label_smoothing / len(margin) * others
    return torch.where(idle, 0.0, target * each).sum(-1)
