"""Loss functions: ce, focal, cce and vs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.objectives.part import LossFunction, LossPart, Part, PartSummary, TrainingStats, spelled

if TYPE_CHECKING:
    from torch import Tensor

    from evenhand.models.fused_head import PendingLogits


class CrossEntropy(LossPart):
    """Cross entropy."""

    name = "ce"
    aliases = ("erm",)

    def build(self, stats: TrainingStats) -> LossFunction:  # noqa: ARG002
        """Return cross entropy."""
        from evenhand.losses import functional

        def loss(
            logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
        ) -> Tensor:
            return functional.adjusted_cross_entropy(logits, target, weight, offset=offset, margin=margin)

        return loss


class Focal(LossPart):
    """Focal loss: cross entropy that gives well classified images less weight."""

    name = "focal"
    tuning_grid = ({"gamma": 0.5}, {"gamma": 1})
    implies_prior = False
    gamma: float = Field(2.0, ge=0, description="focusing parameter; 0 is cross entropy")
    alpha: float | None = Field(None, gt=0, description="factor for all classes")

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse margins together with soft targets."""
        kinds = {part.kind for part in parts}
        margin = next((part.name for part in parts if part.has_margin), None)
        if margin and kinds & {"images", "targets"}:
            raise EvenhandError(f"focal cannot combine the margins of {margin} with soft targets; use ce or cce.")

    def build(self, stats: TrainingStats) -> LossFunction:  # noqa: ARG002
        """Return focal loss; class weights are its alpha, one per class."""
        from evenhand.losses import functional

        gamma, factor = self.gamma, self.alpha

        def loss(
            logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
        ) -> Tensor:
            alpha = factor if weight is None else weight * (1.0 if factor is None else factor)
            if offset is not None or margin is not None:
                logits = functional.adjust_logits(logits, target, offset=offset, margin=margin)
            return functional.focal_loss(logits, target, gamma=gamma, alpha=alpha)

        return loss

    def simplified(self) -> Part:
        """Return cross entropy for gamma = 0 without a factor."""
        return CrossEntropy() if self.gamma == 0 and self.alpha in (None, 1) else self

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the weight of an image."""
        factor = "" if self.alpha is None else f"{self.alpha:g} "
        return PartSummary(f"weight of an image {factor}(1 - p)^{self.gamma:g}, p the probability of its class")


class ComplementCrossEntropy(LossPart):
    """Complement cross entropy: cross entropy that also flattens the probabilities of the wrong classes."""

    name = "cce"
    implies_prior = False
    tuning_grid = (
        {"share": 0.1},
        {"share": 0.3},
        {"share": 0.6},
        {"share": 0.3, "rivals": "frequent"},
        {"share": 0.3, "spare": 3},
    )
    gamma: float | Literal["released"] = Field(
        -1.0, description="weight of C as in the paper: gamma / (K - 1); released: as in its code"
    )
    share: float | None = Field(None, ge=0, le=1, description="weight of C for any K: H - share C; instead of gamma")
    spare: int = Field(0, ge=0, description="number of most probable wrong classes that C leaves out")
    rivals: Literal["all", "frequent"] = Field(
        "all", description="wrong classes in C; frequent: those with at least as many images as the correct class"
    )
    on: Literal["raw", "adjusted"] = Field("raw", description="logits that C is computed from")

    @model_validator(mode="after")
    def _one_weight(self) -> ComplementCrossEntropy:
        if self.share is not None and "gamma" in self.model_fields_set:
            given = f"gamma={spelled(self.gamma)} and share={spelled(self.share)}"
            raise EvenhandError(f"gamma and share of cce both set the weight of C, got {given}; give one of them.")
        return self

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse settings that the other parts do not support."""
        soft = [part.name for part in parts if part.kind in ("images", "targets")]
        if self.rivals != "all" and (self.spare or soft):
            other = soft[0] if soft else f"spare={self.spare}"
            raise EvenhandError(f"cce:rivals={self.rivals} cannot be combined with {other}; leave one out.")
        if self.on == "adjusted" and not any(part.kind == "logits" and not part.has_margin for part in parts):
            raise EvenhandError("cce:on=adjusted needs a part that adds an offset to logits, such as balanced-softmax.")

    def check_stats(self, stats: TrainingStats) -> None:
        """Refuse a spare that leaves C fewer than two classes."""
        if self.spare > max(stats.num_classes - 3, 0):
            raise EvenhandError(
                f"cce:spare={self.spare} leaves too few classes for C, of {stats.num_classes}; use at most "
                f"{max(stats.num_classes - 3, 0)}."
            )

    def build(self, stats: TrainingStats) -> LossFunction:
        """Return the loss."""
        from evenhand.losses import functional, linear_complement_cross_entropy
        from evenhand.models.fused_head import PendingLogits

        rivals = functional.frequent_rivals(stats.counts) if self.rivals == "frequent" else None
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
            shared: Any = {"gamma": gamma, "share": share, "offset": offset, "margin": margin}
            if isinstance(logits, PendingLogits):
                features, layer = logits
                return linear_complement_cross_entropy(features, target, layer.weight, layer.bias, weight, **shared)
            here = None if rivals is None else rivals.to(logits.device)
            return functional.complement_cross_entropy(
                logits, target, weight, spare=spare, rivals=here, complement_on=on, **shared
            )

        return loss

    def simplified(self) -> Part:
        """Return cross entropy where the weight of C is 0."""
        return CrossEntropy() if (self.gamma if self.share is None else self.share) == 0 else self

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the weight of C."""
        k = stats.num_classes
        if k == 2:
            return PartSummary("C is always 0 with 2 classes: no effect")
        factor = -self.share if self.share is not None else 1 / k if self.gamma == "released" else self.gamma / (k - 1)
        return PartSummary(f"weight of C {factor:.4g}")


class VectorScaling(LossPart):
    """Vector-scaling loss: cross entropy of logits scaled and shifted by class in training, from the counts."""

    name = "vs"
    corrects_prior = True
    implies_prior = False
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
        from evenhand.losses import functional

        factors = functional.vs_factors(stats.counts, self.gamma)
        shift = functional.logit_offset(stats.counts, self.tau)

        def loss(
            logits: Tensor,
            target: Tensor,
            *,
            weight: Tensor | None,
            offset: Tensor | None,
            margin: Tensor | None,  # noqa: ARG001
        ) -> Tensor:
            scale, offset = factors.to(logits.device), shift.to(logits.device)
            return functional.adjusted_cross_entropy(logits, target, weight, scale=scale, offset=offset)

        return loss

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Return the scale of each class."""
        from evenhand.losses.functional import vs_factors

        return PartSummary("scale of logits in training", vs_factors(stats.counts, self.gamma).numpy())
