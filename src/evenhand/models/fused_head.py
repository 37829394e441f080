"""A last layer fused with the loss, for so many classes that logits should not be stored."""

from typing import NamedTuple

from torch import Tensor, nn

from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer


class PendingLogits(NamedTuple):
    """Logits that are not computed yet: features (N, D), and the linear layer for them."""

    features: Tensor
    layer: nn.Linear


class DeferringLinear(nn.Linear):
    """A linear layer that returns logits in evaluation, and `PendingLogits` in training."""

    def forward(self, input: Tensor) -> Tensor | PendingLogits:  # type: ignore[override]
        """Return logits (N, K) of features (N, D), or in training their operands."""
        return PendingLogits(input, self) if self.training else super().forward(input)


def defer_logits(model: Classifier) -> bool:
    """Make the last layer of a network return `PendingLogits` in training, in place; weights do not change.

    Returns:
        Whether the last layer is a plain linear one, which this needs.

    Example:
        >>> import torch
        >>> from evenhand.models.build import build_model
        >>> from evenhand.models.fused_head import defer_logits
        >>> model = build_model("resnet8", num_classes=3)
        >>> defer_logits(model)
        True
        >>> model(torch.randn(2, 3, 32, 32)).features.shape, model.eval()(torch.randn(2, 3, 32, 32)).shape
        (torch.Size([2, 64]), torch.Size([2, 3]))
    """
    layer = model.get_submodule(last_layer(model))
    if type(layer) is not nn.Linear:
        return False
    layer.__class__ = DeferringLinear
    return True
