"""Class weights, at once or deferred."""

from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from evenhand.core.errors import EvenhandError
from evenhand.losses.functional import class_weights
from evenhand.training.objectives.part import Known, Shares, Told, WeightsPart, normalised


class Weights(WeightsPart):
    """Class weights that make up for the counts; their mean over the training images is 1."""

    name = "weights"
    tried = ({"by": "effective"},)
    by: Literal["inverse", "effective"] = Field("inverse", description="one over the count, or over its effective size")
    beta: float = Field(0.999, gt=0, lt=1, description="of the effective number of images, for by=effective")

    @model_validator(mode="after")
    def _beta_is_used(self) -> "Weights":
        if self.by == "inverse" and "beta" in self.model_fields_set:
            raise EvenhandError(f"beta of {self.name} is for by=effective; leave it out, or add by=effective.")
        return self

    def weights(self, known: Known, epoch: int) -> Tensor | None:  # noqa: ARG002
        """Return them."""
        return class_weights(known.counts, self.by, beta=self.beta)

    def prior(self, shares: Shares, known: Known) -> Shares | None:
        """Inverse weights turn the training shares into equal ones."""
        if self.by != "inverse":
            return None
        return normalised(shares * np.asarray(class_weights(known.counts).double()))

    def told(self, known: Known) -> Told:
        """Say the weights."""
        return Told("weight of a row", class_weights(known.counts, self.by, beta=self.beta).double().numpy())


class DeferredWeights(Weights):
    """Deferred re-weighting (DRW): class weights that set in late, as the authors of LDAM train."""

    name = "drw"
    tried = ({"start": 0.6},)
    start: float = Field(0.8, gt=0, lt=1, description="the share of the epochs before they set in")
    by: Literal["inverse", "effective"] = Field("effective", description=Weights.model_fields["by"].description)
    beta: float = Field(0.9999, gt=0, lt=1, description=Weights.model_fields["beta"].description)

    def first_epoch(self, known: Known) -> int:
        """Return the first epoch with weights, counted from 1; the last one has them at least."""
        return min(round(self.start * known.epochs) + 1, known.epochs)

    def prior(self, shares: Shares, known: Known) -> Shares | None:  # noqa: ARG002
        """What was learned without them is still there: its probabilities are those of no prior."""
        return None

    def weights(self, known: Known, epoch: int) -> Tensor | None:
        """Return them from their first epoch on."""
        return super().weights(known, epoch) if epoch + 1 >= self.first_epoch(known) else None

    def told(self, known: Known) -> Told:
        """Say the weights, and from when on."""
        told = super().told(known)
        return Told(f"{told.what} from epoch {self.first_epoch(known)} of {known.epochs} on", told.values)
