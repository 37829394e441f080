"""How gradients become a step: the usual way, and complement objective training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import Field

from evenhand import losses
from evenhand.objectives.part import Part, PartSummary, Shares, TrainingStats

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

Forward = Callable[["Tensor"], "Tensor"]
Loss = Callable[["Tensor", "Tensor"], "Tensor"]


class Backward(Protocol):
    """How gradients are computed: scaled, averaged or neither, as precision and devices ask for."""

    def __call__(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradient of a loss to the weights' own."""


class StepPart(Part):
    """How gradients become a step."""

    kind = "step"

    @property
    def num_optimizers(self) -> int:
        """How many optimizers it steps, all on one schedule."""
        return 1

    @property
    def many_devices(self) -> bool:
        """Whether gradients can be averaged over devices in the usual way."""
        return True

    def step(
        self,
        loss_of: Loss,
        forward: Forward,
        images: Tensor,
        target: Tensor,
        optimizers: Sequence[Optimizer],
        backward: Backward,
    ) -> Tensor:
        """Update the weights from one batch, and return its loss, detached."""
        raise NotImplementedError


class SingleStep(StepPart):
    """One step on the loss (algorithm 2 of the paper, and everybody's loop); it stands in every objective unnamed."""

    def step(
        self,
        loss_of: Loss,
        forward: Forward,
        images: Tensor,
        target: Tensor,
        optimizers: Sequence[Optimizer],
        backward: Backward,
    ) -> Tensor:
        """Step on the loss."""
        loss = loss_of(forward(images), target)
        optimizers[0].zero_grad()
        backward(loss)
        optimizers[0].step()
        return loss.detach()


class ComplementObjectiveTraining(StepPart):
    """Complement objective training: a step on the loss, then one that raises the balanced complement entropy.

    It is algorithm 1 of the paper. With `forwards=2` the second step sees the weights that the first one made, as COT's
    authors run it; with `forwards=1` both gradients are taken at the same weights, as the paper prints it.
    """

    name = "cot"
    forwards: Literal[1, 2] = Field(2, description="passes over the network: 2 as its authors run it, 1 as printed")

    @property
    def num_optimizers(self) -> int:
        """One for each step."""
        return 2

    @property
    def many_devices(self) -> bool:
        """Averaging over devices wants one backward pass for each forward pass."""
        return self.forwards == 2

    @property
    def cost(self) -> float:
        """A backward pass is two forward passes."""
        return 2.0 if self.forwards == 2 else 5 / 3

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """The second step moves probabilities away from those of any prior."""
        return None

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Say what the second step does."""
        if stats.num_classes == 2:
            return PartSummary("C is always 0 with 2 classes, so that the second step changes nothing")
        after = "after a pass of its own" if self.forwards == 2 else "from the same pass"
        return PartSummary(f"a second step on each batch raises C / (K - 1), {after}")

    def step(
        self,
        loss_of: Loss,
        forward: Forward,
        images: Tensor,
        target: Tensor,
        optimizers: Sequence[Optimizer],
        backward: Backward,
    ) -> Tensor:
        """Step on the loss, then on the complement entropy."""
        primary, secondary = optimizers
        logits = forward(images)
        loss = loss_of(logits, target)
        if self.forwards == 2:
            primary.zero_grad()
            backward(loss)
            primary.step()
            logits = forward(images)
            secondary.zero_grad()
            backward(-losses.complement_entropy(logits, target, balanced=True))
            secondary.step()
            return loss.detach()
        weights = [weight for group in primary.param_groups for weight in group["params"]]
        gradients = []
        for value in (loss, -losses.complement_entropy(logits, target, balanced=True)):
            primary.zero_grad()
            backward(value, retain_graph=value is loss)
            gradients.append([weight.grad for weight in weights])
        for optimizer, own in zip(optimizers, gradients, strict=True):
            for weight, gradient in zip(weights, own, strict=True):
                weight.grad = gradient
            optimizer.step()
        return loss.detach()
