"""Which rows an epoch shows: rare classes more often, while an epoch keeps its length."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from evenhand.training.objectives.part import Known, SamplingPart, Shares, Told, normalised


class Sampling(SamplingPart):
    """Sampling that shows rare classes more often; an epoch keeps its length."""

    name = "sampling"
    tried = ({"by": "sqrt"}, {"by": "progressive"})
    by: Literal["class", "sqrt", "progressive"] = Field(
        "class",
        description="all classes equally often, by the root of their counts, or from as they are to equally often",
    )

    def rates(self, known: Known, epoch: int) -> Shares:
        """Return the share of each class in an epoch; a class without rows is never shown."""
        counts = np.array(known.counts, np.float64)
        equal = normalised((counts > 0).astype(np.float64))
        if self.by == "class":
            return equal
        if self.by == "sqrt":
            return normalised(np.sqrt(counts))
        done = epoch / max(known.epochs - 1, 1)
        return (1 - done) * known.shares + done * equal

    def order(
        self, labels: NDArray[np.int64], known: Known, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw a class for each place of the epoch, then go through the rows of each class in shuffled rounds.

        So no row of a class comes again before all have come.
        """
        drawn = random.choice(known.num_classes, size=len(labels), p=self.rates(known, epoch))
        order = np.empty(len(labels), np.int64)
        for k in np.unique(drawn):
            places, rows = np.flatnonzero(drawn == k), np.flatnonzero(labels == k)
            rounds = -(-len(places) // len(rows))
            order[places] = np.concatenate([random.permutation(rows) for _ in range(rounds)])[: len(places)]
        return order

    def prior(self, shares: Shares, known: Known) -> Shares | None:
        """Return the shares that were shown; there are none where they moved."""
        if self.by == "progressive":
            return None
        return normalised(shares * self.rates(known, 0) / np.maximum(known.shares, np.finfo(float).tiny))

    def told(self, known: Known) -> Told:
        """Say how often each class is shown."""
        when = " in the last epoch" if self.by == "progressive" else ""
        rows = sum(known.counts)
        times = rows * self.rates(known, known.epochs - 1) / np.maximum(np.array(known.counts), 1)
        return Told(f"how often a row is shown per epoch{when}", times)
