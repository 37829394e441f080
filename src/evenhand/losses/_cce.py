"""Complement entropy and complement cross entropy (Kim, Lee and Jeon)."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evenhand.losses._adjusted import adjusted_cross_entropy, scale_and_shift
from evenhand.losses._complement import complement_rows
from evenhand.losses._counts import Counts, check_counts, logit_offset
from evenhand.losses._input import (
    check,
    check_gamma,
    check_number,
    check_numbers,
    check_per_class,
    check_smoothing,
    check_tensor,
    class_indices,
    holds_anywhere,
    reduce,
    refuse_ignore_index,
    weigh,
    with_batch,
)
from evenhand.losses.kernels.fused import NEGLIGIBLE, Terms, fused_loss, is_fused

# Target probabilities of a row that differ by less count as equal: smoothing and mixing leave rounding errors.
TIE = 1e-6


def complement_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    balanced: bool = False,
    spare: int = 0,
) -> Tensor:
    r"""Entropy of the predicted distribution over the *incorrect* classes.

    .. math::
        C = -\frac{1}{N} \sum_i \sum_{j \ne g} \frac{\hat y_j}{1 - \hat y_g} \log \frac{\hat y_j}{1 - \hat y_g}

    (eq. 2 of Kim, Lee and Jeon, *Imbalanced Image Classification with Complement Cross Entropy*), between 0 and
    ln(K - 1). It is large where the wrong classes have similar probabilities. Training *maximises* it: as a loss to
    minimise, use :func:`complement_cross_entropy`.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...). A row with a NaN or +inf is NaN, as in cross entropy, even if it
            is the logit of the correct class; where every incorrect class is masked by -inf, C = 0.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape. With
            probabilities, the incorrect classes of a row are those with its smallest probability (within 1e-6); where
            all classes tie, or fewer than two are incorrect, C = 0.
        weight: a weight per class, (K).
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`. The mean divides by the sum of the weights of the rows' classes, or
            by their number where targets are probabilities, as cross entropy does.
        balanced: divide by K - 1 (eq. 3), to the scale of the cross entropy.
        spare: exclude this many of the most probable incorrect classes of each row. C is the entropy over the others,
            renormalised; where fewer than two are left, C = 0.

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
    classes = check(input, target, weight, reduction)
    spare = check_spare(spare)
    logits, labels = with_batch(input, target)
    scale = 1.0 / (classes - 1) if balanced else 1.0
    if spare and classes - 1 - spare < 2:
        scale, spare = 0.0, 0
    if labels.is_floating_point():
        refuse_ignore_index(ignore_index)
        rows = _soft_complement(logits, labels, scale, spare)
        rows = rows * _row_factor(labels, weight, like=rows)
        return reduce(rows, None, reduction, input)
    if spare == 0 and is_fused(input, target, reduction):
        terms = Terms(target, weight, None, None, scale, False, ignore_index, reduction)
        if (loss := fused_loss(input, terms)) is not None:
            return loss
    index, valid = class_indices(labels, classes, ignore_index)
    rows, total = weigh(_counted_rows(logits, index, valid, scale, spare=spare), index, valid, weight)
    return reduce(rows, total, reduction, input)


def complement_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    gamma: float | str | None = None,
    share: float | Sequence[float] | Tensor | None = None,
    spare: int = 0,
    rivals: Tensor | None = None,
    counts: Counts | None = None,
    tau: float = 1.0,
    offset: Tensor | None = None,
    margin: Tensor | None = None,
    complement_on: str = "raw",
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    r"""Complement cross entropy (CCE): cross entropy minus the entropy over the incorrect classes.

    .. math::
        \mathrm{CCE} = H + \frac{\gamma}{K - 1} C \qquad \text{or, with `share`,} \qquad H - s C

    (eqs. 1, 4 and 5 of Kim, Lee and Jeon), with H the cross entropy and C the :func:`complement_entropy`. It takes all
    arguments of `torch.nn.functional.cross_entropy`, with the same meaning; with `gamma=0` it is that function.

    With `counts`, H is computed from the logits plus tau log(counts / sum), as in :func:`logit_adjusted_cross_entropy`,
    and C from the logits as they are.

    When to use it: with `counts` and a small `share` (0.1 to 0.6) where the wrong classes have nothing in common with
    the target class; with `spare` where every class has a few similar ones. The paper's gamma / (K - 1) is small where
    there are many classes. Tune these settings on validation images.

    Args:
        input: logits, (K), (N, K) or (N, K, d1, ...), with K >= 2. Half precision is computed in float32. A logit of
            -inf masks its class, which still counts in K. Rows that are NaN in cross entropy (with a NaN or +inf, or of
            -inf only) are NaN here, loss and gradient.
        target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape (mixup, soft
            labels). With probabilities, the incorrect classes of a row are those with its smallest probability (within
            1e-6), so both classes of a mixup are correct at any mixing ratio; where all classes tie, or fewer than two
            are incorrect, C = 0.
        weight: a weight per class, (K). It scales the whole loss of a row, H and C; where targets are probabilities t,
            C is scaled by sum_k t_k weight_k.
        gamma: the weight of the complement entropy. The paper uses -1, which maximises C; this is the default where
            neither gamma nor share is given. `"released"` is (K - 1) / K, as the paper's released code computes. With a
            negative gamma the loss can be negative.
        share: the weight of C independent of the number of classes, 0 or more: H - share * C. A number, or one per
            class (K), which applies to rows of that class (of probabilities t: sum_k t_k share_k). Not with gamma.
        spare: exclude this many of the most probable incorrect classes of each row from C, which is then the entropy
            over the others, renormalised; where fewer than two are left, C = 0.
        rivals: the incorrect classes that C covers, bool (K, K), row g for rows of class g; None: all of them.
            :func:`frequent_rivals` returns those at least as frequent as the target class. With class indices only, and
            not with spare.
        counts: training images per class, (K). A count of 0 is treated like the smallest positive count.
        tau: the multiple of the log prior that H adds, 0 or more; only with counts.
        offset: added to the logits in H, (K), instead of counts and tau.
        margin: subtracted in H from the logit of a class where it is the correct one, (K); see
            :func:`adjusted_cross_entropy`. `ldam_margins(counts)`, times the scale of the cosines, is LDAM.
        complement_on: the logits that C is computed from: `"raw"`, or `"adjusted"` by the offset of H.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`. The mean divides by the sum of the weights of the rows' classes, or
            by their number where targets are probabilities, as cross entropy does.
        label_smoothing: as in cross entropy; it changes H only.

    Returns:
        A scalar, or (), (N) or (N, d1, ...) with `reduction="none"`; of the input's dtype, or float32 under autocast.

    Raises:
        ValueError: for invalid shapes, dtypes, counts or settings.
        IndexError: for a class index outside 0..K-1 that is not `ignore_index`, in eager mode on the CPU.

    Example:
        >>> import torch
        >>> from evenhand.losses.functional import complement_cross_entropy
        >>> logits = torch.tensor([[4.0, 0.0, 0.0, 0.0], [4.0, 3.0, -3.0, -3.0]], requires_grad=True)
        >>> target = torch.tensor([0, 0])
        >>> complement_cross_entropy(logits, target, reduction="none")  # flat wrong classes cost less than one peak
        tensor([-0.3127,  0.3031], grad_fn=...)
        >>> complement_cross_entropy(logits, target, gamma=0) == torch.nn.functional.cross_entropy(logits, target)
        tensor(True)
        >>> complement_cross_entropy(logits, target, share=0.3, spare=1, counts=[500, 100, 50, 50])
        tensor(-0.1687, grad_fn=...)
    """
    usual = spare == 0 and rivals is None and label_smoothing == 0 and tau == 1 and complement_on == "raw"
    if usual and counts is None and is_fused(input, target, reduction):  # first, since every other check costs time
        factor = complement_factor(gamma, share, input.size(1))
        terms = Terms(target, weight, offset, margin, factor, True, ignore_index, reduction)
        if (loss := fused_loss(input, terms)) is not None:
            return loss
    classes = check(input, target, weight, reduction)
    check_smoothing(label_smoothing)
    factor = complement_factor(gamma, share, classes)
    spare = check_spare(spare)
    check_rivals(rivals, classes, spare, target)
    check_adjustment(counts, tau, offset, complement_on)
    if counts is not None:
        offset = logit_offset(check_counts(counts, classes), tau).to(input.device)
    check_per_class(offset, "offset", classes, input.device)
    check_per_class(margin, "margin", classes, input.device)
    cross_entropy = partial(
        adjusted_cross_entropy,
        margin=margin,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    if (not isinstance(factor, Tensor) and abs(factor) < NEGLIGIBLE) or (spare and classes - 1 - spare < 2):
        return cross_entropy(input, target, weight, offset=offset, reduction=reduction)
    logits, labels = with_batch(input, target)
    if complement_on == "adjusted":
        logits, offset = scale_and_shift(logits, offset), None
    if labels.is_floating_point():
        refuse_ignore_index(ignore_index)
        number, per_class = (1.0, factor) if isinstance(factor, Tensor) else (factor, None)
        rows = _soft_complement(logits, labels, number, spare)
        rows, total = rows * _row_factor(labels, weight, per_class, like=rows), None
    else:
        index, valid = class_indices(labels, classes, ignore_index)
        by_row = factor[index] if isinstance(factor, Tensor) else factor
        row_margin = None if margin is None else margin[index]
        if label_smoothing == 0 and rivals is None and not _learned(factor, offset, margin):
            rows = _counted_rows(
                logits, index, valid, by_row, with_cross_entropy=True, offset=offset, margin=row_margin, spare=spare
            )
            rows, total = weigh(rows, index, valid, weight)
            return reduce(rows, total, reduction, input)
        correct = index if rivals is None else _excluded(rivals, index)
        rows, total = weigh(by_row * _counted_rows(logits, correct, valid, 1.0, spare=spare), index, valid, weight)
    rows = rows + cross_entropy(logits.to(rows.dtype), labels, weight, offset=offset, reduction="none")
    return reduce(rows, total, reduction, input)


def _counted_rows(logits: Tensor, correct: Tensor, valid: Tensor | None, *args: Any, **kwargs: Any) -> Tensor:
    """Return `complement_rows`; an ignored row that is undefined is left out, or its gradient would be NaN times 0."""
    rows = complement_rows(logits, correct, *args, **kwargs)
    if valid is None or not holds_anywhere(rows.isnan() & ~valid):
        return rows
    return complement_rows(torch.where(valid.unsqueeze(1), logits, 0.0), correct, *args, **kwargs)


def _learned(*values: float | Tensor | None) -> bool:
    """Return whether any of them requires a gradient, which the fused form does not compute."""
    return any(value.requires_grad for value in values if isinstance(value, Tensor))


def complement_factor(gamma: Any, share: Any, classes: int) -> float | Tensor:
    """Return the factor of C given by gamma or share: a number, or one per class (K)."""
    if share is None:
        if type(gamma) is float and -math.inf < gamma < math.inf:  # the usual case, without a further call
            return gamma / (classes - 1)
        checked = -1.0 if gamma is None else check_gamma(gamma)
        return 1.0 / classes if isinstance(checked, str) else checked / (classes - 1)
    refuse_both(gamma, share)
    weight = check_share(share)
    if isinstance(weight, Tensor):
        check_per_class(weight, "share", classes)
    return -weight


def refuse_both(gamma: Any, share: Any) -> None:
    """Raise an error if both gamma and share are given."""
    if gamma is not None and share is not None:
        raise ValueError(f"gamma and share both weight the complement, got gamma {gamma} and share {share}: give one.")


def check_share(share: Any) -> float | Tensor:
    """Return the weight of C if it is a number of 0 or more, or one per class."""
    check_numbers(share, "share")
    if isinstance(share, (str, int, float)) or (isinstance(share, Tensor) and share.dim() == 0):
        return check_number(share, "share", least=0)
    try:
        each = torch.as_tensor(share)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"share must be a number, or one per class, got {share!r}.") from None
    each = each if each.is_floating_point() else each.to(torch.get_default_dtype())
    if holds_anywhere(~((each >= 0) & each.isfinite())):
        raise ValueError(f"share must be finite numbers of 0 or more, got {each.tolist()}.")
    return each


def check_spare(spare: Any) -> int:
    """Return the number of excluded classes if it is a whole number of 0 or more."""
    if isinstance(spare, bool) or not isinstance(spare, int) or spare < 0:
        raise ValueError(f"spare must be a whole number of 0 or more, got {spare!r}.")
    return spare


def check_rivals(rivals: Tensor | None, classes: int, spare: int, target: Tensor) -> None:
    """Raise an error unless rivals are bool (K, K) and go with the other settings."""
    if rivals is None:
        return
    check_tensor(rivals, "rivals")
    if rivals.dtype != torch.bool or rivals.shape != (classes, classes):
        raise ValueError(
            f"rivals must be bool of shape ({classes}, {classes}), got {rivals.dtype} of {tuple(rivals.shape)}."
        )
    if spare or target.is_floating_point():
        other = f"spare={spare}" if spare else "class probabilities"
        raise ValueError(f"rivals cannot be combined with {other}: leave one out.")


def _excluded(rivals: Tensor, index: Tensor) -> Tensor:
    """Return the classes that C of each row does not cover, bool (N, K, d1, ...)."""
    own = torch.eye(len(rivals), dtype=torch.bool, device=rivals.device)
    return (~rivals | own)[index].movedim(-1, 1)


def check_adjustment(counts: Any, tau: Any, offset: Any, complement_on: Any) -> None:
    """Raise an error where logits would be adjusted twice, or cannot be."""
    if complement_on not in ("raw", "adjusted"):
        raise ValueError(f"complement_on must be 'raw' or 'adjusted', got {complement_on!r}.")
    if counts is not None and offset is not None:
        raise ValueError("counts and offset both shift the logits of H, got both: give one.")
    if counts is None and check_number(tau, "tau", least=0) != 1:
        raise ValueError(f"tau is the multiple of the log prior to add, got {tau} without counts.")
    if complement_on == "adjusted" and counts is None and offset is None:
        raise ValueError("complement_on='adjusted' needs counts or an offset to adjust by, got neither.")


def _soft_complement(logits: Tensor, target: Tensor, scale: float, spare: int) -> Tensor:
    """Return scale * C of each row under class probabilities."""
    smallest = target.amin(1, keepdim=True)
    incorrect = target <= smallest + TIE
    correct = ~incorrect | incorrect.all(1, keepdim=True)
    return complement_rows(logits, correct, scale, spare=spare)


def _row_factor(target: Tensor, *factors: Tensor | None, like: Tensor) -> Tensor:
    """Return sum_k t_k of each row under class probabilities, each class times its factors."""
    each = target.to(like.dtype).movedim(1, -1)
    for factor in factors:
        if factor is not None:
            each = each * factor.to(like.dtype)
    return each.sum(-1)
