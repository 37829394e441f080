"""Weights as safetensors, and the state between two epochs from which a run is resumed."""

import io
import json
import math
import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.optim import Optimizer

from evenhand.core.arrays import refuse_bomb
from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.runs.checksums import check, write_checked
from evenhand.runs.config import Config
from evenhand.runs.schemas import check_history
from evenhand.runs.weights_card import card_of
from evenhand.training.card import Card, parse_card

HEAD_ONLY = "network.head."
"""Prefix of the names of weights where only a last layer is trained, on features."""
_COLUMNS = {"epoch", "lr", "train_loss", "seconds", "images_per_second"}
_ENTRIES = {"epoch", "model", "optimizers", "rng", "history"}


def save_weights(path: Path, model: nn.Module, card: Card, *, epoch: int | None = None) -> None:
    """Write weights, their card, and the epoch after which they were taken, counted from 1."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    about = asdict(card) if epoch is None else {**asdict(card), "epoch": epoch}
    # One entry: safetensors writes several in random order, but equal weights are to be equal files.
    content = save(tensors, metadata={"evenhand": json.dumps(about, ensure_ascii=False)})
    write_checked(path, content)  # save_file would hide a full disk behind an error of its own


def load_weights(path: Path, *, within: Path | None = None) -> tuple[dict[str, Tensor], Card]:
    """Read weights and their card.

    Args:
        path: the file.
        within: the folder of its run, inside which no link is followed; None: the user named the file.

    Raises:
        EvenhandError: the file is missing, damaged, or was not written by evenhand.
    """
    if not os.path.lexists(path):
        raise EvenhandError(f"There are no weights in {path}; has the run finished an epoch?")
    try:
        check(path, within=within)
        with open_regular(path, within=within) as file:
            content = file.read()
        metadata = safetensors_metadata(content)
        if "evenhand" not in metadata:
            raise ValueError("they have no class names and no normalisation")
        card = parse_card(metadata["evenhand"])
        tensors = load(content)
    except (
        EvenhandError,
        SafetensorError,
        OSError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: {reason(error)}.") from error
    return tensors, card


def weights_epoch(path: Path) -> int | None:
    """Return the epoch after which weights were taken, counted from 1; None: the file is of an older version."""
    try:
        epoch = card_of(path, within=path.parent.parent).get("epoch")
    except EvenhandError:
        return None  # whoever needs the weights themselves says what is wrong with them
    return epoch if type(epoch) is int else None


def safetensors_metadata(content: bytes) -> dict[str, str]:
    """Return the metadata in the header of a safetensors file."""
    size = int.from_bytes(content[:8], "little")
    if size > 2**24:
        raise ValueError("its header is too long")
    metadata: dict[str, str] = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    return metadata


def load_classifier(path: Path, *, within: Path | None = None) -> tuple[Classifier, Card]:
    """Build the network of a file of weights, and load them."""
    tensors, card = load_weights(path, within=within)
    # Checked first: a card can ask for a last layer that fits no memory.
    if not any(tensor.shape[:1] == (len(card.class_names),) for tensor in tensors.values()):
        raise EvenhandError(f"The weights in {path} are not those of {len(card.class_names):,} classes.")
    whole = sorted({str(tensor.dtype) for name, tensor in tensors.items() if not _is_kept_as(tensor, name)})
    if whole:
        raise EvenhandError(f"The weights in {path} are {', '.join(whole)}, not float32, so they are not of this run.")
    model = card.build(near=path.parent.parent)
    try:
        if card.backbone is None:
            model.load_state_dict(tensors)
        else:  # the file has only the last layer
            head = {key.removeprefix(HEAD_ONLY): value for key, value in tensors.items()}
            model.get_submodule(last_layer(model)).load_state_dict(head)
    except RuntimeError as error:
        raise EvenhandError(f"The weights in {path} do not fit {card.model}: {reason(error)}.") from error
    return model, card


def _is_kept_as(tensor: Tensor, name: str) -> bool:
    """Return whether a tensor has the type that training writes: float32, and whole numbers only to count batches."""
    return tensor.dtype == (torch.int64 if name.endswith("num_batches_tracked") else torch.float32)


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state between two epochs, all of it or nothing."""
    content = io.BytesIO()
    torch.save(state, content)
    write_checked(path, content.getvalue())  # to a file, torch.save would hide that the disk is full


