"""The losses as modules: each forward only calls its function.

Every docstring has one order: what the loss is, its formula (z are the logits of a row, g is its class, n the counts),
its arguments, its shapes, an example.
"""

from collections.abc import Sequence
from typing import Any

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
    """Return a buffer of a module; attribute access takes as long as a small loss takes to compute."""
    buffers = module._buffers
    return buffers[name] if name in buffers else getattr(module, name)


def _check_counts_fit(per_class: Tensor | None, input: Tensor) -> None:
    """Raise an error that names the counts, where numbers computed from them do not match the classes of the input."""
    if per_class is None or not isinstance(input, Tensor) or input.dim() == 0:
        return
    classes = input.shape[min(input.dim() - 1, 1)]
    if len(per_class) != classes:
        raise ValueError(f"counts must be {classes} numbers, one per class, got {len(per_class)}.") from None


class ComplementCrossEntropyLoss(nn.CrossEntropyLoss):
    r"""Complement cross entropy (CCE), a drop-in replacement of `nn.CrossEntropyLoss`.

    .. math::
        \mathrm{CCE} = H + \frac{\gamma}{K - 1} C \qquad \text{or, with `share` } s, \qquad H - s C,

    .. math::
        H = -\log \hat y_g, \qquad
        C = -\sum_{j \ne g} \frac{\hat y_j}{1 - \hat y_g} \log \frac{\hat y_j}{1 - \hat y_g}, \qquad
        \hat y = \operatorname{softmax}(z)

    With `counts`, H is computed from logits adjusted by tau times the log prior. See
    :func:`evenhand.losses.functional.complement_cross_entropy` for the details of each argument.

    Args:
        weight: a weight per class, (K); a buffer of the module.
        gamma: the weight of the complement entropy C; -1 as in the paper, or `"released"`.
        share: the weight of C independent of the number of classes, instead of gamma; a number, or one per class (K).
        spare: exclude this many of the most probable wrong classes of each row from C.
        rivals: the wrong classes that C covers, bool (K, K); :func:`frequent_rivals` returns those at least as frequent
            as the target class. A buffer of the module.
        counts: training images per class, (K). The offset computed from them is a buffer of the module.
        tau: the multiple of the log prior that H adds; only with counts.
        complement_on: the logits that C is computed from, `"raw"` or `"adjusted"`.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Shape:
        - input: logits, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

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
        checked_share = None if share is None else check_share(share)
        if isinstance(checked_share, Tensor):
            self.register_buffer("share", checked_share)
        else:
            self.share = checked_share
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
            _check_counts_fit(self.offset, input)
            raise

    def extra_repr(self) -> str:
        """Show the weight of C in the printed module, and the settings that differ from the paper."""
        share = self.share.tolist() if isinstance(self.share, Tensor) else self.share
        shown: dict[str, object] = {"gamma": self.gamma} if self.share is None else {"share": share}
        shown |= {"spare": self.spare} if self.spare else {}
        shown |= {"tau": self.tau} if self.offset is not None else {}
        shown |= {"complement_on": self.complement_on} if self.complement_on != "raw" else {}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class _CountAwareLoss(nn.CrossEntropyLoss):
    """Base class of losses that adjust logits by the class counts; a subclass implements `adjustment`.

    Args:
        weight: a weight per class, (K); a buffer of the module.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.
    """

    def __init__(self, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float) -> None:
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)

    def adjustment(self) -> dict[str, Any]:
        """Return the `offset`, `margin` and `scale` to pass to `adjusted_cross_entropy`; those (K) are buffers."""
        raise NotImplementedError

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        try:
            return functional.adjusted_cross_entropy(
                input,
                target,
                self.weight,
                **self.adjustment(),
                ignore_index=self.ignore_index,
                reduction=self.reduction,
                label_smoothing=self.label_smoothing,
            )
        except ValueError:
            for value in self.adjustment().values():
                _check_counts_fit(value if isinstance(value, Tensor) else None, input)
            raise


class LogitAdjustedLoss(_CountAwareLoss):
    r"""Cross entropy of logits shifted by tau times the log prior of their classes, in training only.

    .. math::
        \mathrm{LA} = -\log \frac{\exp(z_g + \tau \log \pi_g)}{\sum_j \exp(z_j + \tau \log \pi_j)},
        \qquad \pi_k = \frac{n_k}{\sum_j n_j}

    See :func:`evenhand.losses.functional.logit_adjusted_cross_entropy` for the details of each argument.

    Args:
        counts: training images per class, (K). The offset computed from them is a buffer of the module.
        weight: a weight per class, (K); a buffer of the module.
        tau: the multiple of the log prior.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Shape:
        - input: logits, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

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
        weight: Tensor | None = None,
        *,
        tau: float = 1.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)
        self.tau = tau
        self.register_buffer("offset", functional.logit_offset(counts, tau).float())

    def adjustment(self) -> dict[str, Any]:
        """Return the offset of the logits."""
        return {"offset": self.offset}

    def extra_repr(self) -> str:
        """Show tau in the printed module."""
        return f"tau={self.tau}"


