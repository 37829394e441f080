"""Any network of timm, where that is installed."""

import difflib
from importlib import import_module
from typing import Any

import torch

from evenhand.core.errors import EvenhandError
from evenhand.models.classifier import Classifier, Request

PREFIX = "timm:"


def build_timm(request: Request) -> Classifier:
    """Build the network whose name stands behind `timm:`; one image of zeros is sent through to see that it fits.

    How timm brings pretrained weights to another number of channels is timm's affair; it does as `fit_channels`.
    """
    if request.stem != "auto":
        raise EvenhandError(f"{request.name} has a stem of its own: leave the stem at auto, got {request.stem}.")
    timm = _import_timm()
    name = request.name.removeprefix(PREFIX)
    # `hf-hub:` and `local-dir:` name networks that timm does not list.
    if ":" not in name and not timm.is_model(name):
        raise _unknown(name, timm)
    try:
        network = timm.create_model(
            name, pretrained=request.pretrained, num_classes=request.num_classes, in_chans=request.channels
        )
    except Exception as error:  # a thousand networks and the hub of their weights raise nearly anything
        raise EvenhandError(f"timm cannot build {name!r}: {_reason(error)}.") from error
    return Classifier(network, name=request.name, stem="auto", num_features=_count_features(network, request))


def _import_timm() -> Any:
    try:
        return import_module("timm")
    except ImportError as error:
        raise EvenhandError("Networks of timm need one more package: pip install 'evenhand[timm]'.") from error


def _unknown(name: str, timm: Any) -> EvenhandError:
    near = difflib.get_close_matches(name.lower(), timm.list_models(), n=3)
    hint = f"did you mean {' or '.join(PREFIX + other for other in near)}?" if near else "timm.list_models() names all."
    return EvenhandError(f"timm {timm.__version__} has no network {name!r}; {hint}")


def _count_features(network: Any, request: Request) -> int:
    """Return F as one image shows it: what timm states is not everywhere the width of the last layer."""
    channels, size = request.channels, request.image_size
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            maps = network.forward_features(torch.zeros(1, channels, size, size))
            features = network.forward_head(maps, pre_logits=True)
    except Exception as error:  # each family has its own way to fail
        raise EvenhandError(
            f"{request.name} does not take {channels} x {size} x {size} images ({_reason(error)}); choose another "
            "image size or network."
        ) from error
    finally:
        network.train(training)
    return int(features.numel())


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
