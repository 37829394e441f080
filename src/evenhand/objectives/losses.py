"""Losses: ce, focal, cce and vs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from evenhand import losses
from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import LossFunction, LossPart, Part, PartSummary, Shares, TrainingStats, spelled

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.models.fused_head import PendingLogits


class CrossEntropy(LossPart):
    """Cross entropy."""

    name = "ce"
    aliases = ("erm",)

    def build(self, stats: TrainingStats) -> LossFunction:  # noqa: ARG002
        """Return cross entropy."""

        def loss(
            logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
        ) -> Tensor:
            return losses.adjusted_cross_entropy(logits, target, weight, offset=offset, margin=margin)

        return loss


class Focal(LossPart):
    """Focal loss: cross entropy that fades for images already classified well."""

    name = "focal"
    tuning_grid = ({"gamma": 0.5}, {"gamma": 1})
    gamma: float = Field(2.0, ge=0, description="how fast it fades")
    alpha: float | None = Field(None, gt=0, description="a factor for all classes")

    def check(self, parts: Sequence[Part]) -> None:
        """A margin is for rows of one class."""
        kinds = {part.kind for part in parts}
        if any(part.name == "ldam" for part in parts) and kinds & {"images", "targets"}:
            raise EvenhandError("focal cannot have the margins of ldam and soft targets at once; use ce or cce.")

    def build(self, stats: TrainingStats) -> LossFunction:  # noqa: ARG002
        """Return focal loss; class weights are its alpha, one for each class."""
        gamma, factor = self.gamma, self.alpha

        def loss(
            logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
        ) -> Tensor:
            alpha = factor if weight is None else weight * (1.0 if factor is None else factor)
            if offset is not None or margin is not None:
                logits = losses.adjust_logits(logits, target, offset=offset, margin=margin)
            return losses.focal_loss(logits, target, gamma=gamma, alpha=alpha)

        return loss

    def simplified(self) -> Part:
        """Without fading and factor it is cross entropy."""
        return CrossEntropy() if self.gamma == 0 and self.alpha in (None, 1) else self

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """Its probabilities are those of no prior: confident rows stop to learn."""
        return None

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Say what a row counts."""
        factor = "" if self.alpha is None else f"{self.alpha:g} "
        return PartSummary(f"a row whose class has the probability p counts {factor}(1 - p)^{self.gamma:g}")


