"""The losses as modules: each forward only calls its function."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from evenhand.losses import functional
from evenhand.losses._cce import check_adjustment, check_share, check_spare, refuse_both
from evenhand.losses._counts import Counts
from evenhand.losses._input import (
    check_focal_gamma,
    check_gamma,
    check_reduction,
    check_scale,
    check_smoothing,
    check_tensor,
)


def _buffer(module: nn.Module, name: str) -> Tensor | None:
    """Return a buffer of a module; as an attribute it takes as long to find as a small loss takes to compute."""
    buffers = module._buffers
    return buffers[name] if name in buffers else getattr(module, name)


def _refuse_counts(made: Tensor | None, input: Tensor) -> None:
    """Say so where a loss refused what was made of the counts: the user gave counts, and knows no other name."""
    if made is None or not isinstance(input, Tensor) or input.dim() == 0:
        return
    classes = input.shape[min(input.dim() - 1, 1)]
    if len(made) != classes:
        raise ValueError(f"counts must be {classes} numbers, one a class, got {len(made)}.") from None


class ComplementCrossEntropyLoss(nn.CrossEntropyLoss):
    """Complement cross entropy in the place of `nn.CrossEntropyLoss`, with the same arguments and some more.

    See :func:`evenhand.losses.functional.complement_cross_entropy` for what each argument means.

    Args:
        weight: a factor for each class, (K); it moves and is saved with the module.
        gamma: how much the complement entropy counts; -1 as in the paper, or `"released"`.
        share: the weight of C apart from the number of classes, in the place of gamma; one number, or one a class.
        spare: leave the so many likeliest incorrect classes of each row out of C.
        rivals: which incorrect classes C is taken over, bool (K, K), as :func:`frequent_rivals` makes it; it moves and
            is saved with the module.
        counts: training images a class, (K): H is taken of logits that are adjusted by them. The offset they give
            moves and is saved with the module.
        tau: how much of the log prior H adds; only with counts.
        complement_on: which logits C is taken of, `"raw"` or `"adjusted"`.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Example:
        >>> import torch
        >>> from evenhand import ComplementCrossEntropyLoss
        >>> criterion = ComplementCrossEntropyLoss()
        >>> logits = torch.zeros(3, 5, requires_grad=True)
        >>> loss = criterion(logits, torch.tensor([0, 1, 4]))  # ln 5 - ln 4 / 4
        >>> loss
        tensor(1.2629, grad_fn=...)
        >>> loss.backward()
        >>> ComplementCrossEntropyLoss(counts=[500, 300, 100, 60, 40], share=0.3)
        ComplementCrossEntropyLoss(share=0.3, tau=1.0)
    """

    offset: Tensor | None
    rivals: Tensor | None
    share: float | Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        gamma: float | str | None = None,
        share: float | Sequence[float] | Tensor | None = None,
        spare: int = 0,
        rivals: Tensor | None = None,
        counts: Counts | None = None,
        tau: float = 1.0,
        complement_on: str = "raw",
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        check_adjustment(counts, tau, None, complement_on)
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        refuse_both(gamma, share)
        self.gamma = None if share is not None else -1.0 if gamma is None else check_gamma(gamma)
        weight_of_c = None if share is None else check_share(share)
        if isinstance(weight_of_c, Tensor):
            self.register_buffer("share", weight_of_c)
        else:
            self.share = weight_of_c
        self.spare = check_spare(spare)
        if rivals is not None:
            check_tensor(rivals, "rivals")
        self.register_buffer("rivals", rivals)
        self.tau = tau
        self.complement_on = complement_on
        self.register_buffer("offset", None if counts is None else functional.logit_offset(counts, tau).float())

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        try:
            return functional.complement_cross_entropy(
                input,
                target,
                _buffer(self, "weight"),
                gamma=self.gamma,
                share=self.share,
                spare=self.spare,
                rivals=_buffer(self, "rivals"),
                offset=_buffer(self, "offset"),
                complement_on=self.complement_on,
                ignore_index=self.ignore_index,
                reduction=self.reduction,
                label_smoothing=self.label_smoothing,
            )
        except ValueError:
            _refuse_counts(self.offset, input)
            raise

    def extra_repr(self) -> str:
        """Show what weighs C in the printed module, and what else is not as in the paper."""
        share = self.share.tolist() if isinstance(self.share, Tensor) else self.share
        shown: dict[str, object] = {"gamma": self.gamma} if self.share is None else {"share": share}
        shown |= {"spare": self.spare} if self.spare else {}
        shown |= {"tau": self.tau} if self.offset is not None else {}
        shown |= {"complement_on": self.complement_on} if self.complement_on != "raw" else {}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class LogitAdjustedLoss(nn.CrossEntropyLoss):
    """Cross entropy of logits that are shifted by tau times the log prior of their classes, in training only.

    See :func:`evenhand.losses.functional.logit_adjusted_cross_entropy` for what each argument means.

    Args:
        counts: training images a class, (K). The offset they give moves and is saved with the module.
        tau: how much of the log prior.
        weight: a factor for each class, (K); it moves and is saved with the module.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Example:
        >>> import torch
        >>> from evenhand.losses import LogitAdjustedLoss
        >>> LogitAdjustedLoss([90, 10])(torch.zeros(1, 2), torch.tensor([1]))  # -ln 0.1
        tensor(2.3026)
    """

    offset: Tensor

    def __init__(
        self,
        counts: Counts,
        *,
        tau: float = 1.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.tau = tau
        self.register_buffer("offset", functional.logit_offset(counts, tau).float())

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        try:
            return functional.adjusted_cross_entropy(
                input,
                target,
                self.weight,
                offset=self.offset,
                ignore_index=self.ignore_index,
                reduction=self.reduction,
                label_smoothing=self.label_smoothing,
            )
        except ValueError:
            _refuse_counts(self.offset, input)
            raise

    def extra_repr(self) -> str:
        """Show tau in the printed module."""
        return f"tau={self.tau}"


class BalancedSoftmaxLoss(LogitAdjustedLoss):
    """Balanced softmax: :class:`LogitAdjustedLoss` at tau = 1.

    See :func:`evenhand.losses.functional.balanced_softmax_loss` for what each argument means.

    Args:
        counts: training images a class, (K). The offset they give moves and is saved with the module.
        weight: a factor for each class, (K); it moves and is saved with the module.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Example:
        >>> import torch
        >>> from evenhand.losses import BalancedSoftmaxLoss
        >>> BalancedSoftmaxLoss([5, 2, 2, 1])(torch.zeros(1, 4), torch.tensor([3]))  # -ln(1 / 10)
        tensor(2.3026)
    """

    def __init__(
        self,
        counts: Counts,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            counts, weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )

    def extra_repr(self) -> str:
        """Show nothing: there is nothing to set."""
        return ""


class LDAMLoss(nn.CrossEntropyLoss):
    """Label-distribution-aware margin loss, for cosines of a last layer that is normalised.

    See :func:`evenhand.losses.functional.ldam_loss` for what each argument means.

    Args:
        counts: training images a class, (K). The margins they give move and are saved with the module.
        max_margin: the margin of the rarest class.
        scale: what cosines are multiplied by to become logits.
        weight: a factor for each class, (K); it moves and is saved with the module.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Example:
        >>> import torch
        >>> from evenhand.losses import LDAMLoss
        >>> LDAMLoss([1600, 100])(torch.tensor([[0.5, 0.9]]), torch.tensor([1]))
        tensor(3.0486)
    """

    margins: Tensor

    def __init__(
        self,
        counts: Counts,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.max_margin = max_margin
        self.scale = check_scale(scale)
        self.register_buffer("margins", functional.ldam_margins(counts, max_margin).float())

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of cosines (N, K) or (N, K, d1, ...) and their targets."""
        try:
            return functional.adjusted_cross_entropy(
                input,
                target,
                self.weight,
                margin=self.scale * self.margins,
                scale=self.scale,
                ignore_index=self.ignore_index,
                reduction=self.reduction,
                label_smoothing=self.label_smoothing,
            )
        except ValueError:
            _refuse_counts(self.margins, input)
            raise

    def extra_repr(self) -> str:
        """Show the settings in the printed module."""
        return f"max_margin={self.max_margin}, scale={self.scale}"


class FocalLoss(nn.Module):
    """Focal loss on the softmax.

    See :func:`evenhand.losses.functional.focal_loss` for what each argument means.

    Args:
        gamma: how fast the loss fades for well classified samples.
        alpha: a factor for all classes (a number) or for each (K numbers); it moves and is saved with the module.
        ignore_index: rows with this class index count for nothing.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> import torch
        >>> from evenhand import FocalLoss
        >>> FocalLoss(gamma=2, alpha=0.25)(torch.zeros(3, 2), torch.tensor([0, 1, 1]))  # 0.25 * 0.5 ** 2 * ln 2
        tensor(0.0433)
    """

    alpha: Tensor | None

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float | Sequence[float] | Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        check_reduction(reduction)
        super().__init__()
        self.gamma = check_focal_gamma(gamma)
        self.register_buffer("alpha", None if alpha is None else torch.as_tensor(alpha, dtype=torch.float32))
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        return functional.focal_loss(
            input,
            target,
            gamma=self.gamma,
            alpha=self.alpha,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Show the settings in the printed module."""
        return f"gamma={self.gamma}, alpha={None if self.alpha is None else self.alpha.tolist()}"
