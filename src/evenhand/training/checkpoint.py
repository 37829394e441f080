"""What a run leaves on disk to be used or continued: weights as safetensors, and the state between two epochs."""

import io
import json
import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.optim import Optimizer

from evenhand.core.arrays import refuse_bomb
from evenhand.core.errors import EvenhandError, reason
from evenhand.data.batches import Preprocessing
from evenhand.data.decode import Interpolation
from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer, read_head, replace_head
from evenhand.models.transform import InputTransform
from evenhand.runs.checksums import check, replacing_checked
from evenhand.runs.config import Config
from evenhand.runs.schemas import EpochRow, check_history
from evenhand.training._backbones import find_backbone

LARGEST_SIZE = 4096
"""Pixels, as in the config."""
_COLUMNS = {"epoch", "lr", "train_loss", "seconds", "images_per_second"}
HEAD_ONLY = "network.head."
"""How the names of weights begin where a last layer is trained on features."""


@dataclass(frozen=True)
class Card:
    """What travels with the weights, so that they can be used without the data they were trained on."""

    model: str
    stem: str
    class_names: tuple[str, ...]
    channels: int
    image_size: int
    """Length that the shorter side of an image is brought to."""
    preprocessing: Preprocessing
    stretch: bool = False
    head: str = "linear"
    """The last layer, as `replace_head` reads it."""
    interpolation: Interpolation = "bilinear"
    """The filter of the resize."""
    backbone: dict[str, str] | None = None
    """`sha256` and `source` of a frozen body, which is kept elsewhere; None: all weights are in the file."""

    def transform(self) -> InputTransform:
        """Return what images are put through."""
        seen = self.preprocessing
        return InputTransform(
            resize_size=self.image_size,
            crop_size=seen.crop_size,
            resize_rule="stretch" if self.stretch else "shorter",
            interpolation=self.interpolation,
            mean=seen.mean,
            std=seen.std,
        )

    def build(self, near: Path | None = None) -> Classifier:
        """Return the network, without its weights; of a frozen body with them, which may lie near a run."""
        pretrained: bool | Path = False
        if self.backbone is not None:
            pretrained = find_backbone(self.model, **self.backbone, near=near) or True
        model = build_model(
            self.model,
            num_classes=len(self.class_names),
            channels=self.channels,
            image_size=self.preprocessing.crop_size,
            stem="auto" if self.model.startswith("timm:") else self.stem,  # type: ignore[arg-type]
            pretrained=pretrained,
        )
        return replace_head(model, self.head)


