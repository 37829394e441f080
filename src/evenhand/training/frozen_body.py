"""Frozen bodies: training a last layer on one, storing it once by its hash, and finding it again."""

import logging
import shutil
from pathlib import Path

from safetensors.torch import save
from torch import nn

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import replacing
from evenhand.core.opening import is_regular, link_within, open_regular
from evenhand.models.backbone import Backbone, find_weights
from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.models.heads import CosineHead, last_layer
from evenhand.models.weights import Weights, describe_file, describe_tensors, read_state

FOLDER = "backbones"
"""Where bodies are stored: in the user's cache, and in the folder of a comparison."""

_logger = logging.getLogger("evenhand")


def freeze_body(network: Classifier) -> None:
    """Turn off the gradients of all layers but the last."""
    last = f"{last_layer(network)}."
    for name, weight in network.named_parameters():
        if not name.startswith(last):
            weight.requires_grad_(False)


def set_body_eval(network: Classifier) -> None:
    """Set all layers but the last to evaluation mode, so that their batch statistics do not change."""
    network.eval()
    network.get_submodule(last_layer(network)).train()


def head_alone(backbone: Backbone, num_classes: int) -> Classifier:
    """Build the network that is trained on features (N, F): a last layer.

    Example:
        >>> import torch
        >>> from evenhand.models.backbone import load_backbone
        >>> from evenhand.training.frozen_body import head_alone
        >>> head_alone(load_backbone("lite0"), num_classes=5)(torch.zeros(2, 1280)).shape
        torch.Size([2, 5])
    """
    last = backbone.network.get_submodule(last_layer(backbone.network))
    if not isinstance(last, nn.Linear | CosineHead):
        raise EvenhandError(
            f"{backbone.name} does not end in a linear layer that can be trained on features; choose another network."
        )
    head = nn.Linear(backbone.num_features, num_classes)
    nn.init.normal_(head.weight, std=0.01)  # small, so that the first steps follow the data
    nn.init.zeros_(head.bias)
    return Classifier(
        BodyAndHead(nn.Identity(), head),
        name=backbone.name,
        stem=backbone.network.stem,
        num_features=backbone.num_features,
    )


def weights_reference(weights: Weights) -> dict[str, str]:
    """Return the `sha256` and the `source` of weights, as the files of a run store them."""
    return {"sha256": weights.sha256, "source": weights.source}


def keep_backbone(backbone: Backbone, folder: Path | None = None) -> Path | None:
    """Store a body once, named by its hash. On failure, log a warning and return None.

    Args:
        backbone: the body.
        folder: the folder of a comparison; None: the user's cache.
    """
    weights = backbone.weights
    suffix = ".safetensors" if weights.file is None else weights.file.suffix
    target = (folder or cache_root()) / FOLDER / f"{weights.sha256}{suffix}"
    if is_regular(target, within=folder):
        return target
    try:
        with replacing(target, within=folder) as temporary:
            if weights.file is None:
                temporary.write_bytes(save(backbone.body_state()))
            else:
                with open_regular(weights.file) as source, temporary.open("wb") as copy:
                    shutil.copyfileobj(source, copy)  # tells a full disk from a source that cannot be read
    except (EvenhandError, OSError) as error:
        why = f"Cannot read {weights.file}: {reason(error)}." if isinstance(error, OSError) else error
        _logger.warning("The weights of %s are not stored by evenhand. %s", backbone.name, why)
        return None
    return target


def find_backbone(name: str, sha256: str, source: str, near: Path | None = None) -> Path | None:
    """Return the file of the body that a run was trained on.

    Args:
        name: the network.
        sha256: the hash of its weights.
        source: where the run got them from, for the message.
        near: the folder of the run; a comparison around it stores the body of all its runs.

    Returns:
        The file; None: timm has these weights and stores them itself.

    Raises:
        EvenhandError: the weights are not on this machine.
    """
    for folder in [cache_root()] + ([] if near is None else [near, near.parent]):
        for file in sorted((folder / FOLDER).glob(f"{sha256}.*")):
            if link_within(file, folder) is None and _hash(file) == sha256:
                return file
            _logger.warning("%s is damaged: its hash differs from its name.", file)
    local = Path(source)
    if local.is_file() and describe_file(local).sha256 == sha256:
        return local
    try:
        weights = find_weights(name)
    except EvenhandError as error:
        raise _missing(name, sha256, source, str(error)) from error
    if weights.sha256 != sha256:
        raise _missing(name, sha256, source, f"the official ones have another hash ({weights.sha256[:8]}).")
    return weights.file


def _hash(file: Path) -> str:
    """Return the hash that a stored file is named by: of the file, or of its tensors where timm has the original."""
    found = describe_file(file).sha256
    if found == file.stem or file.suffix != ".safetensors":
        return found
    return describe_tensors(read_state(file), "").sha256


def _missing(name: str, sha256: str, source: str, why: str) -> EvenhandError:
    return EvenhandError(
        f"The weights of {name} that this run was trained on ({source}, sha256 {sha256[:8]}...) are missing, and "
        f"{why[:1].lower()}{why[1:].rstrip('.')}; copy them to {cache_root() / FOLDER} as {sha256}.safetensors or .pth."
    )
