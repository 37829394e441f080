"""Parts that mix the images and targets of a batch, and label smoothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from evenhand.objectives.part import ImagesPart, PartSummary, TargetsPart, TrainingStats, TuningGrid

if TYPE_CHECKING:
    from torch import Tensor


class Mixup(ImagesPart):
    """Mixup: every image is blended with another one of its batch, and so are the targets."""

    name = "mixup"
    tuning_grid: ClassVar[TuningGrid] = ({"alpha": 0.5}, {"alpha": 1})
    takes_features = True
    implies_prior = False
    alpha: float = Field(0.2, ge=0.001, le=1000, description="Beta distribution of the blend; 1 is uniform")

    def transform(
        self, images: Tensor, target: Tensor, stats: TrainingStats, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Blend, with one proportion for the whole batch."""
        kept = float(random.beta(self.alpha, self.alpha))
        partner = _partners(images, random)
        mixed = images.lerp(images[partner], 1 - kept)
        return mixed, _blend(target, target[partner], self.target_weight(kept, target, target[partner], stats), stats)

    def target_weight(self, kept: float, own: Tensor, other: Tensor, stats: TrainingStats) -> Tensor:  # noqa: ARG002
        """Return the weight of each image's own target, (N,)."""
        return _full_like(own, kept)

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the blend."""
        return PartSummary(f"images are mixed within a batch, Beta({self.alpha:g}, {self.alpha:g})")


class Remix(Mixup):
    """Remix: mixup whose targets favour the rarer of the two classes."""

    name = "remix"
    tuning_grid = ({"alpha": 0.2},)
    alpha: float = Field(1.0, ge=0.001, le=1000, description="Beta distribution of the blend; 1 is uniform")
    kappa: float = Field(3.0, ge=1, description="ratio of the class counts from which the rarer class is favoured")
    tau: float = Field(0.5, ge=0, le=1, description="weight of an image below which the larger class loses its target")

    def target_weight(self, kept: float, own: Tensor, other: Tensor, stats: TrainingStats) -> Tensor:
        """Give the whole target to the rarer class where its image has enough weight."""
        import torch

        counts = torch.tensor(stats.counts, dtype=torch.float64, device=own.device)
        ratio = counts[own] / counts[other].clamp(min=1)
        weight = _full_like(own, kept)
        if kept < self.tau:
            weight[ratio >= self.kappa] = 0.0
        if 1 - kept < self.tau:
            weight[ratio <= 1 / self.kappa] = 1.0
        return weight

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the mean weight of an image's own class, over blends and partners."""
        from scipy.special import betainc

        counts, a, tau = np.array(stats.counts, np.float64), self.alpha, self.tau
        ratio = counts[:, None] / np.maximum(counts, 1)
        # Of Beta(a, a): E[x; x > tau], E[x; x < 1 - tau], and P(x > 1 - tau) added to the latter.
        above, below = (1 - betainc(a + 1, a, tau)) / 2, betainc(a + 1, a, 1 - tau) / 2
        favoured = below + 1 - betainc(a, a, 1 - tau)
        kept = np.where(ratio >= self.kappa, above, np.where(ratio <= 1 / self.kappa, favoured, 0.5))
        return PartSummary(f"{super().describe(stats).what}; mean target of an image's own class", kept @ stats.shares)


class CutMix(ImagesPart):
    """CutMix: a rectangle of every image is replaced by that of another one, and the target in proportion."""

    name = "cutmix"
    implies_prior = False
    tuning_grid = ({"alpha": 0.5},)
    alpha: float = Field(1.0, ge=0.001, le=1000, description="Beta distribution of the area; 1 is uniform")

    def transform(
        self, images: Tensor, target: Tensor, stats: TrainingStats, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Replace one rectangle for the whole batch; it is clipped at the border, and the target follows its area."""
        height, width = images.shape[2:]
        side = math.sqrt(1 - random.beta(self.alpha, self.alpha))
        top, bottom = _span(height, side, random)
        left, right = _span(width, side, random)
        partner = _partners(images, random)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        return mixed, _blend(target, target[partner], _full_like(target, kept), stats)

    def describe(self, stats: TrainingStats) -> PartSummary:  # noqa: ARG002
        """Describe the rectangles."""
        return PartSummary(f"rectangles of images are exchanged, Beta({self.alpha:g}, {self.alpha:g})")


class LabelSmoothing(TargetsPart):
    """Label smoothing: a fraction of the target is spread evenly over all classes."""

    name = "label-smoothing"
    tuning_grid = ({"eps": 0.05}, {"eps": 0.2})
    implies_prior = False
    eps: float = Field(0.1, gt=0, lt=1, description="that fraction")

    def soften(self, target: Tensor, stats: TrainingStats) -> Tensor:
        """Return (1 - eps) target + eps / K."""
        return target * (1 - self.eps) + self.eps / stats.num_classes

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe the target of the correct class."""
        return PartSummary(f"target of the correct class {1 - self.eps + self.eps / stats.num_classes:.4g}")


def one_hot(target: Tensor, num_classes: int) -> Tensor:
    """Return targets as probabilities (N, K), from labels (N,) or probabilities."""
    import torch.nn.functional as F

    return target if target.is_floating_point() else F.one_hot(target, num_classes).float()


def _partners(images: Tensor, random: np.random.Generator) -> Tensor:
    import torch

    return torch.from_numpy(random.permutation(len(images))).to(images.device)


def _full_like(target: Tensor, value: float) -> Tensor:
    import torch

    return torch.full(target.shape, value, device=target.device)


def _blend(own: Tensor, other: Tensor, weight: Tensor, stats: TrainingStats) -> Tensor:
    one, two = one_hot(own, stats.num_classes), one_hot(other, stats.num_classes)
    return two.lerp(one, weight[:, None])


def _span(length: int, side: float, random: np.random.Generator) -> tuple[int, int]:
    middle, half = int(random.integers(length)), int(length * side) // 2
    return max(middle - half, 0), min(middle + half, length)
