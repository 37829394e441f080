"""What a run leaves on disk to be used or continued: weights as safetensors, and the state between two epochs."""

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing
from evenhand.data.batches import Preprocessing
from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier
from evenhand.models.heads import replace_head


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

    def build(self) -> Classifier:
        """Return the network, without its weights."""
        model = build_model(
            self.model,
            num_classes=len(self.class_names),
            channels=self.channels,
            image_size=self.preprocessing.crop_size,
            stem="auto" if self.model.startswith("timm:") else self.stem,  # type: ignore[arg-type]
        )
        return replace_head(model, self.head)


def save_weights(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and their card."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    content = save(tensors, metadata={"evenhand": json.dumps(asdict(card), ensure_ascii=False)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)  # save_file would hide that a disk is full behind an error of its own


def load_weights(path: Path) -> tuple[dict[str, Tensor], Card]:
    """Read weights and their card; a damaged or foreign file is named in one sentence."""
    if not path.is_file():
        raise EvenhandError(f"There are no weights in {path}; has the run finished an epoch?")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if "evenhand" not in metadata:
                raise ValueError("they carry no class names and no normalisation")
            content = json.loads(metadata["evenhand"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        preprocessing = content.pop("preprocessing", None) or content.pop("view")  # as it was called at first
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in preprocessing.items()
        }
        card = Card(
            **{**content, "class_names": tuple(content["class_names"]), "preprocessing": Preprocessing(**fields)}
        )
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise EvenhandError(f"The weights in {path} are damaged or not of evenhand: {_short(error)}.") from error
    return tensors, card


def load_classifier(path: Path) -> tuple[Classifier, Card]:
    """Build the network that a file of weights belongs to and fill it."""
    tensors, card = load_weights(path)
    model = card.build()
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise EvenhandError(f"The weights in {path} do not fit {card.model}: {_short(error)}.") from error
    return model, card


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write the state between two epochs, all of it or nothing."""
    content = io.BytesIO()
    torch.save(state, content)
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())  # to a file, torch.save would hide that the disk is full


def load_state(path: Path) -> dict[str, Any]:
    """Read a state; nothing in the file is executed."""
    if not path.is_file():
        raise EvenhandError(f"There is nothing to resume in {path.parent.parent}: it has finished no epoch.")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        missing = {"epoch", "model", "optimizers", "rng", "history", "best"} - set(state)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except Exception as error:  # a damaged file makes the unpickler raise nearly anything
        raise EvenhandError(f"The state in {path} is damaged: {_short(error)}; start the run anew.") from error
    return state


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
