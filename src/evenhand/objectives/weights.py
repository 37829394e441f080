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
    """Class weights, from the class counts or from a file; their mean over the training images is 1."""

    name = "weights"
    tuning_grid = ({"by": "effective"},)
    by: Literal["inverse", "effective"] = Field("inverse", description="one over the count, or the effective number")
    beta: float = Field(0.999, gt=0, lt=1, description="beta of the effective number, for by=effective")
    file: str | None = Field(None, min_length=1, description="CSV of classes and weights, in place of by")

    @model_validator(mode="after")
    def _settings_are_used(self) -> ClassWeights:
        if self.file is not None and {"by", "beta"} & self.model_fields_set:
            raise EvenhandError(f"{self.name} takes its weights by the class counts or from a file; give one of them.")
        if self.by == "inverse" and "beta" in self.model_fields_set:
            raise EvenhandError(f"beta of {self.name} is for by=effective; leave it out, or add by=effective.")
        return self

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:  # noqa: ARG002
        """Return the weights."""
        return self._values(stats)

    def check_stats(self, stats: TrainingStats) -> None:
        """Refuse a file whose weights were not read, or are of another number of classes."""
        found = 0 if stats.class_weights is None else len(stats.class_weights)
        if self.file is not None and found != stats.num_classes:
            raise EvenhandError(f"{self.file} has weights of {found} classes, but there are {stats.num_classes}.")

    def _values(self, stats: TrainingStats) -> Tensor:
        import torch

        from evenhand.losses import functional

        if self.file is None:
            return functional.class_weights(stats.counts, self.by, beta=self.beta)
        given = torch.tensor(stats.class_weights, dtype=torch.float64)
        return (given / (given * torch.from_numpy(stats.shares)).sum()).float()

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Return the frequencies times the weights, for inverse weights (equal frequencies) and those of a file."""
        if (self.file is None and self.by != "inverse") or not self.implies_prior:
            return None
        return normalised(shares * np.asarray(self._values(stats).double()))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the weights."""
        return PartSummary("weight of an image", self._values(stats).double().numpy())


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
