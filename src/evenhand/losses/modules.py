"""The losses as modules: each forward only calls its function."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from evenhand.losses import functional


class ComplementCrossEntropyLoss(nn.CrossEntropyLoss):
    """Complement cross entropy in the place of `nn.CrossEntropyLoss`, with the same arguments and one more, `gamma`.

    See :func:`evenhand.losses.functional.complement_cross_entropy` for what each argument means.

    Args:
        weight: a factor for each class, (K); it moves and is saved with the module.
        gamma: how much the complement entropy counts; -1 as in the paper.
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
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        gamma: float = -1.0,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        functional.check_reduction(reduction)
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing)
        self.gamma = functional.check_gamma(gamma)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, K) or (N, K, d1, ...) and their targets."""
        return functional.complement_cross_entropy(
            input,
            target,
            self.weight,
            gamma=self.gamma,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        """Show gamma in the printed module."""
        return f"gamma={self.gamma}"


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
        functional.check_reduction(reduction)
        super().__init__()
        self.gamma = functional.check_focal_gamma(gamma)
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
