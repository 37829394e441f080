"""Class weights, at once or deferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, model_validator

from evenhand import losses
from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import PartSummary, Shares, TrainingStats, WeightsPart, normalised

if TYPE_CHECKING:
    from torch import Tensor


class ClassWeights(WeightsPart):
    """Class weights that make up for the counts; their mean over the training images is 1."""

    name = "weights"
    tuning_grid = ({"by": "effective"},)
    by: Literal["inverse", "effective"] = Field("inverse", description="one over the count, or over its effective size")
    beta: float = Field(0.999, gt=0, lt=1, description="of the effective number of images, for by=effective")

    @model_validator(mode="after")
    def _beta_is_used(self) -> ClassWeights:
        if self.by == "inverse" and "beta" in self.model_fields_set:
            raise EvenhandError(f"beta of {self.name} is for by=effective; leave it out, or add by=effective.")
        return self

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:  # noqa: ARG002
        """Return them."""
        return losses.class_weights(stats.counts, self.by, beta=self.beta)

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Inverse weights turn the training shares into equal ones."""
        if self.by != "inverse":
            return None
        return normalised(shares * np.asarray(losses.class_weights(stats.counts).double()))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say the weights."""
        return PartSummary(
            "weight of a row", losses.class_weights(stats.counts, self.by, beta=self.beta).double().numpy()
        )


class DeferredWeights(ClassWeights):
    """Deferred re-weighting (DRW): class weights that set in late, as the authors of LDAM train."""

    name = "drw"
    tuning_grid = ({"start": 0.6},)
    start: float = Field(0.8, gt=0, lt=1, description="the share of the epochs before they set in")
    by: Literal["inverse", "effective"] = Field("effective", description=ClassWeights.model_fields["by"].description)
    beta: float = Field(0.9999, gt=0, lt=1, description=ClassWeights.model_fields["beta"].description)

    def first_epoch(self, stats: TrainingStats) -> int:
        """Return the first epoch with weights, counted from 1; the last one has them at least."""
        return min(round(self.start * stats.epochs) + 1, stats.epochs)

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """What was learned without them is still there: its probabilities are those of no prior."""
        return None

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:
        """Return them from their first epoch on."""
        return super().weights(stats, epoch) if epoch + 1 >= self.first_epoch(stats) else None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say the weights, and from when on."""
        told = super().describe(stats)
        return PartSummary(f"{told.what} from epoch {self.first_epoch(stats)} of {stats.epochs} on", told.values)
