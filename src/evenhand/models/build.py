"""Networks by name."""

import difflib
from pathlib import Path
from typing import get_args

from evenhand.core.errors import EvenhandError
from evenhand.models._from_timm import PREFIX, build_timm, require_timm
from evenhand.models._lite import build_lite
from evenhand.models._zoo import ALIASES, NINE, build_torchvision, torchvision_names
from evenhand.models.amx import avoid_missing_amx
from evenhand.models.cifar import BLOCKS_AND_WIDTH, build_cifar
from evenhand.models.classifier import Classifier, Request, Stem
from evenhand.models.joined import build_joined
from evenhand.models.names import JOIN, LITES, split_names

NAMES = (*BLOCKS_AND_WIDTH, *NINE, *LITES)
"""The networks for CIFAR, those of the paper, and EfficientNet-Lite; `list_models` has all."""


def list_models(*, pretrained: bool = False) -> list[str]:
    """Return every name that `build_model` takes; it also takes `timm:NAME`, and names joined by `+`.

    Args:
        pretrained: only those with ImageNet weights.

    Example:
        >>> from evenhand.models.build import list_models
        >>> list_models()[:4], "resnet8" in list_models(pretrained=True)
        (['resnet8', 'resnet32', 'resnet32x4', 'lite0'], False)
    """
    own = [] if pretrained else list(BLOCKS_AND_WIDTH)
    return [*own, *LITES, *sorted({*ALIASES, *torchvision_names()})]


def build_model(
    name: str,
    *,
    num_classes: int,
    channels: int = 3,
    image_size: int = 32,
    stem: Stem = "auto",
    pretrained: bool | Path | tuple[bool | Path, ...] = False,
) -> Classifier:
    """Build a network by name, with fresh weights unless `pretrained`.

    Args:
        name: one of `list_models()`, or `timm:NAME` for any network of timm. `resnet8`, `resnet32` and `resnet32x4`
            are the residual networks for CIFAR; `lite0`, `lite1` and `lite2` are EfficientNet-Lite; the others are
            torchvision's, `squeezenet` being its version 1.1 and `resnext50` its 32x4d. Several joined by `+`, such as
            `lite0+lite1`, are networks side by side: their features, each scaled to one length, are joined.
        num_classes: K, at least 2.
        channels: C of the images.
        image_size: shorter side of the images, in pixels.
        stem: the first layers. `imagenet`: as published, which usually halves height and width twice. `small`: a 3 x 3
            convolution with stride 1 and no pooling. `auto`: `small` up to 96 px if the network supports it, else
            `imagenet`. The networks for CIFAR have only the small stem, those of timm only their own.
        pretrained: load ImageNet weights for all layers but the last. This needs the imagenet stem, which `auto` then
            chooses. For other than three channels the first kernel is changed by
            :func:`evenhand.models._zoo.fit_channels`. A path: other weights of the same network, a state dict in
            safetensors or in torch's format. For networks side by side: one for each.

    Returns:
        The network, in training mode on the CPU.

    Raises:
        EvenhandError: an argument is invalid, arguments cannot be combined, or weights cannot be loaded.

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
    members, pretrained = (pretrained, True) if isinstance(pretrained, tuple) else ((), pretrained)
    request = Request(name, num_classes, channels, image_size, stem, pretrained, members)
    known_model(name)
    avoid_missing_amx()  # before the network's first convolution
    if JOIN in name:
        return build_joined(request)
    if name.startswith(PREFIX):
        return build_timm(request)
    if name in BLOCKS_AND_WIDTH:
        return build_cifar(request)
    return build_lite(request) if name in LITES else build_torchvision(request)


def require_model(name: str) -> str:
    """Return the name of a known network, also checked with timm; refuse others before data are read.

    Raises:
        EvenhandError: there is no such network, or timm is not installed.

    Example:
        >>> from evenhand.models.build import require_model
        >>> require_model("lite0")
        'lite0'
    """
    known_model(name)
    for each in split_names(name):
        if each.startswith(PREFIX):
            require_timm(each)
    return name


def known_model(name: str) -> str:
    """Return the name of a known network; a `timm:NAME` is not checked with timm.

    Example:
        >>> from evenhand.models.build import known_model
        >>> known_model("resnet34")
        'resnet34'
    """
    if JOIN in name:
        return _known_together(name)
    names = list_models()
    if name in names or name.startswith(PREFIX):
        return name
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(NAMES)}, and timm:NAME."
    raise EvenhandError(f"There is no network {name!r}; {hint}")


def _known_together(name: str) -> str:
    """Return the names of networks side by side if all are known, pretrained, and named once."""
    names = split_names(name)
    for each in names:
        if known_model(each) in BLOCKS_AND_WIDTH:
            raise EvenhandError(f"Networks side by side need pretrained weights, which {each} has not; leave it out.")
    twice = [each for each in names if names.count(each) > 1]
    if twice:
        raise EvenhandError(f"{name} has {twice[0]} twice; name each network once.")
    return name
