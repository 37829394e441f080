"""Second stages: the last layer is trained again on a frozen body, with class-balanced sampling."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import LogitsPart, Part, PartSummary, SamplingPart, Shares, TrainingStats
from evenhand.objectives.sampling import Sampling


class StagePart(SamplingPart):
    """A second stage, from the weights of a finished run; see `evenhand.training.second_stage`."""

    kind = "stage"
    load: ClassVar[Literal["all", "body"]]
    """Which weights of the first run it starts from."""
    trained: ClassVar[str] = "the last layer"
    """What is trained, in words."""
    layer: ClassVar[str | None] = None
    """The last layer it needs, as `evenhand.models.heads` reads it; None: that of the first run."""
    epochs: int = Field(10, ge=1, description="epochs of the second stage")

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse another last layer."""
        for part in parts:
            other = part.kind == "head" or (isinstance(part, LogitsPart) and part.head() is not None)
            if self.layer and other:
                raise EvenhandError(f"{self.name} needs a linear last layer, but {part.name} replaces it; use crt.")

    def rates(self, stats: TrainingStats, epoch: int) -> Shares:
        """Return equal frequencies."""
        return Sampling().rates(stats, epoch)

    def order(
        self, labels: NDArray[np.int64], stats: TrainingStats, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Sample every class equally often."""
        return Sampling().order(labels, stats, epoch, random)

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Return those of class-balanced sampling."""
        return Sampling().prior(shares, stats)

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe what is trained, and the sampling."""
        sampling = Sampling().describe(stats)
        return PartSummary(f"only {self.trained} is trained; {sampling.what}", sampling.values)


class CRT(StagePart):
    """Classifier re-training: a second stage that trains a fresh last layer with class-balanced sampling."""

    name = "crt"
    load = "body"


class LWS(StagePart):
    """Learnable weight scaling: a second stage that learns one scale per class with class-balanced sampling."""

    name = "lws"
    load = "all"
    trained = "one scale per class of the last layer"
    layer = "scaled"
