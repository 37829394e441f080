"""The sections of a config: every setting with its help.

The first line of a setting's docstring is the help of its option on the command line (`evenhand.cli.options`).
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.data.imbalance import Imbalance

LARGEST_INTEGER = 2**63 - 1
NonEmptyText = Annotated[str, Field(min_length=1, max_length=4096)]


class Section(BaseModel):
    """Settings that belong together; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class DataConfig(Section):
    """Which images, and how they are split and made imbalanced."""

    source: NonEmptyText = "digits"
    """Data set, folder, .csv, .npz, .parquet or hf:NAME.

    `evenhand.list_datasets()` names the data sets; digits is embedded."""
    root: NonEmptyText | None = None
    """Folder of the data sets.

    null: $EVENHAND_DATA, else the user's cache folder."""
    imbalance: NonEmptyText = "none"
    """Subsample training images: exp:RATIO or step:RATIO."""
    class_order: NonEmptyText = "identity"
    """Class order of --imbalance: identity, shuffle, names.

    From the class that keeps most images to the one that keeps fewest; names are joined by commas."""
    fraction: float = Field(1.0, gt=0, le=1)
    """Fraction of the images that the largest class keeps; the imbalance ratio does not change."""
    image_size: int | None = Field(None, ge=1, le=4096)
    """Resize the shorter side to this many pixels.

    null: the native size of small square images, else 64."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Fraction of all images for the test set, unless the source has one."""
    val_fraction: float = Field(0.1, ge=0, lt=1)
    """Fraction of the training images for validation."""
    calibration_fraction: float = Field(0.0, ge=0, le=0.5)
    """Fraction of the training images set aside for predict --coverage.

    Also for --min-precision. Of each class at least 9, and none of a class of fewer than 27."""
    split_seed: int = Field(0, ge=0, le=LARGEST_INTEGER)
    """Random seed of the test set, which does not depend on the run's seed unless it rotates."""
    rotate: bool = False
    """Test every seed on the next images in turn, unless the source has a test set; compare sets it."""
    drop_small: bool = False
    """Leave out classes too small to split."""
    skip_bad: bool = False
    """Leave out unreadable images."""
    allow_outside: bool = False
    """Follow links that lead outside the source."""

    @field_validator("imbalance")
    @classmethod
    def _readable(cls, text: str) -> str:
        return str(Imbalance.parse(text))


class ModelConfig(Section):
    """Which network."""

    name: NonEmptyText = "resnet8"
    """Network: resnet8, lite0, ... or timm:NAME.

    Also resnet32 and any network of torchvision."""
    stem: Literal["auto", "small", "imagenet"] = "auto"
    """First layers: auto (by image size), small, imagenet."""
    pretrained: bool = False
    """Start from ImageNet weights."""


class OptimizerConfig(Section):
    """Stochastic gradient descent."""

    lr: float = Field(0.1, gt=0, le=1e4)
    """Learning rate after the warm-up."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum."""
    weight_decay: float = Field(5e-4, ge=0, le=100)
    """Weight decay."""
    nesterov: bool = False
    """Use Nesterov momentum."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Learning rate of the first layer relative to that of the last; those between are geometric."""

    @model_validator(mode="after")
    def _possible(self) -> "OptimizerConfig":
        if self.nesterov and self.momentum == 0:
            raise EvenhandError("optimizer.nesterov needs a momentum above 0, got 0; set optimizer.nesterov=false.")
        return self


class ScheduleConfig(Section):
    """Learning rate schedule: a linear warm-up per iteration, then steps at milestones or a cosine to 0."""

    kind: Literal["step", "cosine", "constant"] = "step"
    """step at milestones, cosine to 0, or constant."""
    milestones: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = Field((), max_length=1000)
    """Epochs after which the learning rate is multiplied by the factor, as in MultiStepLR."""
    factor: float = Field(0.5, gt=0, le=1)
    """Factor of each step."""
    warmup_epochs: float = Field(5, ge=0, le=100_000)
    """Epochs in which the learning rate rises from 0."""

    def lr(self, base: float, iteration: int, batches: int, epochs: int) -> float:
        """Return the learning rate of an iteration, counted from 1, given the batches per epoch.

        Example:
            >>> from evenhand.runs.config_sections import ScheduleConfig
            >>> schedule = ScheduleConfig(milestones=(60, 120, 160))
            >>> [schedule.lr(0.1, i, batches=100, epochs=200) for i in (1, 500, 501, 6000, 6001, 16001)]
            [0.0002, 0.1, 0.1, 0.1, 0.05, 0.0125]
        """
        warmup = self.warmup_epochs * batches
        if iteration <= warmup:
            return base * (iteration / warmup)  # in this order it cannot exceed the base by rounding
        if self.kind == "step":
            epoch = (iteration - 1) // batches
            return base * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            return base * 0.5 * (1 + math.cos(math.pi * (iteration - warmup) / max(epochs * batches - warmup, 1)))
        return base


class AugmentationConfig(Section):
    """Augmentation of training images."""

    padding: int | None = Field(None, ge=0, le=512)
    """Pixels of padding before a random crop; null: 4, but at most an eighth of the image."""
    flip: bool | None = None
    """Random horizontal flip of training images.

    null: as the data set allows."""


class StartConfig(Section):
    """The weights that a run starts from, and which of them are trained."""

    weights: NonEmptyText | None = None
    """Run or checkpoint to start from."""
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """Hash of these weights, filled in when the run begins; it enters the run's name, the path does not."""
    load: Literal["all", "body"] = "all"
    """all, or body: all but the last layer, needed where the classes differ.

    A checkpoint that evenhand did not write names no classes: all of it is loaded for ResNets of CIFAR only, and its
    classes must be in the order of these data."""
    train: Literal["all", "head"] = "all"
    """head (linear probe) or all (fine-tune).

    head: the last layer only; the rest is frozen and in evaluation mode."""


class HeadConfig(Section):
    """A last layer trained on features; nothing here concerns other runs."""

    most_steps: int | None = Field(None, ge=1, le=100_000)
    """Double the batch until an epoch has at most this many steps; batches are then of nearly one size.

    null: the batch size is as given, and the last batch of an epoch may be small."""
    refit_below: int = Field(0, ge=0, le=LARGEST_INTEGER)
    """Below so many images, train again on training and validation images together.

    The epoch is selected before, and validation results are those of the training without these images. Validation
    images that the source itself names are never trained on."""


class ComputeConfig(Section):
    """Hardware and precision. Nothing here should change what a run means."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    """Kind of device."""
    devices: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Number of devices, or auto for all."""
    nodes: int = Field(1, ge=1, le=1024)
    """Number of machines."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision: auto, float32, bfloat16 or float16.

    auto: bfloat16 where the processor has it; results then differ between machines."""
    compile: bool = False
    """Use torch.compile."""
    sync_batchnorm: bool = False
    """Synchronise batch statistics between GPUs."""
    workers: int = Field(0, ge=0, le=256)
    """Processes that read streamed images; 0: threads of this process."""
    log: Literal["tensorboard", "wandb", "mlflow", "trackio"] | None = None
    """Log to tensorboard, wandb, mlflow or trackio.

    null: none. Each reads its own environment variables, such as WANDB_MODE=offline."""

    @model_validator(mode="before")
    @classmethod
    def _read_tensorboard(cls, content: Any) -> Any:
        """Read configs from before there were other trackers."""
        if not isinstance(content, Mapping) or not isinstance(content.get("tensorboard"), bool):
            return content
        rest = {key: value for key, value in content.items() if key != "tensorboard"}
        return {"log": "tensorboard", **rest} if content["tensorboard"] else rest
