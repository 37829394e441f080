"""The interface of all networks: logits and features."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, overload

import torch
from torch import Tensor, nn

Stem = Literal["auto", "small", "imagenet"]
"""The first layers of a network; `auto`: by the image size, or those of timm."""


@dataclass(frozen=True)
class Request:
    """The arguments of `build_model`, which the builder of each network checks."""

    name: str
    num_classes: int
    channels: int
    image_size: int
    stem: Stem
    pretrained: bool | Path
    """Whether to load the official ImageNet weights, or a file of weights."""
    members: tuple[bool | Path, ...] = ()
    """The same for each of several networks side by side, if they differ."""


class Network(Protocol):
    """What `Classifier` needs of a module: the two halves of a forward pass, named as in timm."""

    def forward_features(self, images: Tensor, /) -> Any:
        """Return the input of the head, usually a map (N, F, H, W) or features (N, F)."""

    def forward_head(self, maps: Any, /, *, pre_logits: bool = False) -> Tensor:
        """Return logits (N, K), or with `pre_logits` the features of each image."""


class Classifier(nn.Module):
    """A network that returns logits and optionally features.

    Features are the input of the last linear layer. SqueezeNet has none: it classifies every position of its last map
    with a 1 x 1 convolution and averages the logits. Its features are the input of that convolution, averaged over the
    positions, and do not determine its logits.

    Args:
        network: the module to wrap, such as `BodyAndHead` or a network of timm.
        name: the name of the network in `build_model`.
        stem: its first layers; `build_model` with this name and stem builds the same network.
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
        """Return logits (N, K) of images (N, C, H, W), and with `with_features` also features (N, F).

        In training, features and logits of a timm network have different dropout masks of the head.
        """
        maps = self.network.forward_features(images)
        logits = self.network.forward_head(maps)
        if not with_features:
            return logits
        return logits, torch.flatten(self.network.forward_head(maps, pre_logits=True), 1)

    def features(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, C, H, W), without computing logits."""
        return torch.flatten(self.network.forward_head(self.network.forward_features(images), pre_logits=True), 1)

    def extra_repr(self) -> str:
        """Show name and stem in the printed module."""
        return f"name={self.name!r}, stem={self.stem!r}"


class BodyAndHead(nn.Module):
    """A `Network` made of two modules.

    Args:
        body: images (N, C, H, W) to features (N, F) or a map (N, F, H', W').
        head: the output of the body to logits (N, K).
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


def replace_module(network: nn.Module, path: str, module: nn.Module) -> None:
    """Replace the submodule at a dotted path, in place."""
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)
