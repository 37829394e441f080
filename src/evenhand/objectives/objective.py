"""An objective built for a training set, as the training loop uses it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import ShotGroups
from evenhand.objectives.images import one_hot
from evenhand.objectives.losses import ComplementCrossEntropy, CrossEntropy
from evenhand.objectives.part import (
    AugmentationPart,
    ErasingPart,
    HeadPart,
    ImagesPart,
    LogitAdjustment,
    LogitsPart,
    LossPart,
    Part,
    SamplingPart,
    Shares,
    TargetsPart,
    TrainingStats,
    WeightsPart,
)
from evenhand.objectives.posthoc import FittedAdjustment, PostHoc
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.objectives.stages import StagePart
from evenhand.objectives.steps import Backward, SingleStep, StepPart

_Kind = TypeVar("_Kind", bound=Part)

MANY_CLASSES = 10_000
"""From this many classes on, logits are not stored: with their gradients they need more memory than the network."""


class Objective:
    """One loss and any number of parts; :func:`evenhand.objectives.build_objective` makes one.

    Args:
        parts: in canonical order. With a second stage, the parts that correct for the class counts in the first stage
            are left out.
        stats: statistics of the training set.
        device: of the batches.
    """

    def __init__(self, parts: tuple[Part, ...], stats: TrainingStats, device: torch.device | str = "cpu") -> None:
        self.spec = ObjectiveSpec.of(parts)
        """In its canonical spelling."""
        staged = any(part.kind == "stage" for part in parts)
        parts = tuple(part for part in parts if not (staged and part.corrects_prior) or part.kind == "stage")
        self.parts = parts
        self.stats = stats
        self.device = torch.device(device)
        for part in parts:
            part.check_stats(stats)
        self._loss = (self._find(LossPart) or CrossEntropy()).build(stats)
        logits = self._find(LogitsPart)
        adjustment = logits.adjust(stats) if logits else LogitAdjustment()
        self.offset, self.margin = (None if each is None else self._here(each) for each in adjustment)
        self._step = self._find(StepPart) or SingleStep()
        self._weights, self._sampling = self._find(WeightsPart), self._find(SamplingPart)
        self._augmentation, self._erasing = self._find(AugmentationPart), self._find(ErasingPart)
        self._images, self._targets = self._find(ImagesPart), self._find(TargetsPart)
        self._weight_of_epoch: tuple[int, Tensor | None] = (-1, None)

    @property
    def head(self) -> str:
        """The last layer it needs, as `evenhand.models.heads` reads it."""
        head, logits, stage = self._find(HeadPart), self._find(LogitsPart), self._find(StagePart)
        return (stage and stage.layer) or (head and head.head()) or (logits and logits.head()) or "linear"

    @property
    def defers_logits(self) -> bool:
        """Whether the loss is computed without storing logits: it must support that, with `MANY_CLASSES` or more."""
        loss, soft = self._find(ComplementCrossEntropy), self._images or self._targets
        plain = loss is not None and (loss.spare, loss.rivals, loss.on) == (0, "all", "raw") and self.head == "linear"
        return plain and soft is None and isinstance(self._step, SingleStep) and self.stats.num_classes >= MANY_CLASSES

    @property
    def num_optimizers(self) -> int:
        """Number of optimizers, all on one schedule."""
        return self._step.num_optimizers

    @property
    def many_devices(self) -> bool:
        """Whether it can train on several devices."""
        return self._step.many_devices

    def require_features(self) -> None:
        """Refuse parts that need pixels, for training on features."""
        images = None if self._images is None or self._images.takes_features else self._images
        for part in (self._augmentation, self._erasing, images):
            if part is not None:
                instead = "use mixup" if part is images else "leave it out"
                raise EvenhandError(
                    f"{part.name} needs pixels, but --train head trains on features; {instead}, or --train all."
                )

    def order(self, labels: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.int64] | None:
        """Return the rows of an epoch, as indices into the labels; None: each once, shuffled.

        It depends only on seed and epoch, so that all processes compute the same.
        """
        if self._sampling is None:
            return None
        return self._sampling.order(labels, self.stats, epoch, stream(seed, "sampling", epoch))

    def augment(self, seed: int, epoch: int, rank: int) -> Callable[[Tensor, int], Tensor] | None:
        """Return what changes the pixels of a training batch, uint8 (N, C, S, S), given its number; None: nothing does.

        Args:
            seed: of the run.
            epoch: counted from 0.
            rank: the process.
        """
        part = self._augmentation
        if part is None:
            return None
        return lambda pixels, number: part.augment(pixels, stream(seed, part.name, epoch, number, rank))

    def transform(self, images: Tensor, labels: Tensor, seed: int, *where: int) -> tuple[Tensor, Tensor]:
        """Apply augmentation and soft targets to a batch.

        Args:
            images: (N, C, S, S).
            labels: (N,).
            seed: of the run.
            where: epoch, step and process, each with random numbers of its own.

        Returns:
            Images and targets: labels (N,), or probabilities (N, K).
        """
        target = labels
        if self._erasing is not None:
            images = self._erasing.erase(images, stream(seed, self._erasing.name, *where))
        if self._images is not None:
            random = stream(seed, self._images.name, *where)
            images, target = self._images.transform(images, target, self.stats, random)
        if self._targets is not None:
            target = self._targets.soften(one_hot(target, self.stats.num_classes), self.stats)
        return images, target

    def loss(self, logits: Tensor, target: Tensor, epoch: int = 0) -> Tensor:
        """Return the loss of logits (N, K) and targets, (N,) or (N, K), in an epoch, counted from 0."""
        if self._weights is not None and self._weight_of_epoch[0] != epoch:
            weights = self._weights.weights(self.stats, epoch)
            self._weight_of_epoch = (epoch, None if weights is None else self._here(weights))
        return self._loss(logits, target, weight=self._weight_of_epoch[1], offset=self.offset, margin=self.margin)

    def step(
        self,
        forward: Callable[[Tensor], Tensor],
        images: Tensor,
        target: Tensor,
        optimizers: Sequence[Optimizer],
        backward: Backward,
        *,
        epoch: int = 0,
    ) -> Tensor:
        """Update the weights from one batch; return its loss, detached."""
        loss = partial(self.loss, epoch=epoch)
        return self._step.step(loss, lambda: forward(images), target, optimizers, backward)

    def prior(self) -> Shares | None:
        """Return the class frequencies that the trained network's probabilities hold for, (K,); None: there are none.

        For cross entropy these are the training frequencies; other parts change them.
        """
        shares: Shares | None = self.stats.shares
        for part in self.parts:
            shares = None if shares is None else part.prior(shares, self.stats)
        return shares

    def fit_posthoc(self, validation: Predictions | None) -> FittedAdjustment | None:
        """Return the post-hoc adjustment of the trained network; None: the objective has none.

        Args:
            validation: its predictions of the validation images, if there are any.
        """
        part = self._find(PostHoc)
        return None if part is None else part.fit(self.stats, validation)

    def describe(self, groups: ShotGroups) -> list[dict[str, Any]]:
        """Describe the effect of each part, for a summary: in words, and as a mean per shot group."""
        lines = []
        for part in self.parts:
            summary = part.describe(self.stats)
            if summary is None:
                continue
            line: dict[str, Any] = {"part": part.spec(), "what": summary.what}
            if summary.values is not None:
                named = {name: list(getattr(groups, name)) for name in ("many", "medium", "few")}
                line |= {name: float(summary.values[classes].mean()) for name, classes in named.items() if classes}
            lines.append(line)
        return lines

    @property
    def first_epoch(self) -> int:
        """The first epoch in which all parts have an effect, counted from 1."""
        return max((part.first_epoch(self.stats) for part in self.parts), default=1)

    def idle_parts(self, selected: int) -> list[str]:
        """Return a failure for each part that starts after the selected epoch, counted from 1."""
        return [
            f"{part.name} starts at epoch {part.first_epoch(self.stats)}, but the weights are those of epoch "
            f"{selected}, so {part.name} had no effect."
            for part in self.parts
            if part.first_epoch(self.stats) > selected
        ]

    def _here(self, values: Tensor) -> Tensor:
        return values.to(self.device, torch.float32)

    def _find(self, kind: type[_Kind]) -> _Kind | None:
        return next((part for part in self.parts if isinstance(part, kind)), None)


def build_objective(
    spec: str,
    *,
    counts: Sequence[int],
    epochs: int = 1,
    device: torch.device | str = "cpu",
    until: int | None = None,
    class_weights: Sequence[float] | None = None,
) -> Objective:
    """Build an objective for a training set.

    Args:
        spec: one loss and any number of parts joined by `+`; :func:`list_objectives` names them.
        counts: training images per class, without validation images.
        epochs: number of training epochs.
        device: of the batches.
        until: leave out parts that start after this epoch, counted from 1: its weights were trained without them.
        class_weights: a weight per class, (K,), for `weights:file=...`.

    Raises:
        EvenhandError: there is no such objective, or these data do not allow it.

    Example:
        >>> from evenhand.objectives import build_objective
        >>> build_objective("cot", counts=[90, 10]).num_optimizers
        2
        >>> build_objective("balanced-softmax+cce", counts=[90, 10]).offset
        tensor([-0.1054, -2.3026])
    """
    given = None if class_weights is None else tuple(float(weight) for weight in class_weights)
    stats = TrainingStats(tuple(int(count) for count in counts), epochs, given)
    parts = ObjectiveSpec(spec).parts
    if until is not None:
        parts = tuple(part for part in parts if part.first_epoch(stats) <= until)
    return Objective(parts, stats, device)
