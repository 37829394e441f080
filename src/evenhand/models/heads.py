"""The last layer of a network, and replacements for it."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import parse
from evenhand.models.classifier import Classifier, replace_module
from evenhand.models.names import LEAST_SCALE, MOST_LDA, MOST_SCALE

UNIT_SCALE = 30.0
"""The scale up to which the weights of `CosineHead.start_at` have length 1."""


class HeadSpec(NamedTuple):
    """The parsed spec of a last layer."""

    name: str
    scale: float
    """Factor from cosines to logits."""
    lda: float
    """Weight of linear discriminants next to the cosines."""


class CosineHead(nn.Module):
    """A cosine classifier: scale * cos(feature, weight of the class).

    With `lda`, linear discriminants of features of length 1 are added in evaluation. They are not trained but fitted,
    see :mod:`evenhand.models.discriminants`; until :meth:`set_discriminants` they are 0.

    Args:
        num_features: F.
        num_classes: K.
        scale: factor from cosines to logits.
        lda: weight of the discriminants; 0: there are none.

    Example:
        >>> import torch
        >>> from evenhand.models.heads import CosineHead
        >>> head = CosineHead(8, 3, scale=30)
        >>> features = torch.randn(2, 8)
        >>> torch.allclose(head(features), head(5 * features), atol=1e-4)
        True
    """

    def __init__(self, num_features: int, num_classes: int, *, scale: float, lda: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_classes, num_features))
        self.scale, self.lda = scale, lda
        if lda:
            self.register_buffer("lda_weight", torch.zeros(num_classes, num_features))
            self.register_buffer("lda_bias", torch.zeros(num_classes))

    @torch.no_grad()
    def start_at(self, directions: Tensor) -> None:
        """Set the weight of every class to a direction (K, F), such as the mean of its features.

        A gradient changes the direction of a weight in inverse proportion to its squared length, and with `scale`: the
        length set here lets the logits follow the learning rate as those of a linear layer do.
        """
        self.weight.copy_(max(1.0, self.scale / UNIT_SCALE) * F.normalize(directions))

    @torch.no_grad()
    def set_discriminants(self, weight: Tensor, bias: Tensor) -> None:
        """Set the discriminants: weight (K, F) and bias (K,), for features of length 1."""
        self.get_buffer("lda_weight").copy_(self.lda * weight)
        self.get_buffer("lda_bias").copy_(self.lda * bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, K) of features (N, F), in float32 also under autocast; discriminants in evaluation."""
        device = features.device.type
        if torch.is_autocast_enabled(device):  # bfloat16 cosines are coarser than the margins
            with torch.autocast(device, enabled=False):
                return self._logits(features.float())
        return self._logits(features)

    def _logits(self, features: Tensor) -> Tensor:
        # Products are divided by the lengths of the weights: dividing the weights (K, F) takes half as long again.
        scaled = features * (self.scale / _lengths(features).unsqueeze(1))
        logits = F.linear(scaled, self.weight) / _lengths(self.weight)
        if self.lda and not self.training:
            logits = logits + F.linear(scaled / self.scale, self.get_buffer("lda_weight"), self.get_buffer("lda_bias"))
        return logits

    def extra_repr(self) -> str:
        """Show sizes and scale in the printed module."""
        classes, features = self.weight.shape
        return f"{features}, {classes}, scale={self.scale:g}" + f", lda={self.lda:g}" * bool(self.lda)


def _lengths(vectors: Tensor) -> Tensor:
    """Return the lengths (N,) of vectors (N, F), above 0 as in `F.normalize`."""
    lengths: Tensor = vectors.norm(dim=1)
    return lengths.clamp_min(1e-12)


class ScaledHead(nn.Linear):
    """A frozen linear layer with one learned scale per class (learnable weight scaling)."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__(num_features, num_classes)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, K) of features (N, F)."""
        return self.scale * super().forward(features)


def last_layer(model: Classifier) -> str:
    """Return the path of the last layer.

    Example:
        >>> from evenhand.models.build import build_model
        >>> from evenhand.models.heads import last_layer
        >>> last_layer(build_model("resnet8", num_classes=3))
        'network.head'
    """
    network: Any = model.network
    if hasattr(network, "get_classifier"):  # of timm
        last = network.get_classifier()
        return str(next(path for path, module in model.named_modules() if module is last))
    return "network.head"


def replace_head(model: Classifier, head: str) -> Classifier:
    """Replace the last layer of a network by a fresh one, in place.

    Args:
        model: the network.
        head: `linear` (no change), `cosine:scale=30`, `cosine:scale=20:lda=0.3`, or `scaled`.

    Returns:
        The network.

    Raises:
        EvenhandError: the network does not end in a linear layer, or there is no such head.

    Example:
        >>> import torch
        >>> from evenhand.models.build import build_model
        >>> from evenhand.models.heads import replace_head
        >>> model = replace_head(build_model("resnet8", num_classes=3), "cosine:scale=16")
        >>> bool(model(torch.randn(2, 3, 32, 32)).abs().max() <= 16)
        True
    """
    name, scale, lda = read_head(head)
    if name == "linear":
        return model
    path = last_layer(model)
    old = model.get_submodule(path)
    if not isinstance(old, nn.Linear):
        raise EvenhandError(
            f"{model.name} does not end in a linear layer, which a {name} head needs; choose another network."
        )
    sizes = (old.in_features, old.out_features)
    new = CosineHead(*sizes, scale=scale, lda=lda) if name == "cosine" else ScaledHead(*sizes)
    replace_module(model, path, new)
    return model


def read_head(head: str) -> HeadSpec:
    """Parse the spec of a last layer.

    Raises:
        EvenhandError: there is no such head.

    Example:
        >>> from evenhand.models.heads import read_head
        >>> read_head("cosine:scale=16")
        HeadSpec(name='cosine', scale=16.0, lda=0.0)
    """
    part, *more = parse(head)
    if more or part.name not in ("linear", "cosine", "scaled"):
        raise EvenhandError(f"There is no head {head!r}; there are linear, cosine and scaled.")
    scale, lda = _number(part.options.get("scale", "30")), _number(part.options.get("lda", "0"))
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise EvenhandError(f"The scale of a head is a number from {LEAST_SCALE:g} to {MOST_SCALE:,.0f}, got {head!r}.")
    if not 0 <= lda <= MOST_LDA:
        raise EvenhandError(f"The lda of a head is a number from 0 to {MOST_LDA:g}, got {head!r}.")
    return HeadSpec(part.name, scale, lda)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
