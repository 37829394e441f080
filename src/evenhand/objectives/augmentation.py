"""Parts that transform training images and leave their targets as they are, for training from scratch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.objectives.part import AugmentationPart, ErasingPart, PartSummary, TrainingStats, TuningGrid

if TYPE_CHECKING:
    from torch import Tensor

TRIES = 10
"""How often a rectangle is drawn that may not fit, as in torchvision."""


class RandAugment(AugmentationPart):
    """RandAugment: each image gets some operations of one strength, drawn at random (Cubuk et al. 2020)."""

    name = "randaugment"
    tuning_grid: ClassVar[TuningGrid] = ({"magnitude": 5}, {"magnitude": 13})
    ops: int = Field(2, ge=1, le=10, description="operations per image")
    magnitude: int = Field(9, ge=0, le=30, description="their strength")

    def transformation(self) -> Any:
        """RandAugment of torchvision, for one image."""
        from torchvision.transforms import v2

        return v2.RandAugment(num_ops=self.ops, magnitude=self.magnitude)

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the operations."""
        return PartSummary(f"each image gets {self.ops} random operations of strength {self.magnitude} of 30")


class TrivialAugment(AugmentationPart):
    """TrivialAugment: each image gets one operation of random strength (Mueller and Hutter 2021, wide)."""

    name = "trivialaugment"

    def transformation(self) -> Any:
        """TrivialAugmentWide of torchvision, for one image."""
        from torchvision.transforms import v2

        return v2.TrivialAugmentWide()

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the operations."""
        return PartSummary("each image gets 1 random operation of random strength")


class Erasing(ErasingPart):
    """Random erasing: a random rectangle of some images becomes the mean colour (Zhong et al. 2020)."""

    name = "erasing"
    tuning_grid = ({"p": 0.25},)
    p: float = Field(0.5, gt=0, le=1, description="fraction of the images")
    largest: float = Field(0.33, ge=0.02, le=1, description="largest area, as a fraction of the image")

    smallest: ClassVar[float] = 0.02
    ratio: ClassVar[tuple[float, float]] = (0.3, 3.3)
    """Smallest area, and range of height to width: those of torchvision."""

    def erase(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Erase all rectangles of a batch at once: their corners are compared with the coordinates of the pixels."""
        import torch

        number, _, height, width = images.shape
        corners = self.rectangles(number, height, width, random)
        top, left, bottom, right = torch.from_numpy(corners).to(images.device).unsqueeze(2).unbind(1)
        y, x = torch.arange(height, device=images.device), torch.arange(width, device=images.device)
        rows, columns = (y >= top) & (y < bottom), (x >= left) & (x < right)
        return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)

    def rectangles(self, number: int, height: int, width: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Return top, left, bottom and right of each image's rectangle, (number, 4); empty where nothing is erased.

        As torchvision: area and ratio are drawn until the rectangle fits, at most 10 times.
        """
        chosen = random.random(number) < self.p
        area = height * width * random.uniform(self.smallest, self.largest, (number, TRIES))
        low, high = self.ratio
        ratio = np.exp(random.uniform(math.log(low), math.log(high), (number, TRIES)))
        place = random.random((number, 2))
        sides = np.stack([np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))], 2).astype(np.int64)
        fits = np.all(sides < [height, width], axis=2)
        first = sides[np.arange(number), fits.argmax(axis=1)]
        first[~(chosen & fits.any(axis=1))] = 0
        start = np.floor(place * ([height + 1, width + 1] - first)).astype(np.int64)
        return np.concatenate([start, start + first], 1)

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the rectangles."""
        return PartSummary(
            f"{self.p:.0%} of the images lose a rectangle of {self.smallest:.0%} to {self.largest:.0%} of their area"
        )
