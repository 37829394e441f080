"""The parts of an objective: their settings, and what each kind of part changes.

A part is one class. Its fields are its settings, with defaults, checks and help; its methods do the work. Defining the
class registers it, so a new part is one class in the file of its kind.
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
    "logits": "logit adjustment or margins in training, from the class counts",
    "loss": "loss function",
    "step": "optimization step",
    "head": "last layer",
    "weights": "class weights",
    "sampling": "sampling of training images",
    "augmentation": "augmentation of each training image, before normalisation",
    "erasing": "augmentation that erases parts of images",
    "images": "augmentation that mixes images and targets",
    "targets": "soft targets",
    "stage": "second training stage, from a finished run",
    "posthoc": "post-hoc adjustment of the logits",
}
"""Every kind of part, in the order of the canonical spelling; an objective has at most one part of each kind."""

PARTS: dict[str, type[Part]] = {}
"""Every part by its name."""

TuningGrid = tuple[dict[str, float | str], ...]
"""Settings of a part, by name."""

Shares = NDArray[np.float64]
"""(K,): class frequencies with a sum of 1."""


def normalised(values: NDArray[np.float64]) -> Shares:
    """Return values divided by their sum."""
    return np.asarray(values / values.sum(), np.float64)


@dataclass(frozen=True)
class TrainingStats:
    """Statistics of the training set; an objective is built from these and nothing else."""

    counts: tuple[int, ...]
    """Training images per class, without validation images."""
    epochs: int = 1
    class_weights: tuple[float, ...] | None = None
    """A weight per class, in any unit, where a file of them is given."""

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def shares(self) -> Shares:
        """Class frequencies of the training images, (K,)."""
        return normalised(np.array(self.counts, np.float64))


class PartSummary(NamedTuple):
    """The effect of a part, for logs and summaries."""

    what: str
    """In words, with the unit of the values."""
    values: NDArray[np.float64] | None = None
    """(K,): one value per class, for parts that treat classes differently."""


class Part(BaseModel):
    """One part of an objective. A subclass with a `name` is registered; the first line of its docstring is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: ClassVar[str]
    kind: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    corrects_prior: ClassVar[bool] = False
    """Whether it corrects for the class counts; an objective does so once."""
    stacks_on_logits: ClassVar[bool] = False
    """Whether it may correct for the class counts on top of a logits part that does, as deferred weights do."""
    has_margin: ClassVar[bool] = False
    """Whether it subtracts a margin from the logit of the correct class."""
    implies_prior: ClassVar[bool] = True
    """Whether the trained network's probabilities hold for some class frequencies, see `prior`."""
    tuning_grid: ClassVar[TuningGrid] = ()
    """Settings that `compare --tune` tries next to the defaults; few, since each is trained with every seed."""
    tuned_as: ClassVar[str | None] = None
    """The part of which this is a special case: `compare --tune` tries its settings instead."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        if "name" in cls.__dict__:
            PARTS[cls.name] = cls

    @property
    def cost(self) -> float:
        """Training time relative to plain cross entropy, by operation count."""
        return 1.0

    def check(self, parts: Sequence[Part]) -> None:
        """Refuse other parts of the same objective that cannot be combined with this one."""

    def check_stats(self, stats: TrainingStats) -> None:
        """Refuse training data that this part cannot handle."""

    def prior(self, shares: Shares, stats: TrainingStats) -> Shares | None:  # noqa: ARG002
        """Return the class frequencies that the trained network's probabilities hold for.

        Args:
            shares: those without this part, (K,).
            stats: of the training set.

        Returns:
            Those with this part, (K,); None: there are none.
        """
        return shares if self.implies_prior else None

    def first_epoch(self, stats: TrainingStats) -> int:  # noqa: ARG002
        """Return the first epoch in which it has an effect, counted from 1."""
        return 1

    def describe(self, stats: TrainingStats) -> PartSummary | None:  # noqa: ARG002
        """Describe the effect of the part."""
        return None

    def simplified(self) -> Part:
        """Return a simpler part with the same effect: some settings turn this part off."""
        return self

    def spec(self) -> str:
        """Return the canonical spelling: the name, and the settings that differ from their defaults, by name."""
        return ":".join([self.name, *(f"{key}={spelled(value)}" for key, value in self.changed_settings().items())])

    def changed_settings(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, by name."""
        fields = sorted(type(self).model_fields.items())
        return {key: getattr(self, key) for key, field in fields if getattr(self, key) != field.default}


