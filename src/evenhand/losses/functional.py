"""Losses for imbalanced classification, as pure functions with the keywords of `torch.nn.functional.cross_entropy`."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from evenhand.losses._complement import complement_rows
from evenhand.losses._formula import log_odds_against, softplus

# Below this share the complement entropy cannot change a digit of the loss, and its reciprocal would overflow.
NEGLIGIBLE = 1e-30

# Probabilities of a row that differ by less are equal: smoothing and mixing leave rounding errors behind.
TIE = 1e-6


def complement_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    balanced: bool = False,
) -> Tensor:
    r"""Entropy of the predicted distribution over the *incorrect* classes.

    .. math::
        C = -\frac{1}{N} \sum_i \sum_{j \ne g} \frac{\hat y_j}{1 - \hat y_g} \log \frac{\hat y_j}{1 - \hat y_g}

    (eq. 2 of Kim, Lee and Jeon, *Imbalanced Image Classification with Complement Cross Entropy*), between 0 and
    ln(K - 1). It is large where the wrong classes share their probability evenly, so training *maximises* it: as a loss
    to minimise, use :func:`complement_cross_entropy`.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...).
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape. With
            probabilities, the incorrect classes of a row are those that share its smallest probability (within 1e-6);
            where all classes tie, or fewer than two are incorrect, C = 0.
        weight: a factor for each class, (K).
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`. The mean divides by the sum of the weights of the rows' classes, or
            by their number where targets are probabilities, as cross entropy does.
        balanced: divide by K - 1 (eq. 3), which brings it to the scale of the cross entropy.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import complement_entropy
        >>> flat, peaked = torch.tensor([[4.0, 0.0, 0.0, 0.0], [4.0, 3.0, -3.0, -3.0]])
        >>> complement_entropy(flat, torch.tensor(0))  # ln 3
        tensor(1.0986)
        >>> complement_entropy(peaked, torch.tensor(0))
        tensor(0.0345)
    """
    classes = _check(input, target, weight, reduction)
    logits, target = _with_batch(input, target)
    scale = 1.0 / (classes - 1) if balanced else 1.0
    if target.is_floating_point():
        rows, total = _soft_complement(logits, target, weight, scale, ignore_index), None
    else:
        index, valid = _class_indices(target, classes, ignore_index)
        rows, total = _weigh(complement_rows(logits, index, scale), index, valid, weight)
    return _reduce(rows, total, reduction, input)


def complement_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    gamma: float = -1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Complement cross entropy (CCE): cross entropy that also flattens what is predicted for the wrong classes.

    .. math::
        \mathrm{CCE} = H + \frac{\gamma}{K - 1} C

    (eqs. 1, 4 and 5 of Kim, Lee and Jeon), with H the cross entropy and C the :func:`complement_entropy`. It takes
    everything `torch.nn.functional.cross_entropy` takes and means the same by it; with `gamma=0` it is that function.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32. A logit of
            -inf masks its class, which still counts in K.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape (mixup, soft
            labels). With probabilities, the incorrect classes of a row are those that share its smallest probability
            (within 1e-6), so both partners of a mixup are correct at any mixing ratio; where all classes tie, or fewer
            than two are incorrect, C = 0.
        weight: a factor for each class, (K). It scales the whole loss of a row, H and C; where targets are
            probabilities t, C is scaled by sum_k t_k weight_k.
        gamma: how much the complement entropy counts. Negative: C is maximised, as in the paper, which uses -1;
            (K - 1) / K is what the paper's released code computes. The loss can be negative when gamma is.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`. The mean divides by the sum of the weights of the rows' classes, or
            by their number where targets are probabilities, as cross entropy does.
        label_smoothing: as in cross entropy; it changes H only.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for shapes, dtypes or settings that do not fit.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import complement_cross_entropy
        >>> logits = torch.tensor([[4.0, 0.0, 0.0, 0.0], [4.0, 3.0, -3.0, -3.0]], requires_grad=True)
        >>> target = torch.tensor([0, 0])
        >>> complement_cross_entropy(logits, target, reduction="none")  # flat wrong classes cost less than a peak
        tensor([-0.3127,  0.3031], grad_fn=...)
        >>> complement_cross_entropy(logits, target, gamma=0) == torch.nn.functional.cross_entropy(logits, target)
        tensor(True)
    """
    classes = _check(input, target, weight, reduction)
    share = check_gamma(gamma) / (classes - 1)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, got {label_smoothing}.")
    if abs(share) < NEGLIGIBLE:
        return F.cross_entropy(
            input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    logits, target = _with_batch(input, target)
    total = None
    if target.is_floating_point():
        rows = _soft_complement(logits, target, weight, share, ignore_index)
    else:
        index, valid = _class_indices(target, classes, ignore_index)
        fused = label_smoothing == 0
        complement = complement_rows(logits, index, share, with_cross_entropy=fused)
        rows, total = _weigh(complement, index, valid, weight)
        if fused:
            return _reduce(rows, total, reduction, input)
    wide = logits.to(rows.dtype)
    soft = target.to(rows.dtype) if target.is_floating_point() else target
    rows = rows + F.cross_entropy(
        wide,
        soft,
        None if weight is None else weight.to(rows.dtype),
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return _reduce(rows, total, reduction, input)


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
    classes = _check(input, target, None, reduction)
    check_focal_gamma(gamma)
    logits, target = _with_batch(input, target)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    factors = _class_factors(alpha, classes, logits)
    if target.is_floating_point():
        _refuse_ignore_index(ignore_index)
        # A class without probability costs nothing, even if its logit is -inf; p = 1 stands for it, whose loss is 0.
        log_p = F.log_softmax(logits, 1).masked_fill(target == 0, 0.0)
        log_rest = (-log_p.expm1()).clamp(min=torch.finfo(log_p.dtype).tiny).log()
        each = target * (gamma * log_rest).exp() * -log_p
        rows = (each.movedim(1, -1) * factors).sum(-1)
        return _reduce(rows, None, reduction, input)
    index, valid = _class_indices(target, classes, ignore_index)
    d = log_odds_against(logits, index)
    rows = (gamma * F.logsigmoid(d)).exp() * softplus(d) * factors[index]
    rows, total = _weigh(rows, index, valid, None)
    return _reduce(rows, total, reduction, input)


def check_gamma(gamma: float) -> float:
    """Return gamma if it is a finite number; say what it is if not."""
    if not -math.inf < gamma < math.inf:  # as a comparison, it can be traced where gamma is not known yet
        raise ValueError(f"gamma must be a finite number, got {gamma}.")
    return gamma


def check_focal_gamma(gamma: float) -> float:
    """Return gamma if a focal loss can have it."""
    if check_gamma(gamma) < 0:
        raise ValueError(f"the gamma of the focal loss must be 0 or more, got {gamma}.")
    return gamma


def check_reduction(reduction: str) -> None:
    """Refuse a reduction that does not exist."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")


