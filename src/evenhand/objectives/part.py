"""What a part of an objective is: its settings, and what each kind of part may change.

A part is one class: its fields are its settings, from which defaults, checks, help and the canonical spelling follow;
its methods say what it does. Defining the class registers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor

KINDS = {
    "logits": "an offset or a margin of the logits, which the loss applies to the cross entropy",
    "loss": "what a row costs",
    "step": "how gradients become a step",
    "head": "the last layer",
    "weights": "a weight for each class, by epoch",
    "sampling": "which rows an epoch shows",
    "images": "images and targets of a batch",
    "targets": "targets of a batch",
    "stage": "a second stage, from the weights of a finished run",
    "posthoc": "what is added to the logits of a trained network",
}
"""Every kind of part and what it changes, in the order in which an objective is spelled; it has one of a kind."""

PARTS: dict[str, type[Part]] = {}
"""Every part by its name."""

TuningGrid = tuple[dict[str, float | str], ...]
"""Settings of a part, by name."""

Shares = NDArray[np.float64]
"""(K,): of each class, summing to 1."""


def normalised(values: NDArray[np.float64]) -> Shares:
    """Bring values to a sum of 1."""
    return np.asarray(values / values.sum(), np.float64)


@dataclass(frozen=True)
class TrainingStats:
    """What is known before training; an objective is built from this and nothing else."""

    counts: tuple[int, ...]
    """Of each class, the rows really trained on."""
    epochs: int = 1

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def shares(self) -> Shares:
        """Of each class among the rows trained on, (K,)."""
        return normalised(np.array(self.counts, np.float64))


class PartSummary(NamedTuple):
    """How a part shows that it is active."""

    what: str
    """In words, with its unit."""
    values: NDArray[np.float64] | None = None
    """(K,), one for each class, where there is such a number."""


class Part(BaseModel):
    """One part of an objective. A subclass with a `name` is registered; the first line of its docstring is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    kind: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    corrects_prior: ClassVar[bool] = False
    """Whether it makes up for the class counts; an objective does so once."""
    tuning_grid: ClassVar[TuningGrid] = ()
    """Settings that `compare --tune` tries beside the defaults; few, since each is trained with every seed."""

    tuned_as: ClassVar[str | None] = None
    """The part of which this is a case: `compare --tune` tries the settings of that one."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "name" in cls.__dict__:
            PARTS[cls.name] = cls

    @property
    def cost(self) -> float:
        """How long a step takes beside one of cross entropy, by operation count."""
        return 1.0

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse other parts of the same objective that do not go with this one."""

    def check_stats(self, stats: TrainingStats) -> None:
        """Refuse data that do not go with this part."""

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """Return the class shares for which probabilities are right after training, given those without this part.

        None: there are no such shares.
        """
        return shares

    def first_epoch(self, stats: TrainingStats) -> int:  # noqa: ARG002
        """Return the first epoch in which it does anything, counted from 1."""
        return 1

    def describe(self, stats: TrainingStats) -> PartSummary | None:  # noqa: ARG002
        """Say what the part does to each class."""
        return None

    def simplified(self) -> Part:
        """Return the simplified part that does the same with every data: a setting may leave nothing of this one."""
        return self

    def spec(self) -> str:
        """Return the one spelling: the name, and in their order the settings that are not at their defaults."""
        fields = sorted(type(self).model_fields.items())
        told = [f"{key}={spelled(getattr(self, key))}" for key, field in fields if getattr(self, key) != field.default]
        return ":".join([self.name, *told])


def spelled(value: object) -> str:
    """Return the one spelling of a setting."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(float(value) + 0.0).removesuffix(".0")  # -0 becomes 0
    return str(value)


class LossFunction(Protocol):
    """What a row costs, in the mean over a batch."""

    def __call__(
        self, logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
    ) -> Tensor:
        """Return the loss.

        Args:
            logits: (N, K).
            target: class indices (N,) or probabilities (N, K).
            weight: of each class, (K,).
            offset: what the cross entropy adds to the logits, (K,).
            margin: what the cross entropy takes off the logit of a class where it is the correct one, (K,).
        """


class LossPart(Part):
    """A loss."""

    kind = "loss"

    def build(self, stats: TrainingStats) -> LossFunction:
        """Return the loss for these data."""
        raise NotImplementedError


class LogitAdjustment(NamedTuple):
    """What a logits part hands to the loss."""

    offset: Tensor | None = None
    margin: Tensor | None = None


class LogitsPart(Part):
    """An offset or a margin of the logits in training."""

    kind = "logits"

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return it, from the counts."""
        raise NotImplementedError

    def head(self) -> str | None:
        """Return the last layer that this part needs; None: any."""
        return None


class HeadPart(Part):
    """Another last layer."""

    kind = "head"

    def head(self) -> str:
        """Return its spec, as `evenhand.models.heads` reads it."""
        return self.spec()


class WeightsPart(Part):
    """A weight for each class."""

    kind = "weights"
    corrects_prior = True

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:
        """Return the weights in an epoch, counted from 0, (K,); None: all equal."""
        raise NotImplementedError


class SamplingPart(Part):
    """Which rows an epoch shows."""

    kind = "sampling"
    corrects_prior = True

    def rates(self, stats: TrainingStats, epoch: int) -> Shares:
        """Return the share of each class among the rows of an epoch, counted from 0."""
        raise NotImplementedError

    def order(
        self, labels: NDArray[np.int64], stats: TrainingStats, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return which rows an epoch shows and in which order: as many as there are labels, each a position in them."""
        raise NotImplementedError


class ImagesPart(Part):
    """A change of the images of a batch, and of their targets with them."""

    kind = "images"
    takes_features: ClassVar[bool] = False
    """Whether features (N, F) can be changed like images."""

    def transform(
        self, images: Tensor, target: Tensor, stats: TrainingStats, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return new images (N, C, S, S) and targets, probabilities (N, K), from images and labels (N,)."""
        raise NotImplementedError


class TargetsPart(Part):
    """A change of the targets of a batch."""

    kind = "targets"

    def soften(self, target: Tensor, stats: TrainingStats) -> Tensor:
        """Return new targets (N, K), from probabilities (N, K)."""
        raise NotImplementedError
