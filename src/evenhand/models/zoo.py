"""Networks of torchvision: what is cut and sewn so that they take any images and any number of classes."""

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

import torch
from torch import Tensor, nn
from torchvision.models import get_model, get_model_weights

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import BodyAndHead, Classifier, Request

SMALL_UP_TO = 96
"""The largest image size, in pixels, for which `auto` means the small stem."""


def _replace(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)


def _cut_off_last(network: nn.Module, last: str) -> BodyAndHead:
    head = network.get_submodule(last)
    _replace(network, last, nn.Identity())
    return BodyAndHead(network, head)


def _take_apart(network: nn.Module, last: str) -> BodyAndHead:
    """Split a SqueezeNet: its own forward would flatten the map that the head needs."""
    dropout, *head = network.get_submodule(last.rpartition(".")[0]).children()
    return BodyAndHead(nn.Sequential(network.get_submodule("features"), dropout), nn.Sequential(*head, nn.Flatten()))


@dataclass(frozen=True)
class Family:
    """Where the parts to change lie in networks built alike, as dotted paths, and how they are changed."""

    first: str
    """The first convolution."""
    pool: str | None
    """The max-pooling of the stem, if there is one."""
    last: str
    """The layer that makes logits."""
    initialise: Callable[[Tensor], Tensor]
    """How the family fills the kernel of its first convolution."""
    split: Callable[[nn.Module, str], BodyAndHead] = _cut_off_last
    """Given a network and the path of its last layer, part it there."""
    smallest: tuple[int, int] = (1, 1)
    """The shortest side in pixels, with the small and the imagenet stem, that survives all the halving."""


