"""The weights that a run starts from: none, official pretrained ones, a file, or those of another run."""

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular
from evenhand.core.text import some
from evenhand.models.backbone import Backbone, WeightsFile, find_weights, input_transform, load_backbone
from evenhand.models.build import require_model
from evenhand.models.cifar import BLOCKS_AND_WIDTH, fill_head
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training.card import Card
from evenhand.training.checkpoint import HEAD_ONLY, load_weights
from evenhand.training.frozen_body import body_files, stored_weights
from evenhand.training.predict import selected_weights


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Weights that a run starts from, with the preprocessing they need."""

    name: str
    """The network."""
    weights: Weights
    transform: InputTransform
    """The preprocessing that these weights expect."""
    frozen: bool
    """Whether only a last layer is trained, on features; a second stage on the body of a run trains on images."""
    file: WeightsFile
    """The file of the weights; None: the official ones."""

    def backbone(self, transform: InputTransform) -> Backbone:
        """Load the network to compute features with, after the given preprocessing."""
        return Backbone(
            load_backbone(self.name, self.file, image_size=transform.crop_size).classifier, transform, self.weights
        )


def find_pretrained(config: Config) -> Pretrained | None:
    """Find the weights that a run starts from, before any image is read.

    Returns:
        The weights; None: the run starts from fresh ones, or from weights that define no preprocessing.

    Raises:
        EvenhandError: the weights cannot be found or downloaded.
    """
    name, head = require_model(config.model.name), config.start.train == "head"
    if config.start.weights is None:
        if not config.model.pretrained:
            return None
        return Pretrained(name, find_weights(name), input_transform(name), head, None)
    foreign = foreign_weights(config)
    if foreign is not None and name in BLOCKS_AND_WIDTH:
        return None  # their preprocessing is unknown: images are prepared as for fresh weights
    if foreign is not None:
        return Pretrained(name, describe_file(foreign), input_transform(name), head, foreign)
    path = start_file(config.start.weights)
    card = load_weights(path)[1]
    _require_network(config.start.weights, card, name)
    if card.backbone is not None:
        weights = stored_weights(card.model, **card.backbone, near=path.parent.parent)
        files = tuple(each.file for each in weights.members) or weights.file
        return Pretrained(name, weights, card.transform(), head, files)
    return Pretrained(name, describe_file(path), card.transform(), False, path)


def start_file(weights: str) -> Path:
    """Return the file of the weights that a run starts from.

    Of a run that was trained again on its validation images, it is the one before that: they must be new to this run.
    """
    path, run = selected_weights(weights), Run(Path(weights))
    return run.validated_weights if path == run.refit_weights else path


def pin_start(config: Config) -> Config:
    """Fill in the hash of the weights that a run starts from.

    Raises:
        EvenhandError: the weights are missing, or changed since the run began.
    """
    start, stage = config.start, config.objective.stage
    if stage is not None and (start.weights is None or (start.load, start.train) != (stage.load, "head")):
        raise EvenhandError(
            f"{stage.name} is a second stage of a finished run; start it with evenhand train --from RUN --stage "
            f"{stage.spec()}."
        )
    if start.weights is None:
        return config
    found = describe_file(start_file(start.weights)).sha256
    if start.sha256 not in (None, found):
        raise EvenhandError(f"The weights of {start.weights} changed since this run began; start it anew.")
    return config.model_copy(update={"start": start.model_copy(update={"sha256": found})})


def foreign_weights(config: Config) -> Path | None:
    """Return the file that a run starts from if evenhand did not write it: such a file has no class names."""
    if config.start.weights is None:
        return None
    path = start_file(config.start.weights)
    try:
        with open_regular(path):
            pass  # refuses pipes, which safe_open would wait for
        with safe_open(path, framework="pt") as file:
            if "evenhand" in (file.metadata() or {}):
                return None
    except (SafetensorError, OSError):
        pass
    if config.start.load == "all" and config.model.name not in BLOCKS_AND_WIDTH:
        raise EvenhandError(f"{path} names no classes, so only its body can be loaded: set start.load=body.")
    return path


def body_weights(config: Config) -> bool | Path | tuple[bool | Path, ...]:
    """Return the weights to build the body of a network with: a file, the official ones (True), or none (False)."""
    if config.start.weights is None:
        return config.model.pretrained
    foreign = foreign_weights(config)
    if foreign is not None:
        return foreign
    path = start_file(config.start.weights)
    card = load_weights(path)[1]
    if card.backbone is None:
        return False
    return body_files(card.model, card.backbone, path.parent.parent)  # it trained a frozen body


def load_initial_weights(network: Classifier, config: Config, class_names: tuple[str, ...]) -> None:
    """Load the weights that `start.weights` names, if any: those of a run, or the last layer of a file."""
    weights, load = config.start.weights, config.start.load
    if weights is None:
        return
    foreign = foreign_weights(config)
    if foreign is not None:  # the body was loaded with the network
        if load == "all":
            fill_head(network, foreign)
        return
    tensors, card = load_weights(start_file(weights))
    _require_network(weights, card, network.name)
    if load == "all" and card.class_names != class_names:
        raise EvenhandError(
            f"{weights} has other classes ({some(card.class_names)}) than these data ({some(class_names)}); set "
            "start.load=body."
        )
    last = f"{last_layer(network)}."
    tensors = {key.replace(HEAD_ONLY, last, 1) if card.backbone else key: value for key, value in tensors.items()}
    fitted = f"{last}lda_"  # to the features of each run, so those of another run are left out
    tensors = {
        key: value
        for key, value in tensors.items()
        if not key.startswith(last) or (load == "all" and not key.startswith(fitted))
    }
    try:
        missing, unknown = network.load_state_dict(tensors, strict=False)
    except RuntimeError as error:
        raise EvenhandError(f"The weights of {weights} do not fit: {reason(error)}; try start.load=body.") from error
    own = (f"{last}scale", fitted) if load == "all" else last
    fresh = {key for key in missing if key.startswith(own)}
    if card.backbone is not None:  # the body was loaded with the network
        missing = [key for key in missing if key.startswith(last)]
    wrong = sorted(unknown or set(missing) - fresh)
    if wrong:
        raise EvenhandError(f"The weights of {weights} do not fit ({some(wrong, 2)}); try start.load=body.")


def _require_network(weights: str, card: Card, name: str) -> None:
    if card.model != name:
        raise EvenhandError(f"{weights} is a {card.model}, but this run trains a {name}; set model.name.")
