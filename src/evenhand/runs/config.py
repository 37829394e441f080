"""Everything that is needed to repeat a run, checked before any work starts."""

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
from evenhand.runs.name_defaults import with_frozen

RECIPES = ("small", "photos", "paper", "road-marking", "cifar-lt")
_LARGEST = 2**63 - 1
_Name = Annotated[str, Field(min_length=1, max_length=4096)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class DataConfig(_Section):
    """Which images, and how they are split and made imbalanced."""

    source: _Name = "digits"
    """A data set's name, a folder of class folders, a .csv or a .npz."""
    root: _Name | None = None
    """Where data sets lie; null: $EVENHAND_DATA, else your cache folder."""
    imbalance: _Name = "none"
    """exp:RATIO, step:RATIO or none: how training images are thinned out."""
    class_order: _Name = "identity"
    """Which classes keep most: identity, shuffle, or all names joined by commas."""
    fraction: float = Field(1.0, gt=0, le=1)
    """Of the images that the largest class could keep; the imbalance ratio stays."""
    image_size: int | None = Field(None, ge=1, le=4096)
    """Length of the shorter side; null: the native size of small square images, else 64."""
    test_fraction: float = Field(0.2, gt=0, lt=1)
    """Of all images, where the source fixes no test set."""
    val_fraction: float = Field(0.1, ge=0, lt=1)
    """Of the training images, for selection."""
    split_seed: int = Field(0, ge=0, le=_LARGEST)
    """Of the test set, which is the same for every seed unless it rotates."""
    rotate: bool = False
    """Test every seed on the next images in turn; not where the source fixes a test set. compare does so by itself."""
    drop_small: bool = False
    """Leave out classes too small to split."""
    skip_bad: bool = False
    """Leave out unreadable images."""
    allow_outside: bool = False
    """Let a folder or a manifest lead to files elsewhere, by links or paths."""

    @field_validator("imbalance")
    @classmethod
    def _readable(cls, text: str) -> str:
        return str(Imbalance.parse(text))


class ModelConfig(_Section):
    """Which network."""

    name: _Name = "resnet8"
    """resnet8, resnet32, resnet34, any network of torchvision, or timm:NAME."""
    stem: Literal["auto", "small", "imagenet"] = "auto"
    """small for small images, imagenet for photographs; auto: by the image size."""
    pretrained: bool = False
    """Start from ImageNet weights."""


class OptimizerConfig(_Section):
    """Stochastic gradient descent."""

    lr: float = Field(0.1, gt=0, le=1e4)
    """Learning rate after the warm-up."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Of stochastic gradient descent."""
    weight_decay: float = Field(5e-4, ge=0, le=100)
    """Pull of the weights towards 0."""
    nesterov: bool = False
    """Look ahead with the momentum."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """The rate of the first layer beside that of the last; those between follow geometrically, by their place."""

    @model_validator(mode="after")
    def _possible(self) -> "OptimizerConfig":
        if self.nesterov and self.momentum == 0:
            raise EvenhandError("optimizer.nesterov needs a momentum above 0; set optimizer.nesterov=false with it.")
        return self


class ScheduleConfig(_Section):
    """How the learning rate moves: a linear warm-up by iteration, then steps at milestones or a cosine to 0."""

    kind: Literal["step", "cosine", "constant"] = "step"
    """step at milestones, cosine to 0, or constant."""
    milestones: tuple[Annotated[int, Field(ge=1, le=100_000)], ...] = Field((), max_length=1000)
    """Epochs after which the learning rate is multiplied by the factor."""
    factor: float = Field(0.5, gt=0, le=1)
    """Of each step."""
    warmup_epochs: float = Field(5, ge=0, le=100_000)
    """Epochs in which the learning rate rises from 0."""

    def lr(self, base: float, iteration: int, batches: int, epochs: int) -> float:
        """Return the learning rate of an iteration, counted from 1, with so many batches an epoch.

        Example:
            >>> from evenhand.runs.config import ScheduleConfig
            >>> schedule = ScheduleConfig(milestones=(60, 120, 160))
            >>> [schedule.lr(0.1, i, batches=100, epochs=200) for i in (1, 500, 501, 6000, 6001, 16001)]
            [0.0002, 0.1, 0.1, 0.1, 0.05, 0.0125]
        """
        warmup = self.warmup_epochs * batches
        if iteration <= warmup:
            return base * (iteration / warmup)  # in this order it cannot be rounded to more than the base
        if self.kind == "step":
            epoch = (iteration - 1) // batches
            return base * self.factor ** sum(epoch >= milestone for milestone in self.milestones)
        if self.kind == "cosine":
            return base * 0.5 * (1 + math.cos(math.pi * (iteration - warmup) / max(epochs * batches - warmup, 1)))
        return base


class AugmentationConfig(_Section):
    """What is done to training images."""

    padding: int | None = Field(None, ge=0, le=512)
    """None: 4, but at most an eighth of the image."""
    flip: bool | None = None
    """None: as the data set allows."""


class StartConfig(_Section):
    """A second stage: weights to begin with, and which of them are trained."""

    weights: _Name | None = None
    """The folder of a finished run (of which the selected weights are taken), or a file of weights; None: none."""
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """Of the weights, filled in when the run begins; a run goes on with no others. It names the run, not the path."""
    load: Literal["all", "body"] = "all"
    """`body`: the last layer begins afresh, as it must where the classes are others. `all` of a file that evenhand did
    not write: of a ResNet for CIFAR only, and its classes must be in the order of these data."""
    train: Literal["all", "head"] = "all"
    """`head`: the last layer only; the body is frozen and in evaluation mode."""


class ComputeConfig(_Section):
    """On what, and how exactly. Nothing here should change what a run means."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    """On what to compute."""
    devices: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """How many; auto: all."""
    nodes: int = Field(1, ge=1, le=1024)
    """How many machines."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto takes bfloat16 where the processor has it; numbers then differ from machine to machine."""
    compile: bool = False
    """Use torch.compile."""
    sync_batchnorm: bool = False
    """Share batch statistics among GPUs."""
    workers: int = Field(0, ge=0, le=256)
    """Processes that read streamed images; 0: threads of this one."""
    tensorboard: bool = False
    """Write the history for TensorBoard too."""


class Config(_Section):
    """One run."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    objective: ObjectiveSpec = ObjectiveSpec("balanced-softmax")
    """What is trained for: a loss and parts joined by +, such as cce, focal:gamma=2 or balanced-softmax+cce; erm is
    another name of ce."""
    epochs: int = Field(30, ge=1, le=100_000)
    """How often every training image is seen."""
    batch_size: int = Field(64, ge=1, le=100_000)
    """Images in a step."""
    select: Literal["best", "late", "last"] = "best"
    """best on validation, late (the latest within a standard error of that), or last, which trains on everything."""
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    start: StartConfig = StartConfig()
    compute: ComputeConfig = ComputeConfig()
    seed: int = Field(0, ge=0, le=_LARGEST)
    """Of subset, validation, initial weights, order and augmentation."""
    track_test: bool = False
    """Note test accuracy each epoch; selection never sees it."""

    @model_validator(mode="after")
    def _has_validation_images(self) -> "Config":
        if self.objective.needs_validation and self.select == "last":
            raise EvenhandError(
                f"{self.objective} chooses its tau on validation images, which --select last does without; give tau a "
                "number, such as post-hoc:tau=1."
            )
        return self

    @model_validator(mode="after")
    def _has_weights_to_start_from(self) -> "Config":
        start = self.start
        if start.weights is None and (start.load != "all" or start.sha256 is not None):
            raise EvenhandError("start.load and start.sha256 speak of weights to begin with; give start.weights.")
        if start.weights is None and start.train == "head" and not self.model.pretrained:
            raise EvenhandError(
                "start.train=head freezes a body that has learned nothing; give start.weights or model.pretrained=true."
            )
        return self


def make_config(
    recipe: str = "small", config: Path | str | None = None, settings: Iterable[str] = (), **flags: Any
) -> Config:
    """Put a config together: the recipe, over it a YAML file, over that the flags, over those `a.b=c` settings.

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
    """Check the whole content of a config; the first mistake is told in one sentence."""
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
            parts.pop()  # which item of a list it was, or which of the types that are allowed
        reason = first["msg"][:1].lower() + first["msg"][1:]
        raise EvenhandError(f"{'.'.join(parts)} cannot be {_shown(first['input'])}: {reason.rstrip('.')}.") from None


def read_recipe(name: str) -> str:
    """Return the text of a recipe."""
    if name not in RECIPES:
        raise EvenhandError(f"There is no recipe {name!r}; there are {', '.join(RECIPES)}.")
    return (files("evenhand.runs") / "recipes" / f"{name}.yaml").read_text(encoding="utf-8")


RESOLVED = "# resolved: "
"""How the line begins that says what a config leaves open came to."""


def save_config(
    config: Config, path: Path, command: str = "", resolved: Mapping[str, bool | float | str] | None = None
) -> None:
    """Write the whole config as YAML; on top, as comments, the command that made it and what it left open came to.

    What was left open stays open below, so that the run keeps its name and is continued as it was asked for.

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
    told = ", ".join(f"{name} {str(value).lower()}" for name, value in (resolved or {}).items())
    top = [f"# {command}"] * bool(command) + [RESOLVED + told] * bool(told)
    # A line break would end the comment, and YAML takes no control characters even there.
    lines = ["".join(character if character.isprintable() else " " for character in line) for line in top]
    write_text(path, "".join(f"{line}\n" for line in lines) + text)


def load_config(path: Path) -> Config:
    """Read what `save_config` wrote."""
    content = read_yaml(path)
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
    for key in reversed(keys[:MOST_DEPTH]):  # the first few tell already that there is no such setting
        value = {key: value}
    return dict(value)


def _nearest(parts: list[str], known: Iterable[str]) -> str:
    """Return the known key most like this one, as a whole and by its last part: `lr` is meant as `optimizer.lr`."""

    def likeness(key: str) -> float:
        pairs = ((".".join(parts)[:100], key), (parts[-1][:100], key.rpartition(".")[2]))
        return sum(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)

    return max(known, key=likeness)


def _known_keys(section: type[BaseModel], prefix: str = "") -> list[str]:
    keys = []
    for name, field in section.model_fields.items():
        keys.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += _known_keys(field.annotation, f"{prefix}{name}.")
    return keys
