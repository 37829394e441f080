"""The config of a run: made from a recipe, files and settings, checked before any work starts, written and read."""

import difflib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.core.files import write_text
from evenhand.objectives.spec import ObjectiveSpec
from evenhand.runs._safe_yaml import MOST_DEPTH, Unreadable, parse_yaml, read_yaml
from evenhand.runs.class_weights import read_class_weights, weights_file
from evenhand.runs.config_sections import (
    LARGEST_INTEGER,
    AugmentationConfig,
    ComputeConfig,
    DataConfig,
    HeadConfig,
    ModelConfig,
    NonEmptyText,
    OptimizerConfig,
    ScheduleConfig,
    Section,
    StartConfig,
)
from evenhand.runs.name_defaults import with_frozen

RECIPES = ("small", "photos", "paper", "road-marking", "cifar-lt")


class Config(Section):
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
    seed: int = Field(0, ge=0, le=LARGEST_INTEGER)
    """Random seed."""
    track_test: bool = False
    """Log test accuracy per epoch (not for selection)."""
    class_weights: dict[NonEmptyText, Annotated[float, Field(gt=0)]] | None = None
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
