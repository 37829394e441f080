"""Focal loss."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses._formula import FAR, log_odds_against, log_odds_against_each, softplus, undefined_as_nan
from evenhand.losses._input import (
    check,
    check_focal_gamma,
    check_numbers,
    class_indices,
    reduce,
    refuse_ignore_index,
    weigh,
    with_batch,
)


def focal_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    gamma: float = 2.0,
    alpha: float | Sequence[float] | Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Focal loss on the softmax: cross entropy with well classified rows weighted down.

    .. math::
        \mathrm{FL} = -\alpha_g (1 - \hat y_g)^\gamma \log \hat y_g

    (Lin et al., *Focal Loss for Dense Object Detection*, in its multi-class form). With `gamma=0` and no `alpha` it is
    cross entropy.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities t of the input's shape. The loss of a row
            of probabilities is the sum over classes k of t_k FL_k. A class masked by -inf that has
            probability 0 adds nothing, where cross entropy is NaN.
        weight: a weight per class, (K), as in cross entropy: the mean divides by the sum of the rows' weights.
        gamma: the focusing parameter, 0 or more; larger values weight well classified rows further down.
        alpha: a factor for all classes, or one per class (K). Unlike `weight`, it does not change what the mean divides
            by.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`, as in cross entropy.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import focal_loss
        >>> easy, hard = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 4.0])
        >>> focal_loss(torch.stack([easy, hard]), torch.tensor([0, 0]), reduction="none")
        tensor([5.8716e-06, 3.8749e+00])
    """
    classes = check(input, target, weight, reduction)
    check_focal_gamma(gamma)
    logits, target = with_batch(input, target)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    factors = _class_factors(alpha, classes, logits)
    if target.is_floating_point():
        refuse_ignore_index(ignore_index)
        target = target.to(logits.dtype).movedim(1, -1)
        d = log_odds_against_each(undefined_as_nan(logits).movedim(1, -1))
        idle = (target == 0) & ~d.isnan()  # adds nothing, even if its logit is -inf and d inf: 0 has a finite loss
        each = target * _at_odds(d.masked_fill(idle, 0.0), gamma)
        if weight is not None:
            factors = factors * weight.to(factors.dtype)
        return reduce((each * factors).sum(-1), None, reduction, input)
    index, valid = class_indices(target, classes, ignore_index)
    d = log_odds_against(logits, index)
    rows = _at_odds(d, gamma) * factors[index]
    rows, total = weigh(rows, index, valid, weight)
    return reduce(rows, total, reduction, input)


def _at_odds(d: Tensor, gamma: float) -> Tensor:
    """Return the focal loss of a class with these log odds against it; without p its slope is that of cross entropy."""
    return (gamma * F.logsigmoid(d.clamp(max=FAR))).exp() * softplus(d)


def _class_factors(alpha: float | Sequence[float] | Tensor | None, classes: int, logits: Tensor) -> Tensor:
    check_numbers(alpha, "alpha")
    try:
        factors = torch.as_tensor(1.0 if alpha is None else alpha, dtype=logits.dtype, device=logits.device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"alpha must be a number, or one per class, got {alpha!r}.") from None
    if factors.shape not in ((), (classes,)):
        raise ValueError(
            f"alpha must be a number or {classes} numbers, one per class, got shape {tuple(factors.shape)}."
        )
    return factors.expand(classes)
