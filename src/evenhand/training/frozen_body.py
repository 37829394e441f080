"""Frozen bodies: training a last layer on one, storing it once by its hash, and finding it again."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from safetensors.torch import save
from torch import nn

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import replacing
from evenhand.core.opening import is_regular, link_within, open_regular
from evenhand.models.backbone import Backbone, find_weights
from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.models.heads import CosineHead, last_layer
from evenhand.models.names import JOIN, split_names
from evenhand.models.weights import Weights, describe_file, describe_tensors, join_weights, read_state

FOLDER = "backbones"
"""Where bodies are stored: in the user's cache, and in the folder of a comparison."""

BodyFiles: TypeAlias = tuple[Path | None, ...]
"""The files of several networks side by side."""

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
    network = backbone.classifier
    last = network.get_submodule(last_layer(network))
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
        stem=network.stem,
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

    Returns:
        Its file; of networks side by side, which are stored one by one, that of the first.
    """
    if backbone.weights.members:
        kept = [keep_backbone(member, folder) for member in backbone.members()]
        return kept[0]
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


def find_backbone(name: str, sha256: str, source: str, near: Path | None = None) -> Path | BodyFiles | None:
    """Return the file of the body that a run was trained on; of networks side by side, those of all of them.

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
    if JOIN in name:
        return tuple(
            _find_single(each, *about, near)
            for each, about in zip(split_names(name), split_reference(sha256, source), strict=True)
        )
    return _find_single(name, sha256, source, near)


def split_reference(sha256: str, source: str) -> list[tuple[str, str]]:
    """Return the hash and source of each of several networks side by side, as :func:`weights_reference` joins them."""
    hashes, sources = sha256.split("+"), source.split(" + ")
    if len(sources) != len(hashes):  # a path with a plus: the hash finds the file
        sources = [""] * len(hashes)
    return list(zip(hashes, sources, strict=True))


def stored_weights(name: str, sha256: str, source: str, near: Path | None = None) -> Weights:
    """Return the weights that a run was trained on, with the files that :func:`find_backbone` finds."""
    file = find_backbone(name, sha256, source, near)
    if not isinstance(file, tuple):
        return Weights(file, sha256, source)
    parts = zip(file, split_reference(sha256, source), strict=True)
    return join_weights([Weights(each, *about) for each, about in parts])


def body_files(name: str, reference: Mapping[str, str], near: Path | None) -> bool | Path | tuple[bool | Path, ...]:
    """Return what :func:`find_backbone` finds as `build_model` takes it: True for weights that timm stores itself."""
    found = find_backbone(name, reference["sha256"], reference["source"], near)
    return tuple(each or True for each in found) if isinstance(found, tuple) else found or True


def _find_single(name: str, sha256: str, source: str, near: Path | None) -> Path | None:
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
