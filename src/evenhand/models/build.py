"""A name to a network."""

import difflib
from typing import get_args

from evenhand.core.errors import EvenhandError
from evenhand.models.cifar import BLOCKS_AND_WIDTH, build_cifar
from evenhand.models.classifier import Classifier, Request, Stem
from evenhand.models.from_timm import PREFIX, build_timm
from evenhand.models.zoo import ZOO, build_torchvision

_BUILDERS = {**dict.fromkeys(BLOCKS_AND_WIDTH, build_cifar), **dict.fromkeys(ZOO, build_torchvision)}

NAMES = tuple(_BUILDERS)
"""Every name `build_model` knows; beside these it takes `timm:NAME`."""


def build_model(
    name: str,
    *,
    num_classes: int,
    channels: int = 3,
    image_size: int = 32,
    stem: Stem = "auto",
    pretrained: bool = False,
) -> Classifier:
    """Build a network by name, freshly initialised unless `pretrained`.

    Args:
        name: one of `NAMES`, or `timm:NAME` for any network of timm. `resnet8`, `resnet32` and `resnet32x4` are the
            residual networks for CIFAR; the others are torchvision's, `squeezenet` being its version 1.1 and
            `resnext50` its 32x4d.
        num_classes: K, at least 2.
        channels: C of the images.
        image_size: shorter side of the images in pixels.
        stem: how the network begins. `imagenet`: as published, which for most halves height and width twice. `small`:
            the first convolution is 3 x 3 with stride 1, and no pooling follows. `auto`: `small` up to 96 px, else
            `imagenet`. The networks for CIFAR have the small stem only, those of timm only their own.
        pretrained: start from weights trained on ImageNet, for all but the last layer. This needs the imagenet stem,
            and `auto` chooses it. Where images do not have three channels the first kernel is changed as
            :func:`evenhand.models.zoo.fit_channels` says.

    Returns:
        The network, in training mode on the CPU.

    Raises:
        EvenhandError: an argument is none of these, two do not go together, or weights cannot be had.

    Example:
        >>> import torch
        >>> from evenhand.models.build import build_model
        >>> model = build_model("squeezenet", num_classes=7, image_size=64)
        >>> model.stem, model.num_features
        ('small', 512)
        >>> model(torch.randn(2, 3, 64, 64)).shape
        torch.Size([2, 7])
    """
    if num_classes < 2:
        raise EvenhandError(f"A classifier needs at least 2 classes, got {num_classes}.")
    if channels < 1:
        raise EvenhandError(f"Images have at least 1 channel, got {channels}.")
    if image_size < 1:
        raise EvenhandError(f"Images are at least 1 px wide, got {image_size}.")
    if stem not in get_args(Stem):
        raise EvenhandError(f"The stem must be auto, small or imagenet, got {stem!r}.")
    request = Request(name, num_classes, channels, image_size, stem, pretrained)
    if name.startswith(PREFIX):
        return build_timm(request)
    return _BUILDERS[known_model(name)](request)


def known_model(name: str) -> str:
    """Return the name if `build_model` may know it (whether timm has a `timm:NAME`, only timm can say).

    Example:
        >>> from evenhand.models.build import known_model
        >>> known_model("resnet34")
        'resnet34'
    """
    if name in _BUILDERS or name.startswith(PREFIX):
        return name
    near = difflib.get_close_matches(name.lower(), NAMES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(NAMES)}, and timm:NAME."
    raise EvenhandError(f"There is no network {name!r}; {hint}")
