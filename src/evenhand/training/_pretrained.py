"""Weights from elsewhere: what they are, what images are put through for them, and what is trained of the network."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from evenhand.core.errors import EvenhandError
from evenhand.models.backbone import Backbone, find_weights, input_transform, load_backbone
from evenhand.models.build import require_model
from evenhand.models.cifar import BLOCKS_AND_WIDTH
from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.models.heads import CosineHead, last_layer
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights, describe_file
from evenhand.runs.config import Config
from evenhand.training._backbones import find_backbone
from evenhand.training.checkpoint import load_weights
from evenhand.training.predict import selected_weights
from evenhand.training.second_stage import foreign_weights, require_network


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Weights to begin with that others have trained, or another run."""

    name: str
    weights: Weights
    transform: InputTransform
    """What images are put through for it."""
    frozen: bool
    """The last layer alone is trained, on features. A second stage on the body of a run sees images."""
    file: Path | None
    """The weights, where they are not the official ones."""

    def backbone(self, transform: InputTransform) -> Backbone:
        """Load it to compute features with, of images of another size perhaps."""
        found = load_backbone(self.name, self.file)
        return Backbone(found.network, transform, self.weights)


def find_pretrained(config: Config) -> Pretrained | None:
    """Make sure that the weights which a run begins with are here, before any image is read.

    Returns:
        The weights; None: it begins with fresh ones, or with such as say nothing of images.

    Raises:
        EvenhandError: they cannot be had; in one sentence, with what to do.
    """
    name, head = require_model(config.model.name), config.start.train == "head"
    if config.start.weights is None:
        if not config.model.pretrained:
            return None
        return Pretrained(name, find_weights(name), input_transform(name), head, None)
    foreign = foreign_weights(config)
    if foreign is not None and name in BLOCKS_AND_WIDTH:
        return None  # nobody has said what their weights expect: images are prepared as for fresh ones
    if foreign is not None:
        return Pretrained(name, describe_file(foreign), input_transform(name), head, foreign)
    path = selected_weights(config.start.weights)
    card = load_weights(path)[1]
    require_network(config.start.weights, card, name)
    if card.backbone is not None:
        file = find_backbone(card.model, **card.backbone, near=path.parent.parent)
        return Pretrained(name, Weights(file, **card.backbone), card.transform(), head, file)
    return Pretrained(name, describe_file(path), card.transform(), False, path)


def head_alone(backbone: Backbone, num_classes: int) -> Classifier:
    """Build what is trained on features: a last layer.

    Example:
        >>> import torch
        >>> from evenhand.models.backbone import load_backbone
        >>> from evenhand.training._pretrained import head_alone
        >>> head_alone(load_backbone("lite0"), num_classes=5)(torch.zeros(2, 1280)).shape
        torch.Size([2, 5])
    """
    last = backbone.network.get_submodule(last_layer(backbone.network))
    if not isinstance(last, nn.Linear | CosineHead):
        raise EvenhandError(
            f"{backbone.name} does not end in a linear layer that could be trained on features; choose another network."
        )
    fresh = nn.Linear(backbone.num_features, num_classes)
    nn.init.normal_(fresh.weight, std=0.01)  # the first steps are to be led by the data
    nn.init.zeros_(fresh.bias)
    return Classifier(
        BodyAndHead(nn.Identity(), fresh),
        name=backbone.name,
        stem=backbone.network.stem,
        num_features=backbone.num_features,
    )


def parameter_groups(network: nn.Module, layer_decay: float) -> list[dict[str, Any]]:
    """Return the weights to train, each with its `rate` beside that of the last layer.

    Args:
        network: of which all weights that want gradients are taken.
        layer_decay: the rate of the first layer; those between follow geometrically, by their place in the network.

    Example:
        >>> from torch import nn
        >>> from evenhand.training._pretrained import parameter_groups
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 2))
        >>> [round(group["rate"], 2) for group in parameter_groups(network, 0.01)]
        [0.01, 0.1, 1.0]
    """
    # A layer is what has weights of its own: a convolution, a normalisation.
    own = (
        [weight for weight in module.parameters(recurse=False) if weight.requires_grad] for module in network.modules()
    )
    layers = [layer for layer in own if layer]
    if layer_decay == 1:
        return [{"params": [weight for layer in layers for weight in layer], "rate": 1.0}]
    last = len(layers) - 1
    return [
        {"params": layer, "rate": layer_decay ** ((last - place) / max(last, 1))} for place, layer in enumerate(layers)
    ]
