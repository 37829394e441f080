"""Focal loss."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses._formula import log_odds_against, softplus
from evenhand.losses._input import (
    check,
    check_focal_gamma,
    check_stored,
    class_indices,
    reduce,
    refuse_ignore_index,
    weigh,
    with_batch,
)


def focal_loss(
    input: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | Sequence[float] | Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    r"""Focal loss on the softmax: cross entropy that fades for samples already well classified.

    .. math::
        \mathrm{FL} = -\alpha_g (1 - \hat y_g)^\gamma \log \hat y_g

    (Lin et al., *Focal Loss for Dense Object Detection*, in its multi-class form). With `gamma=0` and no `alpha` it is
    cross entropy.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities t of the input's shape; then the loss of
            a row is the sum over its classes k of t_k FL_k.
        gamma: how fast the loss fades, 0 or more.
        alpha: a factor for all classes (a number) or for each (K numbers).
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`. The mean divides by the number of rows that count; `alpha` is a plain
            factor and does not change that number.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for shapes, dtypes or settings that do not fit.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import focal_loss
        >>> easy, hard = torch.tensor([4.0, 0.0]), torch.tensor([0.0, 4.0])
        >>> focal_loss(torch.stack([easy, hard]), torch.tensor([0, 0]), reduction="none")
        tensor([5.8716e-06, 3.8749e+00])
    """
    classes = check(input, target, None, reduction)
    check_focal_gamma(gamma)
    logits, target = with_batch(input, target)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    factors = _class_factors(alpha, classes, logits)
    if target.is_floating_point():
        refuse_ignore_index(ignore_index)
        # A class without probability costs nothing, even if its logit is -inf; p = 1 stands for it, whose loss is 0.
        log_p = F.log_softmax(logits, 1).masked_fill(target == 0, 0.0)
        log_rest = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny).log()
        each = target * (gamma * log_rest).exp() * -log_p
        rows = (each.movedim(1, -1) * factors).sum(-1)
        return reduce(rows, None, reduction, input)
    index, valid = class_indices(target, classes, ignore_index)
    d = log_odds_against(logits, index)
    rows = (gamma * F.logsigmoid(d)).exp() * softplus(d) * factors[index]
    rows, total = weigh(rows, index, valid, None)
    return reduce(rows, total, reduction, input)


def _class_factors(alpha: float | Sequence[float] | Tensor | None, classes: int, logits: Tensor) -> Tensor:
    check_stored(alpha, "alpha")
    factors = torch.as_tensor(1.0 if alpha is None else alpha, dtype=logits.dtype, device=logits.device)
    if factors.shape not in ((), (classes,)):
        raise ValueError(f"alpha must be one number or {classes}, one a class, got shape {tuple(factors.shape)}.")
    return factors.expand(classes)
