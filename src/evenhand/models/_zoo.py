"""Networks of torchvision, changed for any image size, channels and number of classes."""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models import get_model, get_model_weights
from torchvision.models import list_models as list_torchvision

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import BodyAndHead, Classifier, Request, replace_module
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file, fetch_weights, fill, read_state

SMALL_UP_TO = 96
"""The largest image size, in pixels, for which `auto` means the small stem."""


def _cut_off_last(network: nn.Module, last: str) -> BodyAndHead:
    head = network.get_submodule(last)
    replace_module(network, last, nn.Identity())
    return BodyAndHead(network, head)


def _take_apart(network: nn.Module, last: str) -> BodyAndHead:
    """Split a SqueezeNet: its own forward would flatten the map that the head needs."""
    dropout, *head = network.get_submodule(last.rpartition(".")[0]).children()
    return BodyAndHead(nn.Sequential(network.get_submodule("features"), dropout), nn.Sequential(*head, nn.Flatten()))


@dataclass(frozen=True)
class Family:
    """The layers to change in a family of networks, as dotted paths, and how to change them."""

    first: str
    """The first convolution."""
    pool: str | None
    """The max-pooling of the stem, if there is one."""
    last: str
    """The last layer."""
    initialise: Callable[[Tensor], Tensor]
    """Initialisation of the first convolution."""
    split: Callable[[nn.Module, str], BodyAndHead] = _cut_off_last
    """Splits a network at the path of its last layer."""
    smallest: tuple[int, int] = (1, 1)
    """The smallest image size in pixels, with the small and the imagenet stem."""


_kaiming_out = partial(nn.init.kaiming_normal_, mode="fan_out", nonlinearity="relu")
_RESNET = Family("conv1", "maxpool", "fc", _kaiming_out)
_SQUEEZENET = Family(
    "features.0", "features.2", "classifier.1", nn.init.kaiming_uniform_, split=_take_apart, smallest=(4, 17)
)
_DENSENET = Family("features.conv0", "features.pool0", "classifier", nn.init.kaiming_normal_, smallest=(8, 29))
_EFFICIENTNET = Family("features.0.0", None, "classifier.1", _kaiming_out)

# Prefixes of torchvision's names, and the family; in other networks only the first and last layers are found.
_FAMILIES = {
    ("resnet", "resnext", "wide_resnet"): _RESNET,
    ("squeezenet1_1",): _SQUEEZENET,
    ("squeezenet1_0",): replace(_SQUEEZENET, smallest=(4, 21)),
    ("densenet",): _DENSENET,
    ("efficientnet_b",): _EFFICIENTNET,
}
_OPTIONS: dict[str, dict[str, Any]] = {
    # Auxiliary heads are for training only; the official weights expect images scaled once more.
    "googlenet": {"aux_logits": False, "transform_input": True, "init_weights": True},
    "inception_v3": {"aux_logits": False, "transform_input": True, "init_weights": True},
}
_TRAINING_ONLY = re.compile(r"aux\d\.|AuxLogits\.")
_DENSENET_KEY = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.(\d)")
"""Names in the published files of DenseNet have one more dot."""
_ONE_SIZE = ("vit", "maxvit")
"""Networks with position embeddings of one image size."""

ALIASES = {"squeezenet": "squeezenet1_1", "resnext50": "resnext50_32x4d"}
"""Short names, and torchvision's for the same networks."""

NINE = (
    "resnet34",
    "resnet50",
    "resnet101",
    "squeezenet",
    "resnext50",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b7",
)
"""The networks of the paper."""


@cache
def torchvision_names() -> tuple[str, ...]:
    """Return the networks of torchvision that have official ImageNet weights, by its own names.

    Example:
        >>> from evenhand.models._zoo import torchvision_names
        >>> {"resnet18", "mobilenet_v3_small", "convnext_tiny", "vit_b_16"} <= set(torchvision_names())
        True
    """
    return tuple(list_torchvision(module=torchvision.models))


def build_torchvision(request: Request) -> Classifier:
    """Build a network of torchvision with another stem, number of channels and last layer.

    The small stem is a 3 x 3 convolution with stride 1 and no max-pooling. All layers but the last can be pretrained;
    see `fit_channels` for other than three channels.

    Example:
        >>> from evenhand.models.classifier import Request
        >>> from evenhand.models._zoo import build_torchvision
        >>> request = Request("squeezenet", num_classes=5, channels=1, image_size=224, stem="auto", pretrained=False)
        >>> build_torchvision(request).stem
        'imagenet'
    """
    original = ALIASES.get(request.name, request.name)
    known = next((family for begins, family in _FAMILIES.items() if original.startswith(begins)), None)
    stem = _choose_stem(request, known, original)
    network = _build(original, request)
    family = known or _two_ends(network)
    if stem == "small" or request.channels != 3:
        replace_module(network, family.first, _first(network, family, request.channels, stem))
    if stem == "small" and family.pool:
        replace_module(network, family.pool, nn.Identity())
    if request.pretrained is True:
        _fill_official(network, family, request)
    elif request.pretrained:
        _fill(network, family, request, describe_file(request.pretrained))
    num_features = network.get_parameter(f"{family.last}.weight").shape[1]
    return Classifier(family.split(network, family.last), name=request.name, stem=stem, num_features=num_features)