_kaiming_out = partial(nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu")
_RESNET = Family("conv1", "maxpool", "fc", _kaiming_out)
_SQUEEZENET = Family(
    "features.0", "features.2", "classifier.1", nn.init.kaiming_uniform_, split=_take_apart, smallest=(4, 17)
)
_DENSENET = Family("features.conv0", "features.pool0", "classifier", nn.init.kaiming_normal_, smallest=(8, 29))
_EFFICIENTNET = Family("features.0.0", None, "classifier.1", _kaiming_out)

ZOO = {
    "resnet34": ("resnet34", _RESNET),
    "resnet50": ("resnet50", _RESNET),
    "resnet101": ("resnet101", _RESNET),
    "squeezenet": ("squeezenet1_1", _SQUEEZENET),
    "resnext50": ("resnext50_32x4d", _RESNET),
    "densenet121": ("densenet121", _DENSENET),
    "efficientnet_b0": ("efficientnet_b0", _EFFICIENTNET),
    "efficientnet_b1": ("efficientnet_b1", _EFFICIENTNET),
    "efficientnet_b7": ("efficientnet_b7", _EFFICIENTNET),
}
"""Of each name: torchvision's name for the network, and its family."""


def build_torchvision(request: Request) -> Classifier:
    """Build one of `ZOO`: torchvision's network but for the stem, the number of channels and the last layer.

    The small stem is a 3 x 3 convolution with stride 1 and no max-pooling behind it. Pretrained are all weights but
    those of the last layer; see `fit_channels` for images without three channels.

    Example:
        >>> from evenhand.models.classifier import Request
        >>> from evenhand.models.zoo import build_torchvision
        >>> request = Request("squeezenet", num_classes=5, channels=1, image_size=224, stem="auto", pretrained=False)
        >>> build_torchvision(request).stem
        'imagenet'
    """
    original, family = ZOO[request.name]
    stem = _choose_stem(request, family)
    network = get_model(original, num_classes=request.num_classes)
    if stem == "small" or request.channels != 3:
        _replace(network, family.first, _first(network, family, request.channels, stem))
    if stem == "small" and family.pool:
        _replace(network, family.pool, nn.Identity())
    if request.pretrained:
        state = _pretrained_state(request.name)
        kernel = f"{family.first}.weight"
        state[kernel] = fit_channels(state[kernel], request.channels)
        fresh = {key: value for key, value in network.state_dict().items() if key.startswith(f"{family.last}.")}
        network.load_state_dict({**state, **fresh})
    num_features = network.get_parameter(f"{family.last}.weight").shape[1]
    return Classifier(family.split(network, family.last), name=request.name, stem=stem, num_features=num_features)


def fit_channels(kernel: Tensor, channels: int) -> Tensor:
    """Make the first kernel of a trained network, (F, C, h, w), take another number of channels.

    For one channel the kernel is summed over C: a grey image gives what the image repeated C times gave. For other
    numbers its slices are repeated in turn and scaled by C / channels, so that the response keeps its size; which
    channel each slice once looked at is lost.

    Returns:
        The kernel, (F, channels, h, w).

    Example:
        >>> import torch
        >>> from evenhand.models.zoo import fit_channels
        >>> kernel = torch.tensor([1.0, 2.0, 6.0]).reshape(1, 3, 1, 1)
        >>> fit_channels(kernel, 1).flatten()
        tensor([9.])
        >>> fit_channels(kernel, 4).flatten()
        tensor([0.7500, 1.5000, 4.5000, 0.7500])
    """
    before = kernel.shape[1]
    if channels == before:
        return kernel
    if channels == 1:
        return kernel.sum(dim=1, keepdim=True)
    return kernel[:, torch.arange(channels) % before] * (before / channels)


def _choose_stem(request: Request, family: Family) -> Literal["small", "imagenet"]:
    if request.pretrained and request.stem == "small":
        raise EvenhandError("Pretrained weights need the imagenet stem: leave the stem at auto, or do without them.")
    stem = request.stem
    if stem == "auto":
        stem = "small" if request.image_size <= SMALL_UP_TO and not request.pretrained else "imagenet"
    smallest = family.smallest[stem == "imagenet"]
    if request.image_size < smallest:
        way_out = "enlarge them" if stem == "small" or request.pretrained else "choose the small stem"
        raise EvenhandError(
            f"{request.name} with the {stem} stem takes images of {smallest} px or more, got {request.image_size}; "
            f"{way_out} or another network."
        )
    return stem


def _first(network: nn.Module, family: Family, channels: int, stem: str) -> nn.Conv2d:
    old: Any = network.get_submodule(family.first)
    size, stride, padding = (3, 1, 1) if stem == "small" else (old.kernel_size, old.stride, old.padding)
    new = nn.Conv2d(channels, old.out_channels, size, stride, padding, bias=old.bias is not None)
    family.initialise(new.weight)
    if new.bias is not None:
        nn.init.zeros_(new.bias)
    return new


def _pretrained_state(name: str) -> dict[str, Tensor]:
    original, _ = ZOO[name]
    weights = get_model_weights(original).DEFAULT
    folder = Path(torch.hub.get_dir(), "checkpoints")
    file = folder / Path(urlparse(weights.url).path).name
    try:
        # torch prints to stdout that it downloads, where a table or JSON may be expected.
        with contextlib.redirect_stdout(sys.stderr):
            network = get_model(original, weights=weights, progress=sys.stderr.isatty())
    except Exception as error:  # a broken connection or a damaged pickle raises nearly anything
        reason = " ".join(str(error).split())[:120].rstrip(".") or type(error).__name__
        # A download gets its name only when it is whole, so a file that is there came before and is no good.
        if file.exists():
            raise EvenhandError(
                f"Cannot use the pretrained weights of {name} in {file} ({reason}); delete the file, and it will be "
                f"downloaded again from {weights.url}."
            ) from error
        raise EvenhandError(
            f"Cannot download the pretrained weights of {name} ({reason}); get {weights.url} some other way and put "
            f"the file into {folder}."
        ) from error
    state: dict[str, Tensor] = network.state_dict()
    return state