def _check(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> int:
    """Return the number of classes, or refuse what does not fit together."""
    check_reduction(reduction)
    shape = tuple(input.shape)
    if input.dim() == 0 or not input.is_floating_point():
        raise ValueError(f"input must be floating-point logits of shape (N, K), got {input.dtype} of shape {shape}.")
    classes = shape[0] if len(shape) == 1 else shape[1]
    if classes < 2:
        raise ValueError(f"input needs at least 2 classes, got {classes} (shape {shape}).")
    if target.shape == input.shape:
        if not target.is_floating_point():
            raise ValueError(
                f"target has the input's shape {shape}, so it must hold class probabilities, got {target.dtype}."
            )
    else:
        rows = () if len(shape) == 1 else (shape[0], *shape[2:])
        if target.shape != rows:
            raise ValueError(
                f"target for an input of shape {shape} must have shape {rows} (class indices) or {shape} "
                f"(class probabilities), got {tuple(target.shape)}."
            )
        if target.dtype not in (torch.int64, torch.uint8):
            raise ValueError(f"class indices must be int64, got {target.dtype}.")
    if weight is not None and (tuple(weight.shape) != (classes,) or not weight.is_floating_point()):
        raise ValueError(
            f"weight must hold {classes} floating-point numbers, one a class, "
            f"got {weight.dtype} of shape {tuple(weight.shape)}."
        )
    return classes


def _with_batch(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    return (input.unsqueeze(0), target.unsqueeze(0)) if input.dim() == 1 else (input, target)


def _class_indices(target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Return indices that can be gathered with, and which rows count (None: all do)."""
    target = target.long()
    span = _span(target)
    if span is not None and span[0] >= 0 and span[1] < classes and not span[0] <= ignore_index <= span[1]:
        return target, None
    valid = target != ignore_index
    target = torch.where(valid, target, 0)
    span = span and _span(target)
    if span is not None and not (span[0] >= 0 and span[1] < classes):
        wrong = span[0] if span[0] < 0 else span[1]
        raise IndexError(f"target {wrong} is not a class: expected 0 to {classes - 1}, or ignore_index {ignore_index}.")
    return target, valid


def _span(target: Tensor) -> tuple[int, int] | None:
    """Return the smallest and largest index where they can be read at no cost: in eager mode on the CPU."""
    if torch.compiler.is_compiling() or target.device.type != "cpu" or target.numel() == 0:
        return None
    try:
        low, high = target.aminmax()
        return int(low), int(high)
    except RuntimeError:  # inside vmap, values cannot be read
        return None


def _refuse_ignore_index(ignore_index: int) -> None:
    if ignore_index >= 0:
        raise ValueError(f"ignore_index is for class indices, got {ignore_index} with class probabilities.")


def _soft_complement(logits: Tensor, target: Tensor, weight: Tensor | None, scale: float, ignore_index: int) -> Tensor:
    """Return scale * C of each row under class probabilities, times the weight the row's classes have."""
    _refuse_ignore_index(ignore_index)
    smallest = target.amin(1, keepdim=True)
    incorrect = target <= smallest + TIE
    correct = ~incorrect | incorrect.all(1, keepdim=True)
    rows = complement_rows(logits, correct, scale)
    target = target.to(rows.dtype).movedim(1, -1)
    return rows * (target.sum(-1) if weight is None else (target * weight.to(rows.dtype)).sum(-1))


def _weigh(rows: Tensor, index: Tensor, valid: Tensor | None, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Weigh the rows by their classes and drop those that do not count; return them and what the mean divides by."""
    factor = None
    if weight is not None:
        factor = weight.to(rows.dtype)[index]
        rows = rows * factor
    if valid is not None:
        rows = torch.where(valid, rows, 0.0)
        factor = valid.to(rows.dtype) if factor is None else torch.where(valid, factor, 0.0)
    return rows, None if factor is None else factor.sum()


def _class_factors(alpha: float | Sequence[float] | Tensor | None, classes: int, logits: Tensor) -> Tensor:
    factors = torch.as_tensor(1.0 if alpha is None else alpha, dtype=logits.dtype, device=logits.device)
    if factors.shape not in ((), (classes,)):
        raise ValueError(f"alpha must be one number or {classes}, one a class, got shape {tuple(factors.shape)}.")
    return factors.expand(classes)


def _reduce(rows: Tensor, total: Tensor | None, reduction: str, input: Tensor) -> Tensor:
    """Reduce the loss of the rows and give it the dtype that cross entropy would."""
    if reduction == "mean":
        loss = rows.mean() if total is None else rows.sum() / total
    elif reduction == "sum":
        loss = rows.sum()
    else:
        loss = rows.squeeze(0) if input.dim() == 1 else rows
    device = input.device.type
    wide = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return loss if wide else loss.to(input.dtype)