class BalancedSoftmaxLoss(LogitAdjustedLoss):
    r"""Balanced softmax: :class:`LogitAdjustedLoss` at tau = 1.

    .. math::
        \mathrm{BS} = -\log \frac{n_g \exp(z_g)}{\sum_j n_j \exp(z_j)}

    See :func:`evenhand.losses.functional.balanced_softmax_loss` for the details of each argument.

    Args:
        counts: training images per class, (K). The offset computed from them is a buffer of the module.
        weight: a weight per class, (K); a buffer of the module.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Shape:
        - input: logits, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

    Example:
        >>> import torch
        >>> from evenhand.losses import BalancedSoftmaxLoss
        >>> BalancedSoftmaxLoss([5, 2, 2, 1])(torch.zeros(1, 4), torch.tensor([3]))  # -ln(1 / 10)
        tensor(2.3026)
    """

    def __init__(
        self,
        counts: Counts,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            counts, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )

    def extra_repr(self) -> str:
        """Show nothing: there are no settings."""
        return ""


class LDAMLoss(_CountAwareLoss):
    r"""Label-distribution-aware margin loss (LDAM), for cosines of a normalised last layer.

    .. math::
        \mathrm{LDAM} = -\log \frac{\exp(s (z_g - m_g))}{\exp(s (z_g - m_g)) + \sum_{j \ne g} \exp(s z_j)},
        \qquad m_k = m_{\max} \left( \frac{\min_j n_j}{n_k} \right)^{1/4}

    See :func:`evenhand.losses.functional.ldam_loss` for the details of each argument.

    Args:
        counts: training images per class, (K). The margins computed from them are a buffer of the module.
        weight: a weight per class, (K); a buffer of the module.
        max_margin: the margin of the rarest class.
        scale: the factor that turns cosines into logits.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Shape:
        - input: cosines, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

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
        weight: Tensor | None = None,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)
        self.max_margin = max_margin
        self.scale = check_scale(scale)
        self.register_buffer("margins", functional.ldam_margins(counts, max_margin).float())

    def adjustment(self) -> dict[str, Any]:
        """Return the scale of the cosines and the margins of the logits."""
        return {"margin": self.scale * self.margins, "scale": self.scale}

    def extra_repr(self) -> str:
        """Show the settings in the printed module."""
        return f"max_margin={self.max_margin}, scale={self.scale}"


class VSLoss(_CountAwareLoss):
    r"""Vector-scaling loss (VS): cross entropy of logits scaled and shifted by class, in training only.

    .. math::
        \mathrm{VS} = -\log \frac{\exp(\Delta_g z_g + \tau \log \pi_g)}{\sum_j \exp(\Delta_j z_j + \tau \log \pi_j)},
        \qquad \Delta_k = \left( \frac{n_k}{\max_j n_j} \right)^\gamma, \qquad \pi_k = \frac{n_k}{\sum_j n_j}

    See :func:`evenhand.losses.functional.vs_loss` for the details of each argument.

    Args:
        counts: training images per class, (K). The factors and offset computed from them are buffers of the module.
        weight: a weight per class, (K); a buffer of the module.
        gamma: the exponent of the factors.
        tau: the multiple of the log prior.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.
        label_smoothing: as in cross entropy.

    Shape:
        - input: logits, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

    Example:
        >>> import torch
        >>> from evenhand.losses import VSLoss
        >>> VSLoss([900, 100])(torch.tensor([[0.0, 4.0]]), torch.tensor([1]))
        tensor(0.7592)
    """

    factors: Tensor
    offset: Tensor

    def __init__(
        self,
        counts: Counts,
        weight: Tensor | None = None,
        *,
        gamma: float = 0.3,
        tau: float = 1.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction, label_smoothing)
        self.gamma, self.tau = gamma, tau
        self.register_buffer("factors", functional.vs_factors(counts, gamma).float())
        self.register_buffer("offset", functional.logit_offset(counts, tau).float())

    def adjustment(self) -> dict[str, Any]:
        """Return the scale and the offset of the logits."""
        return {"scale": self.factors, "offset": self.offset}

    def extra_repr(self) -> str:
        """Show the settings in the printed module."""
        return f"gamma={self.gamma}, tau={self.tau}"


class FocalLoss(nn.Module):
    r"""Focal loss on the softmax: cross entropy with well classified rows weighted down.

    .. math::
        \mathrm{FL} = -\alpha_g (1 - \hat y_g)^\gamma \log \hat y_g, \qquad \hat y = \operatorname{softmax}(z)

    See :func:`evenhand.losses.functional.focal_loss` for the details of each argument.

    Args:
        gamma: the focusing parameter; larger values weight well classified rows further down.
        alpha: a factor for all classes, or one per class (K); a buffer of the module.
        weight: a weight per class, (K), by which `reduction="mean"` divides; a buffer of the module.
        ignore_index: rows with this class index are ignored.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        - input: logits, (K), (N, K) or (N, K, d1, ...).
        - target: class indices, (), (N) or (N, d1, ...), or class probabilities of the input's shape.
        - output: a scalar, or with `reduction="none"` the shape of class indices.

    Example:
        >>> import torch
        >>> from evenhand import FocalLoss
        >>> FocalLoss(gamma=2, alpha=0.25)(torch.zeros(3, 2), torch.tensor([0, 1, 1]))  # 0.25 * 0.5 ** 2 * ln 2
        tensor(0.0433)
    """

    alpha: Tensor | None
    weight: Tensor | None

    def __init__(
        self,
        gamma: float = 2.0,
        alpha: float | Sequence[float] | Tensor | None = None,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        check_reduction(reduction)
        super().__init__()
        self.gamma = check_focal_gamma(gamma)
        self.register_buffer("alpha", None if alpha is None else torch.as_tensor(alpha, dtype=torch.float32))
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        return functional.focal_loss(
            input,
            target,
            self.weight,
            gamma=self.gamma,
            alpha=self.alpha,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """Show the settings in the printed module."""
        return f"gamma={self.gamma}, alpha={None if self.alpha is None else self.alpha.tolist()}"
