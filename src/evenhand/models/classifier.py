"""The one shape in which every network is handed out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import torch
from torch import Tensor, nn

Stem = Literal["auto", "small", "imagenet"]
"""How a network begins; `auto` where the choice is left open: to the image size, or to timm."""


@dataclass(frozen=True)
class Request:
    """What `build_model` is asked for; whether it goes together is for the builder of the network to say."""

    name: str
    num_classes: int
    channels: int
    image_size: int
    stem: Stem
    pretrained: bool | Path
    """Whether to start from the official ImageNet weights, or a file with others."""


class Network(Protocol):
    """What `Classifier` asks of a module: the two halves of a forward pass, named as in timm."""

    def forward_features(self, images: Tensor, /) -> Any:
        """Return whatever the head takes, usually a map (N, F, H, W) or features (N, F)."""

    def forward_head(self, maps: Any, /, *, pre_logits: bool = False) -> Tensor:
        """Return logits (N, K), or with `pre_logits` the features of each image."""


class Classifier(nn.Module):
    """A network that returns logits and, when asked, the features they are made from.

    Features are what enters the last linear layer. SqueezeNet has none: it classifies every position of its last map
    with a 1 x 1 convolution and averages the outcome, so its features are the input of that convolution averaged over
    the positions, and logits do not follow from them alone.

    Args:
        network: the module to wrap, such as `BodyAndHead` or a network of timm.
        name: what the network is called in `build_model`.
        stem: how it begins; given to `build_model` with the name, it yields this network again.
        num_features: F.

    Example:
        >>> import torch
        >>> from evenhand.models.build import build_model
        >>> model = build_model("resnet8", num_classes=10, channels=1, image_size=28)
        >>> images = torch.randn(4, 1, 28, 28)
        >>> model(images).shape
        torch.Size([4, 10])
        >>> logits, features = model(images, with_features=True)
        >>> features.shape, model.num_features, model.stem
        (torch.Size([4, 64]), 64, 'small')
    """

    def __init__(self, network: Network, *, name: str, stem: Stem, num_features: int) -> None:
        super().__init__()
        self.network = network
        self.name = name
        self.stem: Stem = stem
        self.num_features = num_features

    @overload
    def forward(self, images: Tensor, with_features: Literal[False] = False) -> Tensor: ...

    @overload
    def forward(self, images: Tensor, with_features: Literal[True]) -> tuple[Tensor, Tensor]: ...

    def forward(self, images: Tensor, with_features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return logits (N, K) of images (N, C, H, W), and features (N, F) beside them if asked.

        While a network of timm trains, its features have seen another draw of the head's dropout than its logits.
        """
        maps = self.network.forward_features(images)
        logits = self.network.forward_head(maps)
        if not with_features:
            return logits
        return logits, torch.flatten(self.network.forward_head(maps, pre_logits=True), 1)

    def features(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, C, H, W), without the cost of logits."""
        return torch.flatten(self.network.forward_head(self.network.forward_features(images), pre_logits=True), 1)

    def extra_repr(self) -> str:
        """Show name and stem in the printed module."""
        return f"name={self.name!r}, stem={self.stem!r}"


class BodyAndHead(nn.Module):
    """A `Network` in two modules.

    Args:
        body: images (N, C, H, W) to features (N, F) or a map (N, F, H', W').
        head: what the body returns to logits (N, K).
    """

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def forward_features(self, images: Tensor) -> Tensor:
        """Return features (N, F) or a map (N, F, H', W') of images (N, C, H, W)."""
        maps: Tensor = self.body(images)
        return maps

    def forward_head(self, maps: Tensor, *, pre_logits: bool = False) -> Tensor:
        """Return logits (N, K), or with `pre_logits` the features (N, F): a map is averaged over its positions."""
        if pre_logits:
            return maps if maps.ndim == 2 else maps.mean(dim=(2, 3))
        logits: Tensor = self.head(maps)
        return logits
