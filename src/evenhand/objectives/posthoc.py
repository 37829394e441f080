"""Post-hoc logit adjustment: the logits of a trained network are adjusted, at no cost in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.metrics.priors import best_tau, class_prior
from evenhand.objectives.part import Part, PartSummary, TrainingStats

if TYPE_CHECKING:
    from evenhand.metrics.predictions import Predictions


@dataclass(frozen=True, eq=False)
class FittedAdjustment:
    """A post-hoc adjustment that was fitted to a run."""

    tau: float
    chosen: Literal["given", "validation"]
    """Whether tau was given or chosen on validation."""
    values: NDArray[np.float64]
    """(K,): what is added to the logits."""


class PostHoc(Part):
    """Post-hoc logit adjustment: tau times the log class priors is subtracted from the logits after training."""

    name = "post-hoc"
    kind = "posthoc"
    corrects_prior = True
    tau: Annotated[float, Field(ge=0, le=10)] | Literal["auto"] = Field(
        "auto", description="strength; auto: the best on validation"
    )

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse margins, which imply no prior."""
        for part in parts:
            if part.has_margin:
                raise EvenhandError(
                    f"post-hoc cannot follow {part.name}, whose margins correct for the class counts already; leave "
                    "one out."
                )

    def fit(self, stats: TrainingStats, validation: Predictions | None) -> FittedAdjustment:
        """Return the adjustment for a trained network, given its validation predictions."""
        return fit_tau(self.tau, stats.counts, validation)

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the adjustment; with `auto`, that of tau = 1."""
        per_tau = -np.log(class_prior(stats.counts))
        if self.tau == "auto":
            return PartSummary("added to logits after training, times the best tau on validation", per_tau)
        return PartSummary("added to logits after training", self.tau * per_tau)


def fit_tau(tau: float | Literal["auto"], counts: Sequence[int], validation: Predictions | None) -> FittedAdjustment:
    """Return the adjustment of the logits: -tau times the log class priors.

    Args:
        tau: its strength, or `auto`: the tau with the best balanced accuracy on validation.
        counts: training images per class.
        validation: predictions of the validation images.

    Raises:
        EvenhandError: `auto` without validation images.
    """
    log_prior = np.log(class_prior(counts))
    if tau != "auto":
        return FittedAdjustment(tau, "given", -tau * log_prior)
    if validation is None:
        raise EvenhandError("There are no validation images to choose tau by; give a number instead of auto.")
    best = best_tau(validation.logits, validation.targets, counts)
    return FittedAdjustment(best, "validation", -best * log_prior)
