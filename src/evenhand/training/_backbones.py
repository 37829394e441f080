"""Frozen bodies of runs: kept once by their hash instead of in every run, and found again by whoever loads a run."""

import logging
import shutil
from pathlib import Path

from safetensors.torch import save

from evenhand.core.cache import cache_root
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import replacing
from evenhand.models.backbone import Backbone, find_weights
from evenhand.models.weights import Weights, describe_file, describe_tensors, read_state

FOLDER = "backbones"
"""Where they are kept: in the user's cache, and in the folder of a comparison."""

_logger = logging.getLogger("evenhand")


def keep_backbone(backbone: Backbone, folder: Path | None = None) -> Path | None:
    """Keep a body by its hash, once; where that fails, say so in one line and return None.

    Args:
        backbone: the body.
        folder: of a comparison; None: the user's cache.
    """
    weights = backbone.weights
    suffix = ".safetensors" if weights.file is None else weights.file.suffix
    target = _kept_in(folder or cache_root()) / f"{weights.sha256}{suffix}"
    if target.is_file():
        return target
    try:
        with replacing(target) as temporary:
            if weights.file is None:
                temporary.write_bytes(save(backbone.body_state()))
            else:
                with weights.file.open("rb") as source, temporary.open("wb") as copy:
                    shutil.copyfileobj(source, copy)  # which tells a full disk from weights that cannot be read
    except (EvenhandError, OSError) as error:
        why = f"Cannot read {weights.file}: {reason(error)}." if isinstance(error, OSError) else error
        _logger.warning("The weights of %s are not kept by evenhand. %s", backbone.name, why)
        return None
    return target


def find_backbone(name: str, sha256: str, source: str, near: Path | None = None) -> Path | None:
    """Return the file of a body that a run was trained on.

    Args:
        name: of the network.
        sha256: of the weights.
        source: where the run had them from, for the message.
        near: the folder of the run; a comparison around it keeps the body of all its runs.

    Returns:
        A file; None: timm has these weights and keeps them itself.

    Raises:
        EvenhandError: the weights are not here; in one sentence, with what to do.
    """
    places = [cache_root()] + ([] if near is None else [near, near.parent])
    for place in places:
        for file in sorted(_kept_in(place).glob(f"{sha256}.*")):
            if _hash(file) == sha256:
                return file
            _logger.warning("%s is damaged: its content is not what its name says.", file)
    local = Path(source)
    if local.is_file() and describe_file(local).sha256 == sha256:
        return local
    try:
        weights = find_weights(name)
    except EvenhandError as error:
        raise EvenhandError(_lost(name, sha256, source, str(error))) from error
    if weights.sha256 != sha256:
        raise EvenhandError(_lost(name, sha256, source, f"the official ones are others ({weights.sha256[:8]})."))
    return weights.file


def _kept_in(folder: Path) -> Path:
    return folder / FOLDER


def _hash(file: Path) -> str:
    """Return the hash by which a kept file is named: of itself, or of its tensors where timm keeps the original."""
    found = describe_file(file).sha256
    if found == file.stem or file.suffix != ".safetensors":
        return found
    return describe_tensors(read_state(file), "").sha256


def _lost(name: str, sha256: str, source: str, reason: str) -> str:
    folder = _kept_in(cache_root())
    return (
        f"The weights of {name} that this run was trained on ({source}, sha256 {sha256[:8]}...) are not here, and "
        f"{reason[:1].lower()}{reason[1:].rstrip('.')}; put them into {folder} as {sha256}.safetensors or .pth."
    )


def weights_told(weights: Weights) -> dict[str, str]:
    """Return what weights are known by, for files of a run."""
    return {"sha256": weights.sha256, "source": weights.source}
