"""Files of pretrained weights: download, hash, reading, and loading into a network."""

import contextlib
import hashlib
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from evenhand.core.arrays import refuse_bomb
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import hash_file
from evenhand.core.opening import open_regular
from evenhand.core.text import some

_HASH = re.compile(r"-([a-f0-9]{8,})\.")


@dataclass(frozen=True)
class Weights:
    """Pretrained weights: their file, hash and source."""

    file: Path | None
    """None: another library stores them."""
    sha256: str
    """Hash of the file; without a file, of the tensors by name."""
    source: str
    """A URL, a package or a path, for messages."""
    members: tuple["Weights", ...] = ()
    """Of each of several networks side by side; their hashes and sources are then joined by `+` and ` + `."""


def join_weights(members: Sequence[Weights]) -> Weights:
    """Return the weights of networks side by side.

    Example:
        >>> from evenhand.models.weights import Weights, join_weights
        >>> join_weights([Weights(None, "ab", "here"), Weights(None, "cd", "there")]).sha256
        'ab+cd'
    """
    hashes, sources = [each.sha256 for each in members], [each.source for each in members]
    return Weights(None, "+".join(hashes), " + ".join(sources), tuple(members))


def fetch_weights(name: str, url: str) -> Weights:
    """Return weights by URL, downloaded if they are not in torch's folder of weights.

    Raises:
        EvenhandError: they cannot be downloaded; with the URL and the folder to put them into.
    """
    folder = Path(torch.hub.get_dir(), "checkpoints")
    file = folder / Path(urlparse(url).path).name
    if not file.is_file():
        prefix = _HASH.search(file.name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # torch prints to stdout, which may be a table or JSON.
            with contextlib.redirect_stdout(sys.stderr):
                torch.hub.download_url_to_file(
                    url, str(file), hash_prefix=prefix[1] if prefix else None, progress=sys.stderr.isatty()
                )
        except Exception as error:  # a broken connection raises nearly anything
            raise EvenhandError(
                f"Cannot download the pretrained weights of {name} ({reason(error)}); download {url} yourself and put "
                f"the file into {folder}."
            ) from error
    return describe_file(file, source=url)


def describe_file(file: Path, source: str | None = None) -> Weights:
    """Return the hash and source of a file of weights.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.models.weights import describe_file
        >>> file = Path(tempfile.mkdtemp()) / "empty.pth"
        >>> file.touch()
        >>> describe_file(file).sha256[:8]
        'e3b0c442'
    """
    try:
        found = file.stat()
        digest = _digest(file, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise EvenhandError(f"Cannot read the weights in {file}: {reason(error)}; give a file of weights.") from error
    return Weights(file, digest, source or str(file))


@lru_cache(maxsize=8)
def _digest(file: Path, size: int, changed: int) -> str:  # noqa: ARG001 - size and time tell one content from the next
    return hash_file(file)


def describe_tensors(state: dict[str, Tensor], source: str) -> Weights:
    """Return the hash and source of weights whose file another library stores."""
    digest = hashlib.sha256()
    for key in sorted(state):
        value = state[key].detach().cpu().contiguous()
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return Weights(None, digest.hexdigest(), source)


def read_state(file: Path | None) -> dict[str, Tensor]:
    """Read a state dict, from safetensors or from torch's format; nothing in the file is executed.

    Args:
        file: safetensors, or torch's format, where the dict may be under `state_dict` or `model` and names may begin
            with `module.`; or the weights of a run.

    Raises:
        EvenhandError: the file is damaged or holds something else.
    """
    if file is None:
        raise ValueError("these weights have no file")
    try:
        with open_regular(file) as opened:
            if file.suffix == ".safetensors":
                return _plain_names(load(opened.read()))
            if zipfile.is_zipfile(opened):
                with zipfile.ZipFile(opened) as archive:
                    refuse_bomb(archive.infolist(), os.fstat(opened.fileno()).st_size)
            opened.seek(0)
            content: Any = torch.load(opened, map_location="cpu", weights_only=True)
        for key in ("state_dict", "model"):
            content = content[key] if isinstance(content.get(key), dict) else content
        if not content or not all(isinstance(value, Tensor) for value in content.values()):
            raise ValueError("it has no state dict")
    except Exception as error:  # a damaged pickle raises nearly anything
        plain = isinstance(error, OSError | ValueError | SafetensorError)
        why = reason(error) if plain else "it is damaged or has something else than weights"
        raise EvenhandError(f"Cannot read the weights in {file}: {why}; use another file.") from error
    return _plain_names({str(key).removeprefix("module."): value for key, value in content.items()})


def _plain_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a run by the names of the plain network, without the last layer."""
    if not all(key.startswith("network.") for key in state):
        return state
    names = {key: key.removeprefix("network.").removeprefix("body.") for key in state}
    return {name: state[key] for key, name in names.items() if not name.startswith("head.")}


def fill(network: nn.Module, state: dict[str, Tensor], *, what: str, fresh: str | tuple[str, ...] = ()) -> None:
    """Load pretrained weights into a network, all but the fresh ones.

    Args:
        network: the network.
        state: weights by the names of the network.
        what: for the message, such as `The weights in resnet18.pth`.
        fresh: prefixes of weights that are not loaded.

    Raises:
        EvenhandError: the weights belong to another network.
    """
    own = network.state_dict()
    wanted = {key for key in own if not key.startswith(fresh)}
    state = {key: value for key, value in state.items() if not key.startswith(fresh)}
    # Files from before 2018 lack these counters, which nothing here needs.
    lost = sorted(key for key in wanted - set(state) if not key.endswith("num_batches_tracked"))
    foreign = sorted(set(state) - wanted)
    other = sorted(key for key in wanted & set(state) if state[key].shape != own[key].shape)
    for keys, fault in ((lost, "lacks"), (foreign, "has an unknown"), (other, "has another size of")):
        if keys:
            raise EvenhandError(f"{what} belong to another network: the file {fault} {some(keys, 2)}.")
    with torch.no_grad():
        for key, value in state.items():
            own[key].copy_(value)  # some networks' load_state_dict needs a version that plain files lack
