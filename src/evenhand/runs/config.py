"""The config of a run: every setting with its help, checked before any work starts.

The first line of a setting's docstring is the help of its option on the command line (`evenhand.cli.options`).
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.core.files import write_text
from evenhand.data.imbalance import Imbalance
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs._safe_yaml import MOST_DEPTH, Unreadable, parse_yaml, read_yaml
from evenhand.runs.class_weights import read_class_weights, weights_file
from evenhand.runs.name_defaults import with_frozen

RECIPES = ("small", "photos", "paper", "road-marking", "cifar-lt")
_LARGEST = 2**63 - 1
_Name = Annotated[str, Field(min_length=1, max_length=4096)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class DataConfig(_Section):
    """Which images, and how they are split and made imbalanced."""

    source: _Name = "digits"
    """Data set, folder, .csv, .npz, .parquet or hf:NAME.

    `evenhand.list_datasets()` names the data sets; digits is embedded."""
    root: _Name | None = None
    """Folder of the data sets.

    null: $EVENHAND_DATA, else the user's cache folder."""
    imbalance: _Name = "none"
    """Subsample training images: exp:RATIO or step:RATIO."""
    class_order: _Name = "identity"
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
    split_seed: int = Field(0, ge=0, le=_LARGEST)
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


class ModelConfig(_Section):
    """Which network."""

    name: _Name = "resnet8"
    """Network: resnet8, lite0, ... or timm:NAME.

    Also resnet32 and any network of torchvision."""
    stem: Literal["auto", "small", "imagenet"] = "auto"
    """First layers: auto (by image size), small, imagenet."""
    pretrained: bool = False
    """Start from ImageNet weights."""


class OptimizerConfig(_Section):
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


class ScheduleConfig(_Section):
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
            >>> from evenhand.runs.config import ScheduleConfig
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


class AugmentationConfig(_Section):
    """Augmentation of training images."""

    padding: int | None = Field(None, ge=0, le=512)
    """Pixels of padding before a random crop; null: 4, but at most an eighth of the image."""
    flip: bool | None = None
    """Random horizontal flip of training images.

    null: as the data set allows."""


class StartConfig(_Section):
    """The weights that a run starts from, and which of them are trained."""

    weights: _Name | None = None
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


class HeadConfig(_Section):
    """A last layer trained on features; nothing here concerns other runs."""

    most_steps: int | None = Field(None, ge=1, le=100_000)
    """Double the batch until an epoch has at most this many steps; batches are then of nearly one size.

    null: the batch size is as given, and the last batch of an epoch may be small."""
    refit_below: int = Field(0, ge=0, le=_LARGEST)
    """Below so many images, train again on training and validation images together.

    The epoch is selected before, and validation results are those of the training without these images. Validation
    images that the source itself names are never trained on."""


class ComputeConfig(_Section):
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


class Config(_Section):
    """One run."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveSpec = ObjectiveSpec("balanced-softmax")
    """A loss and parts joined by +, such as cce+mixup.

    `evenhand objectives` lists the parts: cce, focal:gamma=2, balanced-softmax+cce; erm is another name of ce."""
    epochs: int = Field(30, ge=1, le=100_000)
    """Number of epochs."""
    batch_size: int = Field(64, ge=1, le=100_000)
    """Images per training step."""
    select: Literal["best", "late", "last"] = "best"
    """Checkpoint: best, late or last.

    best: by validation balanced accuracy; late: the latest within one standard error of the best; last: without a
    validation set, trained on all images. With drw, best and late select from the epochs that have it."""
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    start: StartConfig = StartConfig()
    head: HeadConfig = HeadConfig()
    compute: ComputeConfig = ComputeConfig()
    seed: int = Field(0, ge=0, le=_LARGEST)
    """Random seed."""
    track_test: bool = False
    """Log test accuracy per epoch (not for selection)."""
    class_weights: dict[_Name, Annotated[float, Field(gt=0)]] | None = None
    """Weights by class name; filled in from the file of weights:file=FILE."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "Config":
        """Copy with other values; unlike those of other settings, the text of an objective is checked."""
        if update and "objective" in update:
            objective = ObjectiveSpec(update["objective"])
            file, own = weights_file(objective), weights_file(self.objective)
            given = self.class_weights if file is not None and file == own else _read_weights(file)
            update = {"class_weights": given, **update, "objective": objective}
        return super().model_copy(update=update, deep=deep)

    @model_validator(mode="before")
    @classmethod
    def _read_class_weights(cls, content: Any) -> Any:
        """Read the file of class weights, unless its content is there: a run is repeated with the same weights."""
        if not isinstance(content, dict) or not isinstance(content.get("objective", ""), str):
            return content
        file = weights_file(ObjectiveSpec(content.get("objective") or "ce"))
        if file is None:
            if content.get("class_weights") is not None:
                raise EvenhandError(
                    "class_weights are the content of a file; name it with objective=weights:file=FILE."
                )
            return content
        return content if content.get("class_weights") else {**content, "class_weights": _read_weights(file)}

    @model_validator(mode="after")
    def _has_validation_images(self) -> "Config":
        if self.objective.needs_validation and self.select == "last":
            raise EvenhandError(
                f"{self.objective} chooses tau on validation images, but --select last uses none; give tau a number, "
                "such as post-hoc:tau=1."
            )
        return self

    @model_validator(mode="after")
    def _has_weights_to_start_from(self) -> "Config":
        start = self.start
        if start.weights is None and (start.load != "all" or start.sha256 is not None):
            raise EvenhandError("start.load and start.sha256 need weights to start from; give start.weights.")
        if start.weights is None and start.train == "head" and not self.model.pretrained:
            raise EvenhandError("start.train=head needs a trained body; give start.weights or model.pretrained=true.")
        return self


