"""Networks of timm, an optional package."""

import difflib
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.core.text import some
from evenhand.data.decode import Interpolation
from evenhand.models.classifier import Classifier, Request
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_tensors, fill, read_state

PREFIX = "timm:"
PATIENCE = 5.0
"""Seconds to wait for the hub."""


def build_timm(request: Request) -> Classifier:
    """Build the network named after `timm:`; one image of zeros is passed through it as a check.

    timm itself converts pretrained weights to another number of channels, as `fit_channels` does.
    """
    if request.stem != "auto":
        raise EvenhandError(f"{request.name} has its own stem, got {request.stem}; leave the stem at auto.")
    timm = require_timm(request.name)
    name = request.name.removeprefix(PREFIX)
    try:
        with _without_retries(name, timm) if request.pretrained is True else nullcontext():
            network = timm.create_model(
                name, pretrained=request.pretrained is True, num_classes=request.num_classes, in_chans=request.channels
            )
    except EvenhandError:
        raise
    except Exception as error:  # networks and the hub raise nearly anything
        remedy = ""
        if request.pretrained is True and timm.is_model(name.split(".")[0]):
            remedy = f"; download them from {_address(name)} yourself, and use --weights FILE"
        raise EvenhandError(f"timm cannot build {name!r}: {reason(error)}{remedy}.") from error
    if request.pretrained and request.pretrained is not True:
        file = Path(request.pretrained)
        fill(network, read_state(file), fresh=_last_layers(network), what=f"The weights in {file}")
    return Classifier(network, name=request.name, stem="auto", num_features=_count_features(network, request))


def require_timm(name: str) -> Any:
    """Return timm after a check that it has the network `timm:NAME`, and weights for a `NAME.KIND`.

    Raises:
        EvenhandError: timm is not installed, or has no such network or weights.
    """
    timm = _import_timm()
    plain = name.removeprefix(PREFIX)
    # `hf-hub:` and `local-dir:` name networks that timm does not list.
    if ":" in plain:
        return timm
    if not timm.is_model(plain):
        near = difflib.get_close_matches(plain.lower(), timm.list_models(), n=3)
        names = " or ".join(PREFIX + other for other in near)
        hint = f"did you mean {names}?" if near else "timm.list_models() names all."
        raise EvenhandError(f"timm {timm.__version__} has no network {plain!r}; {hint}")
    network, dot, kind = plain.partition(".")
    if dot and _config(plain, timm) is None:
        others = timm.list_pretrained(f"{network}.*")
        known = f"there are {some(others)}" if others else "it has none"
        raise EvenhandError(f"timm {timm.__version__} has no weights {kind!r} of {network}; {known}.")
    return timm


def timm_transform(name: str) -> InputTransform:
    """Return the preprocessing of a network's weights."""
    config = _config(name.removeprefix(PREFIX), require_timm(name))
    if config is None or not config.input_size:
        raise EvenhandError(f"timm has no preprocessing for {name}; choose another network.")
    size = config.input_size[-1]
    # `random` is for training; timm evaluates with bicubic then.
    interpolation: Any = config.interpolation if config.interpolation in get_args(Interpolation) else "bicubic"
    return InputTransform(
        resize_size=int(size / config.crop_pct),
        crop_size=size,
        resize_rule="stretch" if config.crop_mode == "squash" else "shorter",
        interpolation=interpolation,
        mean=tuple(config.mean),
        std=tuple(config.std),
    )


def describe_timm(classifier: Classifier) -> Weights:
    """Return the hash and source of the weights that timm has loaded, without the fresh last layer."""
    return describe_tensors(timm_body(classifier), _address(classifier.name.removeprefix(PREFIX)))


def timm_body(classifier: Classifier) -> dict[str, Tensor]:
    """Return the weights of a network of timm without its last layer."""
    network: Any = classifier.network
    last = _last_layers(network)
    return {key: value for key, value in network.state_dict().items() if not key.startswith(last)}


def _address(name: str) -> str:
    config = _config(name, _import_timm())
    if config is None:
        return PREFIX + name
    return f"https://huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url or PREFIX + name)


def _config(name: str, timm: Any) -> Any:
    """Return timm's config of pretrained weights; None: there are none of this name."""
    try:
        return timm.get_pretrained_cfg(name, allow_unregistered=True)
    except RuntimeError:
        return None


def _last_layers(network: Any) -> tuple[str, ...]:
    last = network.get_classifier()
    heads = last if isinstance(last, tuple) else (last,)
    return tuple(f"{path}." for path, module in network.named_modules() if any(module is head for head in heads))


@contextmanager
def _without_retries(name: str, timm: Any) -> Iterator[None]:
    """Load weights from the hub without retries if it cannot be reached: timm would retry for a minute."""
    config = _config(name, timm)
    try:
        hub: Any = import_module("huggingface_hub")
        constants: Any = import_module("huggingface_hub.constants")
    except ImportError:
        hub = None
    if hub is None or config is None or not config.hf_hub_id or constants.HF_HUB_OFFLINE or _is_reachable():
        yield
        return
    kept = [hub.try_to_load_from_cache(config.hf_hub_id, file) for file in ("model.safetensors", "pytorch_model.bin")]
    if not any(isinstance(file, str) for file in kept):
        raise EvenhandError(
            f"The weights of {PREFIX}{name} are not on this machine, and {_hub()} cannot be reached; download "
            f"{_hub()}/{config.hf_hub_id}/resolve/main/model.safetensors yourself, and use --weights FILE."
        )
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = False


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _is_reachable() -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(_hub(), method="HEAD"), timeout=PATIENCE):
            return True
    except urllib.error.HTTPError:
        return True  # it responds
    except (OSError, ValueError):
        return False


def _import_timm() -> Any:
    try:
        return import_module("timm")
    except ImportError as error:
        raise EvenhandError(f"Networks of timm need one more package: {how_to_install('timm')}.") from error


def _count_features(network: Any, request: Request) -> int:
    """Return F, measured with one image: timm's own number is not always the width of the last layer."""
    channels, size = request.channels, request.image_size
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            maps = network.forward_features(torch.zeros(1, channels, size, size))
            features = network.forward_head(maps, pre_logits=True)
    except Exception as error:  # each family raises other errors
        raise EvenhandError(
            f"{request.name} does not take {channels} x {size} x {size} images ({reason(error)}); choose another "
            "image size or network."
        ) from error
    finally:
        network.train(training)
    return int(features.numel())
