"""Networks side by side: one image in, the features of all of them joined."""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.models._from_timm import PREFIX, build_timm, timm_transform
from evenhand.models._lite import build_lite, lite_transform
from evenhand.models._zoo import build_torchvision, torchvision_transform
from evenhand.models.classifier import BodyAndHead, Classifier, Request, replace_module
from evenhand.models.heads import last_layer
from evenhand.models.names import LITES, split_names
from evenhand.models.transform import InputTransform

LENGTH = 16.0
"""Length of the joined features of an image; those of lite0 alone have this length or so."""


class Member(nn.Module):
    """One of several networks, for images that were prepared for the largest of them.

    Images are normalised and resized again, as this network needs them: after the crop, bilinear and antialiased.

    Args:
        network: the network; its last layer is removed.
        own: its own preprocessing.
        given: the preprocessing of the images.

    Example:
        >>> import torch
        >>> from evenhand.models.joined import Member, single_transform
        >>> from evenhand.models.build import build_model
        >>> given, own = single_transform("lite2"), single_transform("lite0")
        >>> member = Member(build_model("lite0", num_classes=2, image_size=224), own, given)
        >>> member.features(torch.zeros(1, 3, 260, 260)).shape
        torch.Size([1, 1280])
    """

    def __init__(self, network: Classifier, own: InputTransform, given: InputTransform) -> None:
        super().__init__()
        replace_module(network, last_layer(network), nn.Identity())
        self.network = network
        self.size = own.crop_size
        self.resizes = own.crop_size != given.crop_size
        before, after = (np.array([each.mean, each.std]) for each in (given, own))
        self.normalises = bool((before != after).any())
        factor, offset = before[1] / after[1], (before[0] - after[0]) / after[1]
        for name, values in (("factor", factor), ("offset", offset)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)
        self.own = own

    @property
    def name(self) -> str:
        """The name of the network in `build_model`."""
        return self.network.name

    @property
    def num_features(self) -> int:
        """F."""
        return self.network.num_features

    def prepare(self, images: Tensor) -> Tensor:
        """Return the images as this network needs them."""
        if self.normalises:
            images = images * self.get_buffer("factor") + self.get_buffer("offset")
        if self.resizes:
            images = F.interpolate(images, (self.size, self.size), mode="bilinear", antialias=True)
        return images

    def features(self, images: Tensor) -> Tensor:
        """Return features (N, F) of images (N, C, S, S)."""
        return self.network.features(self.prepare(images))

    def changes(self) -> str:
        """Describe the changes to the images, for the key of stored features; empty if there are none."""
        about = [f"normalised by {self.own.mean} {self.own.std}"] * self.normalises
        return ", ".join([*about, *[f"resized to {self.size}"] * self.resizes])


class JoinedBody(nn.Module):
    """Images (N, C, S, S) to the joined features of several networks, (N, F1 + F2 + ...)."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, images: Tensor) -> Tensor:
        """Return features of images."""
        return join_features([member.features(images) for member in self.members])  # type: ignore[operator]


def join_features(blocks: Sequence[Tensor]) -> Tensor:
    """Join the features (N, Fi) of several networks, each scaled to one length, so that none dominates.

    Example:
        >>> import torch
        >>> from evenhand.models.joined import join_features
        >>> join_features([torch.rand(2, 3), 100 * torch.rand(2, 5)]).norm(dim=1)
        tensor([16.0000, 16.0000])
    """
    length = LENGTH / sqrt(len(blocks))
    return torch.cat([length * F.normalize(block) for block in blocks], dim=1)


def build_joined(request: Request) -> Classifier:
    """Build several networks side by side, with one linear layer on their joined features.

    The image size is that of the largest network; another size changes those of the others in proportion.
    """
    names = split_names(request.name)
    files = request.members or (request.pretrained,) * len(names)
    if isinstance(request.pretrained, Path):
        raise EvenhandError(f"{request.name} are {len(names)} networks, but {request.pretrained} has weights of one.")
    natural = joined_transform(request.name)
    given = _for_channels(natural.at(request.image_size), request.channels)
    members = []
    for name, file in zip(names, files, strict=True):
        own = single_transform(name)
        own = _for_channels(own.at(round(own.crop_size * request.image_size / natural.crop_size)), request.channels)
        stem = "auto" if name.startswith(PREFIX) else request.stem
        build = build_timm if name.startswith(PREFIX) else build_lite if name in LITES else build_torchvision
        network = build(replace(request, name=name, image_size=own.crop_size, stem=stem, pretrained=file, members=()))
        members.append(Member(network, own, given))
    body = JoinedBody(members)
    num_features = sum(member.num_features for member in members)
    stem = next((each.network.stem for each in members if not each.name.startswith(PREFIX)), "auto")
    head = nn.Linear(num_features, request.num_classes)
    return Classifier(BodyAndHead(body, head), name=request.name, stem=stem, num_features=num_features)


def members_of(network: Classifier) -> tuple[Member, ...]:
    """Return the networks that a network joins; none if it is a single one."""
    body = getattr(network.network, "body", None)
    return tuple(body.members) if isinstance(body, JoinedBody) else ()  # type: ignore[arg-type]


def joined_transform(name: str) -> InputTransform:
    """Return the preprocessing of images for networks side by side: that of the largest, of equal ones the first.

    Example:
        >>> from evenhand.models.joined import joined_transform
        >>> joined_transform("lite0+lite2").crop_size
        260
    """
    return max((single_transform(each) for each in split_names(name)), key=lambda transform: transform.crop_size)


def single_transform(name: str) -> InputTransform:
    """Return the preprocessing of the weights of one pretrained network."""
    if name in LITES:
        return lite_transform(name)
    return timm_transform(name) if name.startswith(PREFIX) else torchvision_transform(name)


def _for_channels(transform: InputTransform, channels: int) -> InputTransform:
    """Return the preprocessing of images of other channels: grey ones have the means over the channels."""
    if channels == len(transform.mean):
        return transform
    mean, std = float(np.mean(transform.mean)), float(np.mean(transform.std))
    return replace(transform, mean=(mean,) * channels, std=(std,) * channels)