def _read_weights(file: str | None) -> dict[str, float] | None:
    return None if file is None else read_class_weights(file)


def make_config(
    recipe: str = "small", config: Path | str | None = None, settings: Iterable[str] = (), **flags: Any
) -> Config:
    """Make a config from a recipe, a YAML file, flags and `a.b=c` settings, each overriding the ones before.

    Args:
        recipe: one of `RECIPES`, such as `small` or `paper`.
        config: a YAML file with any part of a config.
        settings: texts such as `optimizer.lr=0.05`; the value is read as YAML.
        flags: values by dotted name with `__` for the dot, such as `data__source="cifar10"`; None: not given.

    Raises:
        EvenhandError: one sentence with the key, the value, and the nearest known key.

    Example:
        >>> from evenhand.runs.config import make_config
        >>> config = make_config("paper", settings=["optimizer.lr=0.05"], data__imbalance="exp:100")
        >>> config.optimizer.lr, config.epochs, config.data.imbalance
        (0.05, 200, 'exp:100')
    """
    merged = parse_yaml(read_recipe(recipe))
    if config is not None:
        merged = _merge(merged, read_yaml(Path(config)))
    for name, value in flags.items():
        if value is not None:
            merged = _merge(merged, _nested(name.split("__"), value))
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise EvenhandError(f"A setting is KEY=VALUE, such as optimizer.lr=0.05, got {_shown(setting)}.")
        try:
            value = parse_yaml(text)
        except Unreadable:
            value = text
        except EvenhandError as error:
            raise EvenhandError(f"Cannot read the value of {key.strip()!r}: {error}") from error
        merged = _merge(merged, _nested(key.strip().split("."), value))
    return validate(merged)


def validate(content: Mapping[str, Any]) -> Config:
    """Return a config from plain values.

    Raises:
        EvenhandError: the first mistake, with the key and the value.
    """
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        parts = [str(part) for part in first["loc"]]
        known = _known_keys(Config)
        if first["type"] == "extra_forbidden":
            raise EvenhandError(
                f"Unknown setting {_shown('.'.join(parts))}; the nearest known one is {_nearest(parts, known)!r}."
            ) from None
        while ".".join(parts) not in known and len(parts) > 1:
            parts.pop()  # the position in a list, or one of several types
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise EvenhandError(f"{'.'.join(parts)} cannot be {_shown(first['input'])}: {reason.rstrip('.')}.") from None


def read_recipe(name: str) -> str:
    """Return the text of a recipe."""
    if name not in RECIPES:
        raise EvenhandError(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    return (files("evenhand.runs") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


RESOLVED = "# resolved: "
"""Prefix of the line with the settings that a config leaves open."""


def save_config(
    config: Config, path: Path, command: str = "", resolved: Mapping[str, bool | float | str] | None = None
) -> None:
    """Write a config as YAML, below comments with the command and the settings that the config leaves open.

    Open settings stay open in the YAML, so that the run keeps its name.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.runs.config import load_config, make_config, save_config
        >>> path = Path(tempfile.mkdtemp()) / "config.yaml"
        >>> save_config(make_config(), path, "evenhand train", {"image_size": 64, "flip": True})
        >>> path.read_text().splitlines()[:2]
        ['# evenhand train', '# resolved: image_size 64, flip true']
        >>> load_config(path) == make_config()
        True
    """
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    listed = ", ".join(f"{name} {str(value).lower()}" for name, value in (resolved or {}).items())
    top = [f"# {command}"] * bool(command) + [RESOLVED + listed] * bool(listed)
    # A line break would end the comment, and YAML refuses control characters even in comments.
    lines = ["".join(character if character.isprintable() else " " for character in line) for line in top]
    write_text(path, "".join(f"{line}\n" for line in lines) + text, within=Path(path).parent)


def load_config(path: Path, *, within: Path | None = None) -> Config:
    """Read what `save_config` wrote; no link is followed below `within`."""
    content = read_yaml(path, within=within)
    try:
        return validate(with_frozen(content))
    except EvenhandError as error:
        raise EvenhandError(f"Cannot use the config {path}: {error}") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _nested(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys[:MOST_DEPTH]):  # no setting is deeper, so the rest is unknown anyway
        value = {key: value}
    return dict(value)


def _nearest(parts: list[str], known: Iterable[str]) -> str:
    """Return the most similar known key, as a whole and by its last part: `lr` is close to `optimizer.lr`."""

    def similarity(key: str) -> float:
        pairs = ((".".join(parts)[:100], key), (parts[-1][:100], key.rpartition(".")[2]))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return max(known, key=similarity)


def _known_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type(BaseModel)):
            keys += _known_keys(field.annotation, f"{prefix}{name}.")
    return keys
