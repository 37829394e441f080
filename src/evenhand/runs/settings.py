"""The settings of a config: their names, defaults, allowed values and help."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evenhand.core.allowed import UNIONS, describe_allowed
from evenhand.runs.config import Config


@dataclass(frozen=True)
class Setting:
    """One setting."""

    key: str
    """As `--set` takes it, such as `optimizer.lr`."""
    default: Any
    """Without a recipe."""
    allowed: str
    help: str


def list_settings() -> list[Setting]:
    """Return all settings, in the order of a config.

    Example:
        >>> from evenhand.runs.settings import list_settings
        >>> {each.key: (each.default, each.allowed) for each in list_settings()}["data.fraction"]
        (1.0, 'a number above 0 and up to 1')
    """
    return list(_settings(Config))


def find_field(key: str) -> FieldInfo:
    """Return the field of a setting, such as `optimizer.lr`.

    Example:
        >>> from evenhand.runs.settings import find_field
        >>> find_field("data.skip_bad").description
        'Leave out unreadable images.'
    """
    section: Any = Config
    *sections, name = key.split(".")
    for each in sections:
        section = section.model_fields[each].annotation
    field: FieldInfo = section.model_fields[name]
    return field


def option_type(field: FieldInfo) -> type[bool | int | float | str]:
    """Return the type that an option of this field takes: `bool`, `int`, `float`, or `str` for everything else."""
    kinds = get_args(field.annotation) if get_origin(field.annotation) in UNIONS else (field.annotation,)
    kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
    return kinds[0] if len(kinds) == 1 and kinds[0] in (bool, int, float) else str


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type(BaseModel)):
            yield from _settings(kind, f"{prefix}{name}.")
        else:
            text = " ".join((field.description or "").split())
            yield Setting(
                f"{prefix}{name}",
                field.get_default(call_default_factory=True),
                describe_allowed(kind, field.metadata),
                text,
            )
