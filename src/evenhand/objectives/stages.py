"""Second stages: the last layer is trained again, on frozen features, with every class shown equally often."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import Part, PartSummary, SamplingPart, Shares, TrainingStats
from evenhand.objectives.sampling import Sampling


class StagePart(SamplingPart):
    """A second stage, from the weights of a finished run; see `evenhand.training.second_stage`."""

    kind = "stage"
    load: ClassVar[Literal["all", "body"]]
    """Which weights of the first run it begins with."""
    trained: ClassVar[str] = "the last layer"
    layer: ClassVar[str | None] = None
    """The last layer it needs, as `evenhand.models.heads` reads it; None: that of the first run."""
    epochs: int = Field(10, ge=1, description="of the second stage")

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse another last layer."""
        for part in parts:
            if self.layer and (part.kind == "head" or part.name == "ldam"):
                raise EvenhandError(f"{self.name} scales a plain last layer, but {part.name} brings another; use crt.")

    def rates(self, stats: TrainingStats, epoch: int) -> Shares:
        """Return equal shares."""
        return Sampling().rates(stats, epoch)

    def order(
        self, labels: NDArray[np.int64], stats: TrainingStats, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Show every class equally often."""
        return Sampling().order(labels, stats, epoch, random)

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Return what balanced sampling makes of them."""
        return Sampling().prior(shares, stats)

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say what is trained, and how often each class is shown."""
        told = Sampling().describe(stats)
        return PartSummary(f"{self.trained} alone is trained; {told.what}", told.values)


class CRT(StagePart):
    """Classifier re-training: a second stage that trains a fresh last layer with all classes shown equally often."""

    name = "crt"
    load = "body"


class LWS(StagePart):
    """Learnable weight scaling: a second stage that learns one scale per class, all classes shown equally often."""

    name = "lws"
    load = "all"
    trained = "one scale per class of the last layer"
    layer = "scaled"
