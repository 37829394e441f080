"""Class weights, from the first epoch or deferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import PartSummary, Shares, TrainingStats, WeightsPart, normalised

if TYPE_CHECKING:
    from torch import Tensor


class ClassWeights(WeightsPart):
    """Class weights that correct for the class counts; their mean over the training images is 1."""

    name = "weights"
    tuning_grid = ({"by": "effective"},)
    by: Literal["inverse", "effective"] = Field("inverse", description="one over the count, or the effective number")
    beta: float = Field(0.999, gt=0, lt=1, description="beta of the effective number, for by=effective")

    @model_validator(mode="after")
    def _beta_is_used(self) -> ClassWeights:
        if self.by == "inverse" and "beta" in self.model_fields_set:
            raise EvenhandError(f"beta of {self.name} is for by=effective; leave it out, or add by=effective.")
        return self

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:  # noqa: ARG002
        """Return the weights."""
        from evenhand.losses import functional

        return functional.class_weights(stats.counts, self.by, beta=self.beta)

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Return equal frequencies for inverse weights."""
        from evenhand.losses import functional

        if self.by != "inverse" or not self.implies_prior:
            return None
        return normalised(shares * np.asarray(functional.class_weights(stats.counts).double()))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the weights."""
        from evenhand.losses import functional

        weights = functional.class_weights(stats.counts, self.by, beta=self.beta)
        return PartSummary("weight of an image", weights.double().numpy())


class DeferredWeights(ClassWeights):
    """Deferred re-weighting (DRW): class weights in the last epochs only, also on top of a logit adjustment."""

    name = "drw"
    stacks_on_logits = True
    implies_prior = False  # the network keeps some of what it learned without weights
    tuning_grid = ({"start": 0.6},)
    start: float = Field(0.8, gt=0, lt=1, description="fraction of the epochs without weights")
    by: Literal["inverse", "effective"] = Field("effective", description=ClassWeights.model_fields["by"].description)
    beta: float = Field(0.9999, gt=0, lt=1, description=ClassWeights.model_fields["beta"].description)

    def first_epoch(self, stats: TrainingStats) -> int:
        """Return the first epoch with weights, counted from 1; at the latest the last epoch."""
        return min(round(self.start * stats.epochs) + 1, stats.epochs)

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:
        """Return the weights from their first epoch on."""
        return super().weights(stats, epoch) if epoch + 1 >= self.first_epoch(stats) else None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the weights and when they start."""
        plain = super().describe(stats)
        return PartSummary(f"{plain.what} from epoch {self.first_epoch(stats)} of {stats.epochs} on", plain.values)