def load_state(path: Path, config: Config | None = None) -> dict[str, Any]:
    """Read a state; nothing in the file is executed.

    Args:
        path: the file.
        config: of the run that resumes from it; None: not compared.

    Raises:
        EvenhandError: the file is missing or damaged, or belongs to another config.
    """
    if not os.path.lexists(path):
        raise EvenhandError(f"There is nothing to resume in {path.parent.parent}: it has finished no epoch.")
    try:
        check(path, within=path.parent.parent)
        with open_regular(path, within=path.parent.parent) as file:
            content = io.BytesIO(file.read())
        with zipfile.ZipFile(content) as archive:
            refuse_bomb(archive.infolist(), len(content.getvalue()))
        content.seek(0)
        state: dict[str, Any] = torch.load(content, map_location="cpu", weights_only=True)
        missing = _ENTRIES - set(state)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        _check_state(state)
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        raise EvenhandError(f"The state in {path} is damaged: {reason(error)}; start the run anew.") from error
    if config is not None:
        _require_same(path, state, config)
    return state


def what_state_fixes(config: Config) -> dict[str, Any]:
    """Return the settings that may not change when a run is resumed; the others are about hardware and paths."""
    free: Any = {"compute": True, "track_test": True, "data": {"root"}, "start": {"weights"}}
    return config.model_dump(mode="json", exclude=free)


def _check_state(state: dict[str, Any]) -> None:
    epoch, history = state["epoch"], state["history"]
    if type(epoch) is not int or epoch < 1:
        raise ValueError(f"its epoch is {epoch!r}")
    if not isinstance(state.get("config", {}), dict):
        raise ValueError("its config is not a mapping")
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise ValueError("its history is not a list of rows")
    for row in history:
        if _COLUMNS - set(row) or list(row) != list(history[0]):
            raise ValueError(f"its history has rows of other columns, or without {', '.join(sorted(_COLUMNS))}")
        wrong = [name for name, value in row.items() if type(value) not in (int, float) or math.isinf(value)]
        if wrong:
            raise ValueError(f"{wrong[0]} in its history is {row[wrong[0]]!r}")
    check_history(history)
    if len(history) != epoch:
        raise ValueError(f"it is of epoch {epoch}, but its history has {len(history)}")


def fill_model(model: nn.Module, saved: dict[str, Tensor]) -> None:
    """Load the weights of a state into the network of the same run.

    Raises:
        ValueError: they belong to another network, or are not finite.
    """
    own = model.state_dict()
    if own.keys() != saved.keys() or any(own[name].dtype != saved[name].dtype for name in own):
        raise ValueError("it holds the weights of another network")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in saved.values()):
        raise ValueError("its weights are not finite")
    model.load_state_dict(saved)


def fill_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Load the momenta of a state into an optimizer; its settings stay those of the config.

    Raises:
        ValueError: they belong to other weights, or are not finite.
    """
    groups = optimizer.state_dict()["param_groups"]
    known = {index for group in groups for index in group["params"]}
    same = [group["params"] for group in saved["param_groups"]] == [group["params"] for group in groups]
    if not same or not set(saved["state"]) <= known:
        raise ValueError("it holds the optimizer of another network")
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})
    for group in optimizer.param_groups:
        for weight in group["params"]:
            for buffer in optimizer.state.get(weight, {}).values():
                if buffer is None and not group["momentum"]:
                    continue
                if buffer.shape != weight.shape or not bool(torch.isfinite(buffer).all()):
                    raise ValueError("its momenta are not those of the weights")


def _require_same(path: Path, state: dict[str, Any], config: Config) -> None:
    if state["epoch"] > config.epochs:
        found = f"it is of epoch {state['epoch']}, but the config asks for {config.epochs}"
        raise EvenhandError(f"The state in {path} does not fit its config: {found}; start the run anew.")
    before, now = _flat(state.get("config", {})), _flat(what_state_fixes(config))  # the first version stored none
    for name in before.keys() & now.keys():  # settings added since do not change what the run did
        if before[name] != now[name]:
            found = reason(ValueError(f"{name} was {before[name]} and is {now[name]}"))
            raise EvenhandError(f"The state in {path} does not fit its config: {found}; start the run anew.")


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return settings by dotted name, each as text: a damaged file may hold anything."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": repr(value)}
    return flat
