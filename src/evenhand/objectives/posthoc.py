"""What is done after training: the logits of a trained network are adjusted, at no cost of training."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.priors import best_tau, class_prior
from evenhand.objectives.part import Part, PartSummary, TrainingStats


@dataclass(frozen=True, eq=False)
class FittedAdjustment:
    """An adjustment of logits that was fitted to a run."""

    tau: float
    chosen: Literal["given", "validation"]
    """By whom."""
    values: NDArray[np.float64]
    """(K,): what is added to the logits."""


class PostHoc(Part):
    """Post-hoc logit adjustment: tau times the log of the class shares is taken off the logits after training."""

    name = "post-hoc"
    kind = "posthoc"
    corrects_prior = True
    tau: Annotated[float, Field(ge=0, le=10)] | Literal["auto"] = Field(
        "auto", description="how much of it; auto: the best on validation"
    )

    def check(self, parts: Sequence[Part]) -> None:
        """Margins are no prior that could be taken off; other parts that make up for the counts are refused anyway."""
        if any(part.name == "ldam" for part in parts):
            raise EvenhandError(
                "post-hoc cannot follow ldam, whose margins make up for the class counts already; leave one out."
            )

    def fit(self, stats: TrainingStats, validation: Predictions | None) -> FittedAdjustment:
        """Return what is added to the logits of the trained network."""
        return fit_tau(self.tau, stats.counts, validation)

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say tau, or what a tau of 1 adds."""
        per_tau = -np.log(class_prior(stats.counts))
        if self.tau == "auto":
            return PartSummary("added to logits after training, times the tau that is best on validation", per_tau)
        return PartSummary("added to logits after training", self.tau * per_tau)


def fit_tau(tau: float | Literal["auto"], counts: Sequence[int], validation: Predictions | None) -> FittedAdjustment:
    """Return what post-hoc adjustment adds to logits: -tau log of the class shares.

    Args:
        tau: how much of it, or `auto`: the tau with the best balanced accuracy on validation.
        counts: of each class, the images really trained on.
        validation: what the network says about the validation images.

    Raises:
        EvenhandError: `auto` without validation images.
    """
    shift = np.log(class_prior(counts))
    if tau != "auto":
        return FittedAdjustment(tau, "given", -tau * shift)
    if validation is None:
        raise EvenhandError("There are no validation images to choose tau by; give a number instead of auto.")
    best = best_tau(validation.logits, validation.targets, counts)
    return FittedAdjustment(best, "validation", -best * shift)
