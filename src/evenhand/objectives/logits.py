"""Parts that hand the loss an offset or a margin of the logits, from the class counts."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from evenhand import losses
from evenhand.core.errors import EvenhandError
from evenhand.metrics.priors import class_prior
from evenhand.models.names import LEAST_SCALE, MOST_SCALE
from evenhand.objectives.part import LogitAdjustment, LogitsPart, Part, PartSummary, Shares, TrainingStats, normalised


class _PriorOffset(LogitsPart):
    """tau log pi on the logits in training, where pi are the shares of the classes."""

    corrects_prior = True

    def strength(self) -> float:
        raise NotImplementedError

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return the offset."""
        return LogitAdjustment(offset=losses.logit_offset(stats.counts, self.strength()))

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares:
        """Return pi^(1 - tau), where pi is the prior without this part."""
        offset = losses.logit_offset(stats.counts, self.strength()).double().numpy()
        logs = np.log(class_prior(shares)) - offset  # a class without images counts as the smallest with some, as there
        return normalised(np.exp(logs - logs.max()))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say what is added to the logits."""
        return PartSummary(
            "added to logits in training", losses.logit_offset(stats.counts, self.strength()).double().numpy()
        )


class BalancedSoftmax(_PriorOffset):
    """Balanced softmax: the log of the class shares is added to the logits in training (logit-adjust:tau=1)."""

    name = "balanced-softmax"
    tuned_as = "logit-adjust"

    def strength(self) -> float:
        """Return tau."""
        return 1.0


class LogitAdjust(_PriorOffset):
    """Logit adjustment in training: tau times the log of the class shares is added to the logits."""

    name = "logit-adjust"
    tuning_grid = ({"tau": 0.5}, {"tau": 1.5})
    tau: float = Field(1.0, gt=0, le=10, description="how much of it; 1 is balanced softmax")

    def strength(self) -> float:
        """Return tau."""
        return self.tau

    def spec(self) -> str:
        """At tau = 1 it is balanced softmax by another name."""
        return BalancedSoftmax.name if self.tau == 1 else super().spec()


class LDAM(LogitsPart):
    """LDAM: the correct class must lead by a margin that is wider for rarer classes; with a normalised last layer."""

    name = "ldam"
    tuning_grid = ({"margin": 0.2}, {"margin": 0.8})
    margin: float = Field(0.5, gt=0, le=2, description="of the rarest class, in cosines")
    scale: float = Field(
        30.0, ge=LEAST_SCALE, le=MOST_SCALE, description="what cosines are multiplied by to become logits"
    )

    def check(self, parts: Sequence[Part]) -> None:
        """It brings its own last layer."""
        for part in parts:
            if part.kind == "head":
                raise EvenhandError(
                    f"ldam brings a normalised last layer of its own, so {part.name} cannot stand beside it; leave "
                    f"{part.name} out (ldam:scale= is its scale)."
                )

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return the margins; the logits have the scale in them already."""
        return LogitAdjustment(margin=self.scale * losses.ldam_margins(stats.counts, self.margin))

    def head(self) -> str:
        """Return a normalised one."""
        return f"cosine:scale={self.scale:g}"

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """Margins imply no prior."""
        return None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say the margins."""
        return PartSummary("margin in cosines", losses.ldam_margins(stats.counts, self.margin).double().numpy())