def spelled(value: object) -> str:
    """Return the canonical spelling of a setting."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(float(value) + 0.0).removesuffix(".0")  # -0 becomes 0
    return str(value)


class LossFunction(Protocol):
    """A loss, averaged over a batch."""

    def __call__(
        self, logits: Tensor, target: Tensor, *, weight: Tensor | None, offset: Tensor | None, margin: Tensor | None
    ) -> Tensor:
        """Return the loss.

        Args:
            logits: (N, K).
            target: class indices (N,) or probabilities (N, K).
            weight: class weights, (K,).
            offset: added to the logits in the cross entropy, (K,).
            margin: subtracted from the logit of the correct class in the cross entropy, (K,).
        """


class LossPart(Part):
    """A loss."""

    kind = "loss"

    def build(self, stats: TrainingStats) -> LossFunction:
        """Return the loss for these data."""
        raise NotImplementedError


class LogitAdjustment(NamedTuple):
    """What a logits part passes to the loss: an offset or a margin per class, (K,)."""

    offset: Tensor | None = None
    margin: Tensor | None = None


class LogitsPart(Part):
    """An offset or a margin of the logits in training, from the class counts."""

    kind = "logits"

    def adjust(self, stats: TrainingStats) -> LogitAdjustment:
        """Return the offset or the margin."""
        raise NotImplementedError

    def head(self) -> str | None:
        """Return the last layer that this part needs, as `evenhand.models.heads` reads it; None: any."""
        return None


class HeadPart(Part):
    """Another last layer."""

    kind = "head"

    def head(self) -> str:
        """Return its spec, as `evenhand.models.heads` reads it."""
        return self.spec()


class WeightsPart(Part):
    """Class weights."""

    kind = "weights"
    corrects_prior = True

    def weights(self, stats: TrainingStats, epoch: int) -> Tensor | None:
        """Return the weights in an epoch, counted from 0, (K,); None: all equal."""
        raise NotImplementedError


class SamplingPart(Part):
    """Sampling of the training images of an epoch."""

    kind = "sampling"
    corrects_prior = True

    def rates(self, stats: TrainingStats, epoch: int) -> Shares:
        """Return the class frequencies in an epoch, counted from 0, (K,)."""
        raise NotImplementedError

    def order(
        self, labels: NDArray[np.int64], stats: TrainingStats, epoch: int, random: np.random.Generator
    ) -> NDArray[np.int64]:
        """Return the rows of an epoch in order: as many as labels, each an index into them."""
        raise NotImplementedError


class AugmentationPart(Part):
    """Random operations on each image; the target stays as it is."""

    kind = "augmentation"

    def transformation(self) -> Any:
        """Return a transform of torchvision: it takes one image, uint8 (C, S, S), and draws by torch's generator."""
        raise NotImplementedError

    def augment(self, pixels: Tensor, random: np.random.Generator) -> Tensor:
        """Return new pixels of a batch, uint8 (N, C, S, S).

        One image at a time: on a whole batch, torchvision draws the same operations for all of its images.
        """
        import torch

        transform = self.transformation()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(random.integers(2**63)))
            return torch.stack([transform(image) for image in pixels])


class ErasingPart(Part):
    """Erased rectangles of images; the target stays as it is."""

    kind = "erasing"

    def erase(self, images: Tensor, random: np.random.Generator) -> Tensor:
        """Return new images of a batch, normalised, (N, C, S, S)."""
        raise NotImplementedError


class ImagesPart(Part):
    """Augmentation that mixes the images of a batch, and their targets."""

    kind = "images"
    takes_features: ClassVar[bool] = False
    """Whether it also takes features (N, F) instead of images."""

    def transform(
        self, images: Tensor, target: Tensor, stats: TrainingStats, random: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return new images (N, C, S, S) and targets, probabilities (N, K), from images and labels (N,)."""
        raise NotImplementedError


class TargetsPart(Part):
    """Soft targets."""

    kind = "targets"

    def soften(self, target: Tensor, stats: TrainingStats) -> Tensor:
        """Return new targets (N, K), from probabilities (N, K)."""
        raise NotImplementedError
