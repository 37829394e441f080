"""Objectives: how one training step is taken. A new one is a class or a loss here and a line in `OBJECTIVES`."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import parse
from evenhand.losses.functional import complement_cross_entropy, complement_entropy, focal_loss

Forward = Callable[[Tensor], Tensor]


class Backward(Protocol):
    """How gradients are computed: scaled, averaged or neither, as precision and devices ask for."""

    def __call__(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradient of a loss to the weights' own."""


class Objective(Protocol):
    """How one step is taken."""

    @property
    def num_optimizers(self) -> int:
        """How many optimizers it steps, all on one schedule."""

    @property
    def many_devices(self) -> bool:
        """Whether gradients can be averaged over devices in the usual way."""

    def step(
        self, forward: Forward, images: Tensor, labels: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Update the weights from one batch, and return its loss, detached."""


@dataclass(frozen=True)
class SingleLoss:
    """Training with one loss (algorithm 2 of the paper, and everybody's loop)."""

    loss: Callable[[Tensor, Tensor], Tensor]
    num_optimizers: int = 1
    many_devices: bool = True

    def step(
        self, forward: Forward, images: Tensor, labels: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Step on the loss."""
        loss = self.loss(forward(images), labels)
        optimizers[0].zero_grad()
        backward(loss)
        optimizers[0].step()
        return loss.detach()


@dataclass(frozen=True)
class ComplementObjectiveTraining:
    """COT (algorithm 1): a step on cross entropy, then one that raises the balanced complement entropy.

    With `forwards=2` the second step sees the weights that the first one made, as COT's authors run it; with
    `forwards=1` both gradients are taken at the same weights, as the paper prints it.
    """

    forwards: int = 2
    num_optimizers: int = 2

    @property
    def many_devices(self) -> bool:
        """Averaging over devices wants one backward pass for each forward pass."""
        return self.forwards == 2

    def step(
        self, forward: Forward, images: Tensor, labels: Tensor, optimizers: Sequence[Optimizer], backward: Backward
    ) -> Tensor:
        """Step on the cross entropy, then on the complement entropy."""
        primary, secondary = optimizers
        logits = forward(images)
        loss = F.cross_entropy(logits, labels)
        if self.forwards == 2:
            primary.zero_grad()
            backward(loss)
            primary.step()
            logits = forward(images)
            secondary.zero_grad()
            backward(-complement_entropy(logits, labels, balanced=True))
            secondary.step()
            return loss.detach()
        weights = [weight for group in primary.param_groups for weight in group["params"]]
        gradients = []
        for value in (loss, -complement_entropy(logits, labels, balanced=True)):
            primary.zero_grad()
            backward(value, retain_graph=value is loss)
            gradients.append([weight.grad for weight in weights])
        for optimizer, own in zip(optimizers, gradients, strict=True):
            for weight, gradient in zip(weights, own, strict=True):
                weight.grad = gradient
            optimizer.step()
        return loss.detach()


Options = Mapping[str, str]
Builder = Callable[[Options, int], Objective]


def _ce(_: Options, __: int) -> Objective:
    return SingleLoss(F.cross_entropy)


def _focal(options: Options, _: int) -> Objective:
    gamma = _number(options.get("gamma", "2"), "gamma of focal", least=0)
    alpha = _number(options["alpha"], "alpha of focal", least=0) if "alpha" in options else None
    return SingleLoss(lambda logits, labels: focal_loss(logits, labels, gamma=gamma, alpha=alpha))


def _cce(options: Options, num_classes: int) -> Objective:
    text = options.get("gamma", "-1")
    gamma = (num_classes - 1) / num_classes if text == "released" else _number(text, "gamma of cce")
    return SingleLoss(lambda logits, labels: complement_cross_entropy(logits, labels, gamma=gamma))


def _cot(options: Options, _: int) -> Objective:
    text = options.get("forwards", "2")
    if text not in ("1", "2"):
        raise EvenhandError(f"The forwards of cot must be 1 or 2, got {text!r}.")
    return ComplementObjectiveTraining(int(text))


# Name -> how it is built, and the options it takes.
OBJECTIVES: dict[str, tuple[Builder, tuple[str, ...]]] = {
    "ce": (_ce, ()),
    "erm": (_ce, ()),
    "focal": (_focal, ("gamma", "alpha")),
    "cce": (_cce, ("gamma",)),
    "cot": (_cot, ("forwards",)),
}


def build_objective(spec: str, num_classes: int) -> Objective:
    """Read an objective from its spec.

    Args:
        spec: `ce` (or `erm`), `focal`, `focal:gamma=2:alpha=0.25`, `cce`, `cce:gamma=-2`, `cce:gamma=released` (what
            the paper's released code computes, +(K-1)/K), `cot` or `cot:forwards=1`.
        num_classes: K.

    Example:
        >>> from evenhand.training.objectives import build_objective
        >>> build_objective("cot", num_classes=10).num_optimizers
        2
    """
    part, *others = parse(spec)
    if others:
        raise EvenhandError(f"Cannot train with {spec!r}: objectives cannot be joined by + yet.")
    if part.name not in OBJECTIVES:
        near = difflib.get_close_matches(part.name, OBJECTIVES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(OBJECTIVES)}."
        raise EvenhandError(f"There is no objective {part.name!r}; {hint}")
    builder, known = OBJECTIVES[part.name]
    unknown = [key for key in part.options if key not in known]
    if unknown or part.value is not None:
        takes = f"takes {' and '.join(known)}" if known else "takes no options"
        raise EvenhandError(f"Cannot train with {spec!r}: {part.name} {takes}.")
    return builder(part.options, num_classes)


def _number(text: str, what: str, least: float = -float("inf")) -> float:
    try:
        value = float(text)
    except ValueError:
        raise EvenhandError(f"The {what} must be a number, got {text!r}.") from None
    if not least <= value < float("inf") or value == -float("inf"):
        raise EvenhandError(f"The {what} must be a finite number{f' of {least:g} or more' * (least == 0)}, got {text}.")
    return value
