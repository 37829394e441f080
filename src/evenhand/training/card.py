"""The card of a model: metadata stored with its weights, so that they can be used without the training data."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from evenhand.data.batches import Preprocessing
from evenhand.data.decode import Interpolation
from evenhand.models.build import build_model
from evenhand.models.classifier import Classifier
from evenhand.models.heads import read_head, replace_head
from evenhand.models.names import JOIN
from evenhand.models.transform import InputTransform
from evenhand.training.frozen_body import body_files

LARGEST_SIZE = 4096
"""Pixels, as in the config."""


@dataclass(frozen=True)
class Card:
    """What is needed to build a network and to prepare images for it."""

    model: str
    stem: str
    class_names: tuple[str, ...]
    channels: int
    image_size: int
    """Length in pixels that the shorter side of an image is resized to."""
    preprocessing: Preprocessing
    stretch: bool = False
    """Whether both sides are resized to that length, whatever the shape."""
    head: str = "linear"
    """The last layer, as `replace_head` takes it."""
    interpolation: Interpolation = "bilinear"
    """The filter of the resize."""
    backbone: dict[str, str] | None = None
    """`sha256` and `source` of a frozen body, which is stored elsewhere; None: all weights are in the file."""

    def transform(self) -> InputTransform:
        """Return the preprocessing of images."""
        return InputTransform(
            resize_size=self.image_size,
            crop_size=self.preprocessing.crop_size,
            resize_rule="stretch" if self.stretch else "shorter",
            interpolation=self.interpolation,
            mean=self.preprocessing.mean,
            std=self.preprocessing.std,
        )

    def build(self, near: Path | None = None) -> Classifier:
        """Build the network, without its weights but for those of a frozen body, which is also searched near a run."""
        pretrained: bool | Path | tuple[bool | Path, ...] = False
        if self.backbone is not None:
            pretrained = body_files(self.model, self.backbone, near)
        model = build_model(
            self.model,
            num_classes=len(self.class_names),
            channels=self.channels,
            image_size=self.preprocessing.crop_size,
            stem="auto" if self.model.startswith("timm:") and JOIN not in self.model else self.stem,  # type: ignore[arg-type]
            pretrained=pretrained,
        )
        return replace_head(model, self.head)


def parse_card(text: str) -> Card:
    """Read a card from JSON and check every field.

    Raises:
        ValueError: a field is wrong; LookupError, TypeError or AttributeError: one is missing or of another type.
    """
    content = json.loads(text)
    content.pop("epoch", None)  # of the weights
    fields = content.pop("preprocessing", None) or content.pop("view")  # the name in the first version
    own: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    card = Card(**{**content, "class_names": tuple(content["class_names"]), "preprocessing": Preprocessing(**own)})
    preprocessing = card.preprocessing
    texts = (card.model, card.stem, *card.class_names)
    sizes = (card.image_size, preprocessing.crop_size)
    numbers = (*preprocessing.mean, *preprocessing.std)
    if not all(isinstance(each, str) for each in texts) or not 2 <= len(set(card.class_names)) == len(card.class_names):
        raise ValueError("the names on their card are not texts, or not unique")
    if not all(type(each) is int and 1 <= each <= LARGEST_SIZE for each in sizes):
        raise ValueError(f"the sizes on their card are {sizes}")
    if type(card.channels) is not int or card.channels not in (1, 3):
        raise ValueError(f"the channels on their card are {card.channels!r}")
    if preprocessing.crop_size > card.image_size or not all(type(each) in (int, float) for each in numbers):
        raise ValueError("the preprocessing on their card is invalid")
    if (
        len(preprocessing.mean) != card.channels
        or len(preprocessing.std) != card.channels
        or not all(abs(each) < 1e6 for each in preprocessing.mean)
        or not all(1e-6 < each < 1e6 for each in preprocessing.std)
    ):
        raise ValueError("the normalisation on their card is invalid")
    if card.interpolation not in get_args(Interpolation) or type(card.stretch) is not bool:
        raise ValueError("the resizing on their card is invalid")
    read_head(card.head)
    body = card.backbone
    if body is not None and (
        set(body) != {"sha256", "source"}
        or not all(isinstance(each, str) for each in body.values())
        or not re.fullmatch(r"[0-9a-f]{64}(\+[0-9a-f]{64})*", body["sha256"])
        or body["sha256"].count(JOIN) != card.model.count(JOIN)
    ):
        raise ValueError("the backbone on their card is invalid")
    return card
