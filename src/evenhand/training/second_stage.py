"""A second stage: a run that begins with the weights of another one or of a file, and may train its head only."""

from pathlib import Path

from safetensors import SafetensorError, safe_open

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.text import some
from evenhand.models.cifar import BLOCKS_AND_WIDTH, fill_head
from evenhand.models.classifier import Classifier
from evenhand.models.heads import last_layer
from evenhand.models.weights import describe_file
from evenhand.objectives.spec import ObjectiveSpec, parse_stage
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training._backbones import find_backbone
from evenhand.training.checkpoint import HEAD_ONLY, Card, load_weights
from evenhand.training.predict import selected_weights


def second_stage(run: Path | str, stage: str, *, epochs: int | None = None) -> Config:
    """Return the config of a second stage: that of a finished run, but for what the stage changes.

    Args:
        run: the folder of the finished run.
        stage: `crt` or `lws`, with its settings.
        epochs: of the second stage; None: as the stage says.

    Raises:
        EvenhandError: there is no finished run, it is a second stage itself, or this is no stage.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.training.run import train_run
        >>> from evenhand.training.second_stage import second_stage
        >>> run = train_run(make_config(objective="cce", epochs=1), Path(tempfile.mkdtemp()) / "first")
        >>> config = second_stage(run.path, "crt", epochs=2)
        >>> config.objective, config.start.load, config.start.train, config.epochs
        ('cce+crt:epochs=2', 'body', 'head', 2)
    """
    named = parse_stage(stage, epochs)
    selected_weights(run)  # says so where there is none
    first = Run(Path(run)).config
    if first.objective.stage is not None:
        raise EvenhandError(
            f"{run} is a second stage itself ({first.objective}); begin from the run that it began with, "
            f"{first.start.weights}."
        )
    objective = ObjectiveSpec(f"{first.objective.first_stage}+{named}")
    # Not as typed: the run may be continued from another folder.
    start = first.start.model_copy(update={"weights": str(Path(run).absolute()), "sha256": None})
    return with_stage(first.model_copy(update={"objective": objective, "start": start}))


def with_stage(config: Config) -> Config:
    """Return a config whose `start` and epochs are those of the second stage that its objective names, if it does.

    Args:
        config: of a run, with `start.weights`.
    """
    stage = config.objective.stage
    if stage is None:
        return config
    start = config.start.model_copy(update={"load": stage.load, "train": "head"})
    return config.model_copy(update={"start": start, "epochs": stage.epochs})


def pin_start(config: Config) -> Config:
    """Fill in the hash of the weights that a run starts from.

    Raises:
        EvenhandError: there is nothing to start from, or it is not what the run began with.
    """
    start, stage = config.start, config.objective.stage
    if stage is not None and (start.weights is None or (start.load, start.train) != (stage.load, "head")):
        raise EvenhandError(
            f"{stage.name} is a second stage of a finished run; begin it with evenhand train --from RUN --stage "
            f"{stage.spec()}."
        )
    if start.weights is None:
        return config
    found = describe_file(selected_weights(start.weights)).sha256
    if start.sha256 not in (None, found):
        raise EvenhandError(
            f"The weights of {start.weights} are no longer those that this run began with; start it anew."
        )
    return config.model_copy(update={"start": start.model_copy(update={"sha256": found})})


def foreign_weights(config: Config) -> Path | None:
    """Return the file to start from if evenhand did not write it: such weights are known to the network alone."""
    if config.start.weights is None:
        return None
    path = selected_weights(config.start.weights)
    try:
        with safe_open(path, framework="pt") as file:
            if "evenhand" in (file.metadata() or {}):
                return None
    except (SafetensorError, OSError):
        pass
    if config.start.load == "all" and config.model.name not in BLOCKS_AND_WIDTH:
        raise EvenhandError(f"{path} names no classes, so only its body can be loaded: set start.load=body.")
    return path


def body_weights(config: Config) -> Path | bool:
    """Return what the body of a network is built with: a file, the official weights, or neither."""
    foreign = foreign_weights(config)
    if foreign is not None:
        return foreign
    card = None if config.start.weights is None else load_weights(selected_weights(config.start.weights))[1]
    if card is not None and card.backbone is not None:  # that run has trained a last layer on a frozen body
        near = selected_weights(str(config.start.weights)).parent.parent
        return find_backbone(card.model, **card.backbone, near=near) or True
    return config.model.pretrained and config.start.weights is None


def require_network(weights: str, card: Card, name: str) -> None:
    """Refuse the weights of another network."""
    if card.model != name:
        raise EvenhandError(f"{weights} is a {card.model}, but this run trains a {name}; set model.name.")


def load_start(network: Classifier, config: Config, class_names: tuple[str, ...]) -> None:
    """Fill a network with the weights that evenhand kept of another run, or its last layer with that of a file."""
    weights, load = config.start.weights, config.start.load
    if weights is None:
        return
    foreign = foreign_weights(config)
    if foreign is not None:  # the body is in place already
        if load == "all":
            fill_head(network, foreign)
        return
    path = selected_weights(weights)
    tensors, card = load_weights(path)
    require_network(weights, card, network.name)
    if load == "all" and card.class_names != class_names:
        raise EvenhandError(
            f"{weights} knows other classes ({some(card.class_names)}) than these data ({some(class_names)}); set "
            "start.load=body."
        )
    last = f"{last_layer(network)}."
    tensors = {key.replace(HEAD_ONLY, last, 1) if card.backbone else key: value for key, value in tensors.items()}
    wanted = {key: value for key, value in tensors.items() if load == "all" or not key.startswith(last)}
    try:
        missing, unknown = network.load_state_dict(wanted, strict=False)
    except RuntimeError as error:
        raise EvenhandError(f"The weights of {weights} do not fit: {reason(error)}; try start.load=body.") from error
    fresh = {f"{last}scale"} if load == "all" else {key for key in missing if key.startswith(last)}
    if card.backbone is not None:  # the body is in place already
        missing = [key for key in missing if key.startswith(last)]
    if unknown or set(missing) - fresh:
        wrong = sorted(unknown or set(missing) - fresh)
        raise EvenhandError(f"The weights of {weights} do not fit ({some(wrong, 2)}); try start.load=body.")


def freeze_body(network: Classifier) -> None:
    """Let the last layer alone be trained."""
    last = f"{last_layer(network)}."
    for name, weight in network.named_parameters():
        if not name.startswith(last):
            weight.requires_grad_(False)


def keep_body(network: Classifier) -> None:
    """Set a frozen body to evaluation mode, so that its statistics stay as they are."""
    network.eval()
    network.get_submodule(last_layer(network)).train()
