"""Parts that mix the images of a batch, and their targets with them; and label smoothing."""

import math
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from scipy.special import betainc
from torch import Tensor

from evenhand.training.objectives.part import ImagesPart, Known, Shares, TargetsPart, Told, Tried


class Mixup(ImagesPart):
    """Mixup: every image is blended with another of its batch, and the targets alike."""

    name = "mixup"
    tried: ClassVar[Tried] = ({"alpha": 0.5}, {"alpha": 1})
    takes_features = True
    alpha: float = Field(0.2, ge=0.001, le=1000, description="of the Beta distribution of the blend; 1 is uniform")

    def transform(
        self, images: Tensor, target: Tensor, known: Known, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Blend with one proportion for the whole batch."""
        kept = float(random.beta(self.alpha, self.alpha))
        partner = _partners(images, random)
        mixed = images.lerp(images[partner], 1 - kept)
        return mixed, _blend(target, target[partner], self.target_share(kept, target, target[partner], known), known)

    def target_share(self, kept: float, own: Tensor, other: Tensor, known: Known) -> Tensor:  # noqa: ARG002
        """Return how much of its own target each row keeps, (N,)."""
        return torch.full(own.shape, kept, device=own.device)

    def prior(self, shares: Shares, known: Known) -> Shares | None:  # noqa: ARG002
        """Blended targets leave probabilities that are those of no prior."""
        return None

    def told(self, known: Known) -> Told:  # noqa: ARG002
        """Say how much is blended."""
        return Told(f"images of a batch are mixed, Beta({self.alpha:g}, {self.alpha:g})")


class Remix(Mixup):
    """Remix: mixup whose targets lean to the rarer of the two classes."""

    name = "remix"
    tried = ({"alpha": 0.2},)
    alpha: float = Field(1.0, ge=0.001, le=1000, description="of the Beta distribution of the blend; 1 is uniform")
    kappa: float = Field(3.0, ge=1, description="how many times larger the other class must be for the target to lean")
    tau: float = Field(
        0.5, ge=0, le=1, description="the share of an image below which the larger class loses its target"
    )

    def target_share(self, kept: float, own: Tensor, other: Tensor, known: Known) -> Tensor:
        """Give the whole target to the rarer class where its image has enough of a share."""
        counts = torch.tensor(known.counts, dtype=torch.float64, device=own.device)
        ratio = counts[own] / counts[other].clamp(min=1)
        share = torch.full(own.shape, kept, device=own.device)
        if kept < self.tau:
            share[ratio >= self.kappa] = 0.0
        if 1 - kept < self.tau:
            share[ratio <= 1 / self.kappa] = 1.0
        return share

    def told(self, known: Known) -> Told:
        """Say what is left of the target of an image's own class, in the mean over blends and partners."""
        counts, a, tau = np.array(known.counts, np.float64), self.alpha, self.tau
        ratio = counts[:, None] / np.maximum(counts, 1)
        # Of Beta(a, a): the mean of the share above tau, that of the share below 1 - tau, and the chance of one above.
        above, below = (1 - betainc(a + 1, a, tau)) / 2, betainc(a + 1, a, 1 - tau) / 2
        leaning = below + 1 - betainc(a, a, 1 - tau)
        kept = np.where(ratio >= self.kappa, above, np.where(ratio <= 1 / self.kappa, leaning, 0.5))
        return Told(f"{super().told(known).what}; target left to an image's own class", kept @ known.shares)


class CutMix(ImagesPart):
    """CutMix: a rectangle of every image is replaced by that of another of its batch, and the target in proportion."""

    name = "cutmix"
    tried = ({"alpha": 0.5},)
    alpha: float = Field(1.0, ge=0.001, le=1000, description="of the Beta distribution of the area; 1 is uniform")

    def transform(
        self, images: Tensor, target: Tensor, known: Known, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Cut one rectangle for the whole batch; at a border it is cut off, and the target follows what is left."""
        height, width = images.shape[2:]
        side = math.sqrt(1 - random.beta(self.alpha, self.alpha))
        top, bottom = _span(height, side, random)
        left, right = _span(width, side, random)
        partner = _partners(images, random)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        return mixed, _blend(target, target[partner], torch.full(target.shape, kept, device=target.device), known)

    def prior(self, shares: Shares, known: Known) -> Shares | None:  # noqa: ARG002
        """Blended targets leave probabilities that are those of no prior."""
        return None

    def told(self, known: Known) -> Told:  # noqa: ARG002
        """Say how much is replaced."""
        return Told(f"rectangles of images are exchanged, Beta({self.alpha:g}, {self.alpha:g})")


class LabelSmoothing(TargetsPart):
    """Label smoothing: a little of the target goes to all classes alike."""

    name = "label-smoothing"
    tried = ({"eps": 0.05}, {"eps": 0.2})
    eps: float = Field(0.1, gt=0, lt=1, description="how much of it")

    def soften(self, target: Tensor, known: Known) -> Tensor:
        """Return (1 - eps) target + eps / K."""
        return target * (1 - self.eps) + self.eps / known.num_classes

    def prior(self, shares: Shares, known: Known) -> Shares | None:  # noqa: ARG002
        """Smoothed targets leave probabilities that are those of no prior."""
        return None

    def told(self, known: Known) -> Told:
        """Say what is left for the correct class."""
        return Told(f"target of the correct class {1 - self.eps + self.eps / known.num_classes:.4g}")


def one_hot(target: Tensor, num_classes: int) -> Tensor:
    """Return targets as probabilities (N, K); they may be already."""
    return target if target.is_floating_point() else F.one_hot(target, num_classes).float()


def _partners(images: Tensor, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(random.permutation(len(images))).to(images.device)


def _blend(own: Tensor, other: Tensor, share: Tensor, known: Known) -> Tensor:
    one, two = one_hot(own, known.num_classes), one_hot(other, known.num_classes)
    return two.lerp(one, share[:, None])


def _span(length: int, side: float, random: np.random.Generator) -> tuple[int, int]:
    middle, half = int(random.integers(length)), int(length * side) // 2
    return max(middle - half, 0), min(middle + half, length)
