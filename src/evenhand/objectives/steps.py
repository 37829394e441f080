"""Optimization steps: the usual one, and complement objective training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import Field

from evenhand.objectives.part import Part, PartSummary, TrainingStats

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

Forward = Callable[[], "Tensor"]
"""Returns the logits of the batch with the current weights."""
Loss = Callable[["Tensor", "Tensor"], "Tensor"]


class Backward(Protocol):
    """The backward pass, with the scaling and averaging that precision and devices need."""

    def __call__(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Accumulate the gradient of a loss."""


class StepPart(Part):
    """An optimization step."""

    kind = "step"

    @property
    def num_optimizers(self) -> int:
        """Number of optimizers, all on one schedule."""
        return 1

    @property
    def many_devices(self) -> bool:
        """Whether it can train on several devices."""
        return True

    def step(
        self, loss_of: Loss, forward: Forward, target: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Update the weights from one batch; return its loss, detached."""
        raise NotImplementedError


class SingleStep(StepPart):
    """One step on the loss: the default, which has no name."""

    def step(
        self, loss_of: Loss, forward: Forward, target: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Step on the loss."""
        loss = loss_of(forward(), target)
        optimizers[0].zero_grad()
        backward(loss)
        optimizers[0].step()
        return loss.detach()


class ComplementObjectiveTraining(StepPart):
    """Complement objective training: after each step on the loss, one that raises the complement entropy.

    Algorithm 1 of the paper. With `forwards=2` the second step starts from the weights after the first, as in the code
    of COT's authors; with `forwards=1` both gradients are taken at the same weights, as printed.
    """

    name = "cot"
    implies_prior = False
    forwards: Literal[1, 2] = Field(2, description="forward passes: 2 as in its authors' code, 1 as printed")

    @property
    def num_optimizers(self) -> int:
        """Two: one per step."""
        return 2

    @property
    def many_devices(self) -> bool:
        """Whether each forward pass has one backward pass, which averaging over devices needs."""
        return self.forwards == 2

    @property
    def cost(self) -> float:
        """Training time, with a backward pass as long as two forward passes."""
        return 2.0 if self.forwards == 2 else 5 / 3

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the second step."""
        if stats.num_classes == 2:
            return PartSummary("C is always 0 with 2 classes: the second step has no effect")
        after = "after a forward pass of its own" if self.forwards == 2 else "from the same forward pass"
        return PartSummary(f"a second step per batch raises C / (K - 1), {after}")

    def step(
        self, loss_of: Loss, forward: Forward, target: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Step on the loss, then on the complement entropy."""
        from evenhand.losses import functional

        primary, secondary = optimizers
        logits = forward()
        loss = loss_of(logits, target)
        if self.forwards == 2:
            primary.zero_grad()
            backward(loss)
            primary.step()
            logits = forward()
            secondary.zero_grad()
            backward(-functional.complement_entropy(logits, target, balanced=True))
            secondary.step()
            return loss.detach()
        weights = [weight for group in primary.param_groups for weight in group["params"]]
        gradients = []
        for value in (loss, -functional.complement_entropy(logits, target, balanced=True)):
            primary.zero_grad()
            backward(value, retain_graph=value is loss)
            gradients.append([weight.grad for weight in weights])
        for optimizer, own in zip(optimizers, gradients, strict=True):
            for weight, gradient in zip(weights, own, strict=True):
                weight.grad = gradient
            optimizer.step()
        return loss.detach()
