"""The network of a run: built, given its initial weights, and described by its card."""

import torch
import torch.nn.functional as F

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.data.images import FeatureImages
from evenhand.data.table import FilePixels
from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier
from evenhand.models.discriminants import linear_discriminants
from evenhand.models.fused_head import defer_logits
from evenhand.models.heads import CosineHead, last_layer, replace_head
from evenhand.objectives.objective import Objective
from evenhand.runs.config import Config
from evenhand.training._initial_weights import body_weights, load_initial_weights
from evenhand.training.card import Card
from evenhand.training.frozen_body import freeze_body, head_alone, weights_reference
from evenhand.training.prepare import PreparedData


def build_network(config: Config, prepared: PreparedData, objective: Objective) -> Classifier:
    """Build the network that a run trains: all of it, or a last layer on features.

    Equal seeds give equal initial weights. The global random state is seeded for dropout.
    """
    num_classes = prepared.table.num_classes
    with torch.random.fork_rng():
        torch.manual_seed(_seed(config.seed, "initialisation"))
        if prepared.backbone is not None:
            objective.require_features()
            network = head_alone(prepared.backbone, num_classes)
        else:
            network = build_model(
                config.model.name,
                num_classes=num_classes,
                channels=prepared.images.channels,
                image_size=prepared.preprocessing.crop_size,
                stem=config.model.stem,
                pretrained=body_weights(config),
            )
        replace_head(network, objective.head)
    _fit_cosine_head(network, prepared)
    load_initial_weights(network, config, prepared.table.class_names)
    if config.start.train == "head":
        freeze_body(network)
    if objective.defers_logits and not config.compute.compile:
        defer_logits(network)
    torch.manual_seed(_seed(config.seed, "dropout"))
    return network.to(memory_format=torch.channels_last)


def _fit_cosine_head(network: Classifier, prepared: PreparedData) -> None:
    """Point the weights of a cosine classifier to the mean direction of each class's training features.

    Its random weights are long, for training together with a body: the rate of a last layer alone hardly turns them.
    Its discriminants, if it has any, are fitted here too: training does not change them.
    """
    head = network.get_submodule(last_layer(network))
    if not isinstance(head, CosineHead):
        return
    if prepared.backbone is None or not isinstance(prepared.images, FeatureImages):
        if head.lda:
            raise EvenhandError(
                "lda of cosine needs the features of a frozen network, but all layers are trained; leave lda out, or "
                "use --train head."
            )
        return
    rows = prepared.splits.train
    features = prepared.images.features[torch.from_numpy(prepared.rows[rows]), 0].float()
    labels = torch.from_numpy(prepared.table.labels[rows])
    # A class without images keeps its random direction, which is negligible next to a sum of unit vectors.
    sums = 1e-6 * F.normalize(head.weight.detach())
    features = F.normalize(features)
    head.start_at(sums.index_add(0, labels, features))
    if head.lda:
        head.set_discriminants(*linear_discriminants(features, labels, len(sums)))


def make_card(network: Classifier, prepared: PreparedData, objective: Objective) -> Card:
    """Return the card of a network for the images of a run."""
    return Card(
        model=network.name,
        stem=network.stem,
        class_names=prepared.table.class_names,
        channels=prepared.images.channels,
        image_size=prepared.images.image_size,
        preprocessing=prepared.preprocessing,
        stretch=isinstance(prepared.table.pixels, FilePixels) and prepared.table.pixels.stretch,
        head=objective.head,
        interpolation=prepared.interpolation,
        backbone=None if prepared.backbone is None else weights_reference(prepared.backbone.weights),
    )


def _seed(seed: int, name: str) -> int:
    return int(stream(seed, name).integers(2**63 - 1))
