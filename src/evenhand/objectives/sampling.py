"""Sampling of training images: rare classes more often, while an epoch keeps its length."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.objectives.part import PartSummary, SamplingPart, Shares, TrainingStats, normalised


class Sampling(SamplingPart):
    """Oversampling of rare classes; an epoch keeps its length."""

    name = "sampling"
    tuning_grid = ({"by": "sqrt"}, {"by": "progressive"})
    by: Literal["class", "sqrt", "progressive"] = Field(
        "class",
        description="class frequencies: equal, by the root of the counts, or from the original to equal ones",
    )

    def rates(self, stats: TrainingStats, epoch: int) -> Shares:
        """Return the class frequencies in an epoch; a class without images is never sampled."""
        counts = np.array(stats.counts, np.float64)
        equal = normalised((counts > 0).astype(np.float64))
        if self.by == "class":
            return equal
        if self.by == "sqrt":
            return normalised(np.sqrt(counts))
        done = epoch / max(stats.epochs - 1, 1)
        return (1 - done) * stats.shares + done * equal

    def order(
        self, labels: NDArray[np.int64], stats: TrainingStats, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw a class for each position of the epoch, then fill in the rows of each class in shuffled rounds.

        No row of a class is repeated before all its rows were sampled.
        """
        drawn = random.choice(stats.num_classes, size=len(labels), p=self.rates(stats, epoch))
        order = np.empty(len(labels), np.int64)
        for k in np.unique(drawn):
            places, rows = np.flatnonzero(drawn == k), np.flatnonzero(labels == k)
            rounds = -(-len(places) // len(rows))
            order[places] = np.concatenate([random.permutation(rows) for _ in range(rounds)])[: len(places)]
        return order

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:
        """Return the sampled frequencies; None where they change with the epoch."""
        if self.by == "progressive":
            return None
        return normalised(shares * self.rates(stats, 0) / np.maximum(stats.shares, np.finfo(float).tiny))

    def describe(self, stats: TrainingStats) -> PartSummary:
        """Describe how often an image of each class is sampled."""
        when = " in the last epoch" if self.by == "progressive" else ""
        times = sum(stats.counts) * self.rates(stats, stats.epochs - 1) / np.maximum(np.array(stats.counts), 1)
        return PartSummary(f"times an image is sampled per epoch{when}", times)
