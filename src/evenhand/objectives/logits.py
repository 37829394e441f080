"""Parts that adjust logits in training by the class counts: an offset per class, or a margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from evenhand.core.errors import EvenhandError
from evenhand.metrics.priors import class_prior
from evenhand.models.names import LEAST_SCALE, MOST_SCALE
from evenhand.objectives.part import LogitAdjustment, LogitsPart, Part, PartSummary, Shares, TrainingStats, normalised

if TYPE_CHECKING:
    from torch import Tensor


class _PriorOffset(LogitsPart):
    """tau log pi on the logits in training, where pi are the class priors."""

    corrects_prior = True

    def strength(self) -> float:
        raise NotImplementedError

    def offset(self, stats: TrainingStats) -> Tensor:
        """Return what is added to the logits, (K,)."""
        from evenhand.losses import functional

        return functional.logit_offset(stats.counts, self.strength())

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return the offset."""
        return LogitAdjustment(offset=self.offset(stats))

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares:
        """Return pi^(1 - tau), where pi is the prior without this part."""
        # A class without images has the smallest prior above 0, as in the offset.
        logs = np.log(class_prior(shares)) - self.offset(stats).double().numpy()
        return normalised(np.exp(logs - logs.max()))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the offset."""
        return PartSummary("added to logits in training", self.offset(stats).double().numpy())


class BalancedSoftmax(_PriorOffset):
    """Balanced softmax: the log class priors are added to the logits in training (logit-adjust:tau=1)."""

    name = "balanced-softmax"
    tuned_as = "logit-adjust"

    def strength(self) -> float:
        """Return tau."""
        return 1.0


class LogitAdjust(_PriorOffset):
    """Logit adjustment in training: tau times the log class priors is added to the logits."""

    name = "logit-adjust"
    tuning_grid = ({"tau": 0.5}, {"tau": 1.5})
    tau: float = Field(1.0, gt=0, le=10, description="strength; 1 is balanced softmax")

    def strength(self) -> float:
        """Return tau."""
        return self.tau

    def spec(self) -> str:
        """Return the canonical spelling: with tau = 1 it is balanced softmax."""
        return BalancedSoftmax.name if self.tau == 1 else super().spec()


class LDAM(LogitsPart):
    """LDAM: the correct class must win by a margin that is larger for rarer classes; with a cosine classifier."""

    name = "ldam"
    has_margin = True
    implies_prior = False
    tuning_grid = ({"margin": 0.2}, {"margin": 0.8})
    margin: float = Field(0.5, gt=0, le=2, description="margin of the rarest class, in cosines")
    scale: float = Field(30.0, ge=LEAST_SCALE, le=MOST_SCALE, description="factor from cosines to logits")

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse another last layer."""
        for part in parts:
            if part.kind == "head":
                raise EvenhandError(
                    f"ldam has a cosine classifier of its own, so it cannot be combined with {part.name}; leave "
                    f"{part.name} out (ldam:scale= sets the scale)."
                )

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return the margins, in units of the scaled logits."""
        from evenhand.losses import functional

        return LogitAdjustment(margin=self.scale * functional.ldam_margins(stats.counts, self.margin))

    def head(self) -> str:
        """Return a cosine classifier."""
        return f"cosine:scale={self.scale:g}"

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the margins."""
        from evenhand.losses import functional

        return PartSummary("margin in cosines", functional.ldam_margins(stats.counts, self.margin).double().numpy())