def torchvision_transform(name: str) -> InputTransform:
    """Return the preprocessing of the official weights.

    Example:
        >>> from evenhand.models._zoo import torchvision_transform
        >>> transform = torchvision_transform("efficientnet_b0")
        >>> transform.resize_size, transform.crop_size, transform.interpolation
        (256, 224, 'bicubic')
    """
    made: Any = get_model_weights(ALIASES.get(name, name)).DEFAULT.transforms()
    return InputTransform(
        resize_size=made.resize_size[0],
        crop_size=made.crop_size[0],
        interpolation=made.interpolation.value,
        mean=tuple(made.mean),
        std=tuple(made.std),
    )


def torchvision_weights(name: str) -> Weights:
    """Return the official weights, downloaded if needed."""
    return fetch_weights(name, get_model_weights(ALIASES.get(name, name)).DEFAULT.url)


def fit_channels(kernel: Tensor, channels: int) -> Tensor:
    """Convert the first kernel of a trained network, (F, C, h, w), to another number of channels.

    For one channel the kernel is summed over C: a grey image gives the same response as the image repeated C times. For
    other numbers its slices are repeated in turn and scaled by C / channels, so that the response keeps its size.

    Returns:
        The kernel, (F, channels, h, w).

    Example:
        >>> import torch
        >>> from evenhand.models._zoo import fit_channels
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


def _two_ends(network: nn.Module) -> Family:
    """Return the first and last layers of a network without a family; its stem is not changed."""
    first = next(path for path, module in network.named_modules() if isinstance(module, nn.Conv2d))
    *_, last = (path for path, module in network.named_modules() if isinstance(module, nn.Linear))
    return Family(first, None, last, _kaiming_out)


def _build(original: str, request: Request) -> nn.Module:
    options = _OPTIONS.get(original, {})
    if original.startswith("vit"):
        options = {"image_size": _smallest(original)}
    if options.get("transform_input") and request.channels != 3:
        raise EvenhandError(f"{request.name} takes images of 3 channels, got {request.channels}.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        network: nn.Module = get_model(original, num_classes=request.num_classes, **options)
    return network


def _smallest(original: str) -> int:
    return int(get_model_weights(original).DEFAULT.meta["min_size"][0])


def _choose_stem(request: Request, family: Family | None, original: str) -> Literal["small", "imagenet"]:
    if request.pretrained is True and request.stem == "small":
        raise EvenhandError(
            "Pretrained weights need the imagenet stem, got small; leave the stem at auto, or leave out --pretrained."
        )
    stem = request.stem
    if stem == "small" and family is None:
        raise EvenhandError(f"{request.name} has no small stem: leave the stem at auto, or choose imagenet.")
    if stem == "auto":
        small = request.image_size <= SMALL_UP_TO and not request.pretrained and family is not None
        stem = "small" if small else "imagenet"
    smallest = family.smallest[stem == "imagenet"] if family else _smallest(original)
    if original.startswith(_ONE_SIZE) and request.image_size != smallest:
        raise EvenhandError(
            f"{request.name} takes images of {smallest} px and no others, got {request.image_size}; resize them or "
            "choose another network."
        )
    if request.image_size < smallest:
        can_shrink = family is not None and stem == "imagenet" and not request.pretrained
        way_out = "choose the small stem" if can_shrink else "enlarge them"
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


def _fill_official(network: nn.Module, family: Family, request: Request) -> None:
    weights = torchvision_weights(request.name)
    try:
        _fill(network, family, request, weights)
    except EvenhandError as error:
        # Downloads are atomic, so the file was there before and is damaged.
        raise EvenhandError(
            f"Cannot use the pretrained weights of {request.name} in {weights.file} ({str(error).rstrip('.')}); delete "
            f"the file, and it will be downloaded again from {weights.source}."
        ) from error


def _fill(network: nn.Module, family: Family, request: Request, weights: Weights) -> None:
    state = {
        _DENSENET_KEY.sub(r"\1\2", key): value
        for key, value in read_state(weights.file).items()
        if not _TRAINING_ONLY.match(key)
    }
    kernel = f"{family.first}.weight"
    if kernel in state:
        state[kernel] = fit_channels(state[kernel], request.channels)
    fill(network, state, fresh=f"{family.last}.", what=f"The weights in {weights.file}")
