"""Objectives as text: from a spec to its checked parts, and back to the canonical spelling."""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import combinations, pairwise
from math import prod
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import core_schema

from evenhand.core.allowed import describe_allowed
from evenhand.core.errors import EvenhandError
from evenhand.core.spec import SpecPart, parse
from evenhand.objectives import (  # noqa: F401 - registers their parts
    augmentation,
    heads,
    images,
    logits,
    sampling,
    steps,
    weights,
)
from evenhand.objectives.losses import CrossEntropy
from evenhand.objectives.part import KINDS, PARTS, Part
from evenhand.objectives.posthoc import PostHoc
from evenhand.objectives.stages import StagePart

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_IMPLY_CE = ("logits", "step")
"""Kinds of parts whose objectives leave out `ce` in the canonical spelling."""
_LONGEST = 4096


class ObjectiveSpec(str):
    """An objective in its canonical spelling, with its checked parts.

    Two spellings of the same objective are equal: aliases, default settings and the order of parts do not matter. It is
    a `str`, so it can be used, stored and compared as text; it can also be the type of a pydantic field. Parsing is
    cached.

    Args:
        text: one loss and any number of other parts joined by `+`; the loss is `ce` if none is named.

    Raises:
        EvenhandError: there is no such part or setting, or parts cannot be combined.

    Example:
        >>> from evenhand.objectives import ObjectiveSpec
        >>> [ObjectiveSpec(text) for text in ("erm", "cce:gamma=-1.0", "focal:gamma=1:alpha=.25")]
        ['ce', 'cce', 'focal:alpha=0.25:gamma=1']
        >>> [ObjectiveSpec(text) for text in ("cce+logit-adjust", "mixup", "drw:start=.8+ldam+ce")]
        ['balanced-softmax+cce', 'ce+mixup', 'ldam+drw']
        >>> [part.name for part in ObjectiveSpec("cce+mixup").parts]
        ['cce', 'mixup']
    """

    parts: tuple[Part, ...]
    """In canonical order."""

    def __new__(cls, text: str) -> ObjectiveSpec:  # noqa: D102
        return text if isinstance(text, ObjectiveSpec) else _parse(text)

    @classmethod
    def of(cls, parts: tuple[Part, ...]) -> ObjectiveSpec:
        """Return the objective of these parts, which must be in canonical order and checked."""
        implied = any(part.kind in _IMPLY_CE for part in parts)
        text = "+".join(part.spec() for part in parts if not (implied and isinstance(part, CrossEntropy)))
        spec = str.__new__(cls, text)
        spec.parts = parts
        return spec

    @cached_property
    def training(self) -> ObjectiveSpec:
        """The objective without its post-hoc part: runs that agree in it can share their training.

        Example:
            >>> from evenhand.objectives import ObjectiveSpec
            >>> ObjectiveSpec("cce+post-hoc:tau=1").training
            'cce'
        """
        return self._without("posthoc")

    @cached_property
    def first_stage(self) -> ObjectiveSpec:
        """The objective without second stage and post-hoc part: that of the run a second stage starts from.

        Example:
            >>> from evenhand.objectives import ObjectiveSpec
            >>> ObjectiveSpec("cce+mixup+crt").first_stage
            'cce+mixup'
        """
        return self._without("posthoc", "stage")

    @property
    def stage(self) -> StagePart | None:
        """Its second stage; None: it has none."""
        return next((part for part in self.parts if isinstance(part, StagePart)), None)

    @property
    def needs_validation(self) -> bool:
        """Whether a setting is chosen on validation images after training."""
        return any(isinstance(part, PostHoc) and part.tau == "auto" for part in self.parts)

    @property
    def cost(self) -> float:
        """Training time relative to plain cross entropy, by operation count.

        Example:
            >>> from evenhand.objectives import ObjectiveSpec
            >>> ObjectiveSpec("cce").cost, ObjectiveSpec("cot").cost
            (1.0, 2.0)
        """
        return prod(part.cost for part in self.parts)

    def _without(self, *kinds: str) -> ObjectiveSpec:
        kept = tuple(part for part in self.parts if part.kind not in kinds)
        return self if kept == self.parts else ObjectiveSpec.of(kept)

    def __reduce__(self) -> tuple[type[ObjectiveSpec], tuple[str]]:
        return ObjectiveSpec, (str(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        del source, handler
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(min_length=1, max_length=_LONGEST),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )


@lru_cache(maxsize=1024)
def _parse(text: str) -> ObjectiveSpec:
    parts = [_parse_part(each, text) for each in parse(text)]
    if not any(part.kind == "loss" for part in parts):
        parts.append(CrossEntropy())
    parts.sort(key=lambda part: list(KINDS).index(part.kind))
    for one, other in pairwise(parts):
        if one.kind == other.kind:
            same = one.name == other.name
            what = f"{one.name} is given twice" if same else f"{one.name} and {other.name} are both of kind {one.kind}"
            raise EvenhandError(f"Cannot train with {text!r}: {what}; leave one out.")
    # A second stage corrects anew: corrections of the first stage are not active in it.
    staged = any(part.kind == "stage" for part in parts)
    active = [part for part in parts if not staged or part.kind in ("stage", "posthoc")]
    for one, other in combinations([part for part in active if part.corrects_prior], 2):
        if not (one.kind == "logits" and other.stacks_on_logits):
            raise EvenhandError(
                f"Cannot train with {text!r}: {one.name} and {other.name} both correct for the class counts; leave one "
                "out."
            )
    for part in parts:
        part.check(parts)
    return ObjectiveSpec.of(tuple(part.simplified() for part in parts))


def parse_stage(text: str, epochs: int | None = None) -> str:
    """Return the canonical spelling of a second stage alone, as `--stage` takes it.

    Args:
        text: the name of a second stage, with its settings.
        epochs: length of the stage, unless its settings have it.

    Raises:
        EvenhandError: there is no such stage, or its epochs are given twice or too few.

    Example:
        >>> from evenhand.objectives import parse_stage
        >>> parse_stage("crt"), parse_stage("lws", epochs=5)
        ('crt', 'lws:epochs=5')
    """
    names = stage_names()
    if text.partition(":")[0] not in names or "+" in text:
        raise EvenhandError(f"A second stage is {' or '.join(names)}, with its settings, got {text!r}.")
    (given,) = parse(text)
    if epochs is not None:
        if given.options.get("epochs", str(epochs)) != str(epochs):
            raise EvenhandError(f"{text} and --epochs {epochs} both set the length of the second stage; give one.")
        given = replace(given, options={**given.options, "epochs": str(epochs)})
    return _parse_part(given, text).spec()


def stage_names() -> list[str]:
    """Return the names of all second stages."""
    return [part.name for part in all_parts() if issubclass(part, StagePart)]


def all_parts() -> list[type[Part]]:
    """Return every part: losses first, then by kind."""
    order = ["loss", *KINDS]
    return sorted(PARTS.values(), key=lambda part: order.index(part.kind))


def _parse_part(given: SpecPart, spec: str) -> Part:
    names = {alias: part.name for part in all_parts() for alias in (part.name, *part.aliases)}
    if given.name not in names:
        near = difflib.get_close_matches(given.name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
        raise EvenhandError(f"There is no objective {given.name!r}; {hint}")
    part = PARTS[names[given.name]]
    settings = list(part.model_fields)
    if given.value is not None or not set(given.options) <= set(settings):
        takes = ", ".join(settings) or "no options"
        near = [
            each for name in given.options if name not in settings for each in difflib.get_close_matches(name, settings)
        ]
        hint = f"; did you mean {near[0]}?" if near else "."
        raise EvenhandError(f"Cannot train with {spec!r}: {given.name} takes {takes}{hint}")
    try:
        return part.model_validate({key: _parse_value(text) for key, text in given.options.items()})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        allowed = allowed_values(part.model_fields[key])
        raise EvenhandError(f"The {key} of {part.name} must be {allowed}, got {given.options[key]!r}.") from None


def _parse_value(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def allowed_values(field: FieldInfo) -> str:
    """Return the values that a setting of a part allows, in words."""
    return describe_allowed(field.annotation, field.metadata).removesuffix(" or null")
