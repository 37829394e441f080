"""A last layer that leaves its logits to the loss, for so many classes that they should never be held all at once."""

from typing import NamedTuple

from torch import Tensor, nn

from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer


class PendingLogits(NamedTuple):
    """Logits that were not computed: features (N, D), and the layer that would make logits (N, K) of them."""

    features: Tensor
    layer: nn.Linear


class DeferringLinear(nn.Linear):
    """A linear layer that gives logits in evaluation, and in training what a loss needs to do without them."""

    def forward(self, input: Tensor) -> Tensor | PendingLogits:  # type: ignore[override]
        """Return logits (N, K) of features (N, D), or in training both operands."""
        return PendingLogits(input, self) if self.training else super().forward(input)


def defer_logits(model: Classifier) -> bool:
    """Let the last layer of a network leave its logits to the loss, in place; weights and their names stay.

    Returns:
        Whether it does: only a plain linear layer can.

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