class ComplementCrossEntropy(LossPart):
    """Complement cross entropy: cross entropy that also flattens what is predicted for the wrong classes."""

    name = "cce"
    tuning_grid = (
        {"share": 0.1},
        {"share": 0.3},
        {"share": 0.6},
        {"share": 0.3, "rivals": "frequent"},
        {"share": 0.3, "spare": 3},
    )
    gamma: float | Literal["released"] = Field(
        -1.0, description="weight of C as the paper has it: gamma / (K - 1); `released` is what its code computes"
    )
    share: float | None = Field(None, ge=0, le=1, description="weight of C at any K: H - share C; not with gamma")
    spare: int = Field(0, ge=0, description="of the likeliest wrong classes, how many C leaves out")
    rivals: Literal["all", "frequent"] = Field(
        "all", description="the wrong classes of C; frequent: those with at least as many images as the row's class"
    )
    on: Literal["raw", "adjusted"] = Field("raw", description="the logits that C is taken of")

    @model_validator(mode="after")
    def _one_weight(self) -> ComplementCrossEntropy:
        if self.share is not None and "gamma" in self.model_fields_set:
            given = f"gamma={spelled(self.gamma)} and share={spelled(self.share)}"
            raise EvenhandError(f"gamma and share of cce both say how much C counts, got {given}; give one of them.")
        return self

    def check(self, parts: Sequence[Part]) -> None:
        """C on adjusted logits needs an offset of all of them; a margin is one of the correct class alone."""
        soft = [part.name for part in parts if part.kind in ("images", "targets")]
        if self.rivals != "all" and (self.spare or soft):
            other = soft[0] if soft else f"spare={self.spare}"
            raise EvenhandError(f"cce:rivals={self.rivals} does not go with {other}; leave one out.")
        if self.on == "adjusted" and not any(part.kind == "logits" and part.name != "ldam" for part in parts):
            raise EvenhandError("cce:on=adjusted needs a part that adjusts all logits, such as balanced-softmax.")

    def check_stats(self, stats: TrainingStats) -> None:
        """Two classes at least must be left for C."""
        if self.spare > max(stats.num_classes - 3, 0):
            raise EvenhandError(
                f"cce:spare={self.spare} leaves nothing of C with {stats.num_classes} classes; spare at most "
                f"{max(stats.num_classes - 3, 0)}."
            )

    def build(self, stats: TrainingStats) -> LossFunction:
        """Return the loss."""
        from evenhand.models.fused_head import PendingLogits

        rivals = losses.frequent_rivals(stats.counts) if self.rivals == "frequent" else None
        gamma: float | str | None = None if self.share is not None else self.gamma
        share, spare, on = self.share, self.spare, self.on

        def loss(
            logits: Tensor | PendingLogits,
            target: Tensor,
            *,
            weight: Tensor | None,
            offset: Tensor | None,
            margin: Tensor | None,
        ) -> Tensor:
            if isinstance(logits, PendingLogits):
                return losses.linear_complement_cross_entropy(
                    logits.features,
                    target,
                    logits.layer.weight,
                    logits.layer.bias,
                    weight,
                    gamma=gamma,
                    share=share,
                    offset=offset,
                    margin=margin,
                )
            return losses.complement_cross_entropy(
                logits,
                target,
                weight,
                gamma=gamma,
                share=share,
                spare=spare,
                rivals=None if rivals is None else rivals.to(logits.device),
                offset=offset,
                margin=margin,
                complement_on=on,
            )

        return loss

    def simplified(self) -> Part:
        """Without C it is cross entropy."""
        return CrossEntropy() if (self.gamma if self.share is None else self.share) == 0 else self

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """C moves its probabilities away from those of any prior."""
        return None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say what C weighs."""
        k = stats.num_classes
        if k == 2:
            return PartSummary("C is always 0 with 2 classes, so that it changes nothing")
        factor = -self.share if self.share is not None else 1 / k if self.gamma == "released" else self.gamma / (k - 1)
        return PartSummary(f"weight of C {factor:.4g}")


class VectorScaling(LossPart):
    """Vector-scaling loss: cross entropy of logits scaled and shifted by class in training, from the counts."""

    name = "vs"
    corrects_prior = True
    tuning_grid = ({"gamma": 0.15}, {"gamma": 0.15, "tau": 1.25})
    gamma: float = Field(0.3, gt=0, le=1, description="exponent of the scale, (n / largest n)^gamma")
    tau: float = Field(1.0, ge=0, le=10, description="multiple of the log prior that is added")

    def check(self, parts: Sequence[Part]) -> None:
        """It adjusts the logits itself."""
        for part in parts:
            if part.kind == "logits":
                raise EvenhandError(f"vs adjusts the logits itself and cannot be combined with {part.name}; use one.")

    def build(self, stats: TrainingStats) -> LossFunction:
        """Return the loss."""
        factors, shift = losses.vs_factors(stats.counts, self.gamma), losses.logit_offset(stats.counts, self.tau)

        def loss(
            logits: Tensor,
            target: Tensor,
            *,
            weight: Tensor | None,
            offset: Tensor | None,  # noqa: ARG001
            margin: Tensor | None,  # noqa: ARG001
        ) -> Tensor:
            here = logits.device
            return losses.adjusted_cross_entropy(logits, target, weight, scale=factors.to(here), offset=shift.to(here))

        return loss

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """Scaled logits imply no prior."""
        return None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Return the scale of each class."""
        return PartSummary("scale of logits in training", losses.vs_factors(stats.counts, self.gamma).numpy())