def save_weights(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and their card."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    content = save(tensors, metadata={"evenhand": json.dumps(asdict(card), ensure_ascii=False)})
    with replacing_checked(path) as temporary:
        temporary.write_bytes(content)  # save_file would hide that a disk is full behind an error of its own


def load_weights(path: Path) -> tuple[dict[str, Tensor], Card]:
    """Read weights and their card; a damaged or foreign file is named in one sentence."""
    if not path.is_file():
        raise EvenhandError(f"There are no weights in {path}; has the run finished an epoch?")
    try:
        check(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "evenhand" not in metadata:
                raise ValueError("they carry no class names and no normalisation")
            card = _read_card(metadata["evenhand"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
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


def _read_card(text: str) -> Card:
    content = json.loads(text)
    fields = content.pop("preprocessing", None) or content.pop("view")  # as it was called at first
    own: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    card = Card(**{**content, "class_names": tuple(content["class_names"]), "preprocessing": Preprocessing(**own)})
    seen = card.preprocessing
    texts = (card.model, card.stem, *card.class_names)
    sizes = (card.image_size, seen.crop_size)
    numbers = (*seen.mean, *seen.std)
    if not all(isinstance(each, str) for each in texts) or not 2 <= len(set(card.class_names)) == len(card.class_names):
        raise ValueError("the names on their card are no texts, or come twice")
    if not all(type(each) is int and 1 <= each <= LARGEST_SIZE for each in sizes):
        raise ValueError(f"the sizes on their card are {sizes}")
    if type(card.channels) is not int or card.channels not in (1, 3):
        raise ValueError(f"their card speaks of {card.channels!r} channels")
    if seen.crop_size > card.image_size or not all(type(each) in (int, float) for each in numbers):
        raise ValueError("the preprocessing on their card is none")
    if len(seen.mean) != card.channels or len(seen.std) != card.channels:
        raise ValueError("the normalisation on their card is none")
    if not all(abs(each) < 1e6 for each in seen.mean) or not all(1e-6 < each < 1e6 for each in seen.std):
        raise ValueError("the normalisation on their card is none")
    if card.interpolation not in get_args(Interpolation) or type(card.stretch) is not bool:
        raise ValueError("the resizing on their card is none")
    read_head(card.head)
    body = card.backbone
    if body is not None and (
        set(body) != {"sha256", "source"}
        or not all(isinstance(each, str) for each in body.values())
        or not re.fullmatch("[0-9a-f]{64}", body["sha256"])
    ):
        raise ValueError("the backbone on their card is none")
    return card


def read_card(path: Path) -> Card | None:
    """Return the card of a file of weights; None: it has none, because no run has made it."""
    try:
        with safe_open(path, framework="pt") as file:
            if "evenhand" not in (file.metadata() or {}):
                return None
    except (SafetensorError, OSError):
        return None
    return load_weights(path)[1]


def load_classifier(path: Path) -> tuple[Classifier, Card]:
    """Build the network that a file of weights belongs to and fill it."""
    tensors, card = load_weights(path)
    # Before a last layer is built that no memory holds.
    if not any(tensor.shape[:1] == (len(card.class_names),) for tensor in tensors.values()):
        raise EvenhandError(f"The weights in {path} are not those of {len(card.class_names):,} classes.")
    model = card.build(near=path.parent.parent)
    try:
        if card.backbone is None:
            model.load_state_dict(tensors)
        else:  # the file holds the last layer alone
            own = {key.removeprefix(HEAD_ONLY): value for key, value in tensors.items()}
            model.get_submodule(last_layer(model)).load_state_dict(own)
    except RuntimeError as error:
        raise EvenhandError(f"The weights in {path} do not fit {card.model}: {reason(error)}.") from error
    return model, card


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state between two epochs, all of it or nothing."""
    content = io.BytesIO()
    torch.save(state, content)
    with replacing_checked(path) as temporary:
        temporary.write_bytes(content.getbuffer())  # to a file, torch.save would hide that the disk is full


def load_state(path: Path, config: Config | None = None) -> dict[str, Any]:
    """Read a state; nothing in the file is executed.

    Args:
        path: the file.
        config: of the run that is to go on from it; None: it is only looked at.

    Raises:
        EvenhandError: there is none, it is damaged, or it is not one of this config.
    """
    if not path.is_file():
        raise EvenhandError(f"There is nothing to resume in {path.parent.parent}: it has finished no epoch.")
    try:
        check(path)
        with zipfile.ZipFile(path) as archive:
            refuse_bomb(archive.infolist(), path.stat().st_size)
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        missing = {"epoch", "model", "optimizers", "rng", "history", "best"} - set(state)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        _check_state(state)
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        raise EvenhandError(f"The state in {path} is damaged: {reason(error)}; start the run anew.") from error
    if config is not None:
        _refuse_other(path, state, config)
    return state


def what_state_fixes(config: Config) -> dict[str, Any]:
    """Return the settings that may not change while a run goes on; others say on what and from where it does."""
    elsewhere: Any = {"compute": True, "track_test": True, "data": {"root"}, "start": {"weights"}}
    return config.model_dump(mode="json", exclude=elsewhere)


def _check_state(state: dict[str, Any]) -> None:
    epoch, history, best = state["epoch"], state["history"], state["best"]
    if type(epoch) is not int or epoch < 1:
        raise ValueError(f"its epoch is {epoch!r}")
    if not isinstance(state.get("config", {}), dict):
        raise ValueError("its config is none")
    _check_rows(history)
    if len(history) != epoch:
        raise ValueError(f"it is of epoch {epoch}, but its history has {len(history)}")
    if best != best_of(history):
        raise ValueError(f"its best epoch is {best!r}, but its history says {best_of(history)!r}")


def _check_rows(history: Any) -> None:
    """Refuse what is no history of numbers: later epochs are added to it, and it is judged at the end."""
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise ValueError("its history is none")
    for row in history:
        lacking = _COLUMNS - set(row)
        if lacking or list(row) != list(history[0]):
            raise ValueError(f"its history has rows of other columns, or without {', '.join(sorted(_COLUMNS))}")
        wrong = [name for name, value in row.items() if type(value) not in (int, float) or math.isinf(value)]
        if wrong:
            raise ValueError(f"{wrong[0]} in its history is {row[wrong[0]]!r}")
    check_history(history)


def best_of(history: Sequence[EpochRow]) -> dict[str, float]:
    """Return the highest validation figures of a history, and the first epoch that reached each.

    Example:
        >>> from evenhand.training.checkpoint import best_of
        >>> best_of([{"epoch": 1, "val_accuracy": 0.5}, {"epoch": 2, "val_accuracy": 0.5}])
        {'accuracy': 0.5, 'accuracy_epoch': 1}
    """
    best: dict[str, float] = {}
    for row in history:
        for metric in ("balanced_accuracy", "accuracy"):
            value = row.get(f"val_{metric}")
            if value is not None and value > best.get(metric, -1.0):
                best |= {metric: value, f"{metric}_epoch": row["epoch"]}
    return best


def fill_model(model: nn.Module, saved: dict[str, Tensor]) -> None:
    """Put the weights of a state into a network, which must be of their kind.

    Raises:
        ValueError: they are not its weights, or not finite.
    """
    own = model.state_dict()
    if own.keys() != saved.keys() or any(own[name].dtype != saved[name].dtype for name in own):
        raise ValueError("it holds the weights of another network")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in saved.values()):
        raise ValueError("its weights are not finite")
    model.load_state_dict(saved)


def fill_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Give an optimizer the momenta of a state; its settings stay those of the config.

    Raises:
        ValueError: they are not those of its weights, or not finite.
    """
    groups = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in saved["param_groups"]] != [group["params"] for group in groups]:
        raise ValueError("it holds the optimizer of another network")
    own = {place for group in groups for place in group["params"]}
    if not set(saved["state"]) <= own:
        raise ValueError("it holds the optimizer of another network")
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})
    for group in optimizer.param_groups:
        for weight in group["params"]:
            for buffer in optimizer.state.get(weight, {}).values():
                # Without momentum there is none to keep.
                if buffer is None and not group["momentum"]:
                    continue
                if buffer.shape != weight.shape or not bool(torch.isfinite(buffer).all()):
                    raise ValueError("its momenta are not those of the weights")


def _refuse_other(path: Path, state: dict[str, Any], config: Config) -> None:
    if state["epoch"] > config.epochs:
        seen = f"it is of epoch {state['epoch']}, but the config asks for {config.epochs}"
        raise EvenhandError(f"The state in {path} does not fit its config: {seen}; start the run anew.")
    before, now = _flat(state.get("config", {})), _flat(what_state_fixes(config))  # the first version kept none
    for name in before.keys() & now.keys():  # a setting that came later means what was done before
        if before[name] != now[name]:
            seen = reason(ValueError(f"{name} was {before[name]} and is {now[name]}"))
            raise EvenhandError(f"The state in {path} does not fit its config: {seen}; start the run anew.")


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return settings by dotted name, each as text: what a file holds may be anything."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": repr(value)}
    return flat
