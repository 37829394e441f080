"""Every setting of a config in words: its name, its default, what it may be, and what it does."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from evenhand.runs.config import Config


@dataclass(frozen=True)
class Setting:
    """One setting."""

    key: str
    """As `--set` takes it, such as `optimizer.lr`."""
    default: Any
    """Before any recipe."""
    allowed: str
    help: str


def list_settings() -> list[Setting]:
    """Return all settings, in the order of a config.

    Example:
        >>> from evenhand.runs.settings import list_settings
        >>> {each.key: (each.default, each.allowed) for each in list_settings()}["data.fraction"]
        (1.0, 'number above 0, at most 1')
    """
    return list(_settings(Config))


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{prefix}{name}.")
        else:
            text = " ".join((field.description or "").split())
            yield Setting(f"{prefix}{name}", field.get_default(call_default_factory=True), _allowed(field), text)


def _allowed(field: FieldInfo) -> str:
    return " ".join(filter(None, [_words(field.annotation), _range(field.metadata)]))


def _words(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(map(str, get_args(kind)))
    if origin is Annotated:
        return _words(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return " or ".join("null" if each is types.NoneType else _words(each) for each in get_args(kind))
    if origin is tuple:
        return f"list of {_words(get_args(kind)[0])}s"
    return {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(kind, str(kind))


def _range(metadata: list[Any]) -> str:
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    limits = [(word, getattr(each, name)) for each in metadata for name, word in words.items() if hasattr(each, name)]
    return ", ".join(f"{word} {value:g}" for word, value in limits if abs(value) < 2**62)
