"""From the text of an objective to its parts, and back to its canonical spelling."""

from __future__ import annotations

import difflib
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import core_schema

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import SpecPart, parse
from evenhand.objectives import heads, images, logits, sampling, steps, weights  # noqa: F401 - registers their parts
from evenhand.objectives.losses import CrossEntropy
from evenhand.objectives.part import KINDS, PARTS, Part
from evenhand.objectives.posthoc import PostHoc
from evenhand.objectives.stages import StagePart

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_IMPLY_CE = ("logits", "step")
"""Kinds of parts next to which ce is not written."""
_LONGEST = 4096


class ObjectiveSpec(str):
    """An objective in its canonical spelling, with its checked parts: no alias, no setting that changes nothing.

    Two spellings of the same objective are equal. It is text wherever text is wanted, and a pydantic field.

    Args:
        text: one loss and any number of parts joined by `+`; `ce` where no loss is named.

    Raises:
        EvenhandError: there is no such objective, in one sentence.

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
        """Return the objective made of these parts, which go together."""
        implied = any(part.kind in _IMPLY_CE for part in parts)
        text = "+".join(part.spec() for part in parts if not (implied and isinstance(part, CrossEntropy)))
        spec = str.__new__(cls, text)
        spec.parts = parts
        return spec

    @cached_property
    def training(self) -> ObjectiveSpec:
        """The objective without what happens after training: runs that have this in common share their training.

        Example:
            >>> from evenhand.objectives import ObjectiveSpec
            >>> ObjectiveSpec("cce+post-hoc:tau=1").training
            'cce'
        """
        return self._without("posthoc")

    @cached_property
    def first_stage(self) -> ObjectiveSpec:
        """The objective of the run that a second stage starts from.

        Example:
            >>> from evenhand.objectives import ObjectiveSpec
            >>> ObjectiveSpec("cce+mixup+crt").first_stage
            'cce+mixup'
        """
        return self._without("posthoc", "stage")

    @property
    def stage(self) -> StagePart | None:
        """The second stage that this objective is; None: it is none."""
        return next((part for part in self.parts if isinstance(part, StagePart)), None)

    @property
    def needs_validation(self) -> bool:
        """Whether something is chosen on validation images after training."""
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
    parts = [_read_part(each, text) for each in parse(text)]
    if not any(part.kind == "loss" for part in parts):
        parts.append(CrossEntropy())
    order = list(KINDS)
    parts.sort(key=lambda part: order.index(part.kind))
    for one, other in pairwise(parts):
        if one.kind == other.kind:
            twice = one.name == other.name
            what = f"{one.name} is given twice" if twice else f"{one.name} and {other.name} are of one kind"
            raise EvenhandError(f"Cannot train with {text!r}: {what}, which changes {KINDS[one.kind]}; leave one out.")
    staged = any(part.kind == "stage" for part in parts)
    # Parts of a first stage that correct for the counts are inactive in the second, which corrects anew.
    acting = [part for part in parts if not staged or part.kind in ("stage", "posthoc")]
    correcting = [part.name for part in acting if part.corrects_prior]
    # Weights that set in late are trained on top of either, as the literature does.
    if len(correcting) > 1 and not (acting[0].kind == "logits" and correcting[1:] == ["drw"]):
        raise EvenhandError(
            f"Cannot train with {text!r}: {correcting[0]} and {correcting[1]} both correct for the class counts; leave "
            "one out."
        )
    for part in parts:
        part.check(parts)
    return ObjectiveSpec.of(tuple(part.simplified() for part in parts))


def parse_stage(text: str, epochs: int | None = None) -> str:
    """Return the canonical spelling of a second stage alone, as `--stage` takes it.

    Args:
        text: the name of a second stage, with its settings.
        epochs: of the stage, where its settings do not say.

    Raises:
        EvenhandError: this is no stage, or its epochs are given twice or are too few; in one sentence.

    Example:
        >>> from evenhand.objectives import parse_stage
        >>> parse_stage("crt"), parse_stage("lws", epochs=5)
        ('crt', 'lws:epochs=5')
    """
    names = stage_names()
    if text.partition(":")[0] not in names or "+" in text:
        raise EvenhandError(f"A second stage is {' or '.join(names)}, with its settings, got {text!r}.")
    stage = ObjectiveSpec(text).stage
    assert stage is not None
    if epochs is not None:
        if "epochs" in stage.model_fields_set and stage.epochs != epochs:
            raise EvenhandError(f"{text} and --epochs {epochs} both set the length of the second stage; give one.")
        stage = ObjectiveSpec(f"{stage.name}:epochs={epochs}").stage
        assert stage is not None
    return stage.spec()


def stage_names() -> list[str]:
    """Return the names of all second stages."""
    return [part.name for part in all_parts() if issubclass(part, StagePart)]


def all_parts() -> list[type[Part]]:
    """Return every part: losses first, then by kind."""
    order = ["loss", *KINDS]
    return sorted(PARTS.values(), key=lambda part: order.index(part.kind))


def _read_part(given: SpecPart, spec: str) -> Part:
    names = {alias: part.name for part in all_parts() for alias in (part.name, *part.aliases)}
    if given.name not in names:
        near = difflib.get_close_matches(given.name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
        raise EvenhandError(f"There is no objective {given.name!r}; {hint}")
    part = PARTS[names[given.name]]
    stats = list(part.model_fields)
    if given.value is not None or not set(given.options) <= set(stats):
        takes = f"takes {' and '.join(stats)}" if stats else "takes no options"
        raise EvenhandError(f"Cannot train with {spec!r}: {given.name} {takes}.")
    try:
        return part.model_validate({key: _value(text) for key, text in given.options.items()})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise EvenhandError(
            f"The {key} of {part.name} must be {wanted(part.model_fields[key])}, got {given.options[key]!r}."
        ) from None


def _value(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def wanted(field: FieldInfo) -> str:
    """Say what a setting may be."""
    choices: list[str] = []
    for kind in _alternatives(field.annotation):
        if get_origin(kind) is Literal:
            choices += [str(value) for value in get_args(kind)]
        elif kind is not NoneType:
            # Beside words, a number has its bounds with it: those of the field would be asked of the words, too.
            own, bounded = (kind, field) if get_origin(kind) is not Annotated else get_args(kind)
            choices.append(("a whole number" if own is int else "a number") + _bounds(bounded))
    return " or ".join(choices)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _bounds(field: FieldInfo) -> str:
    limits = {
        name: getattr(each, name)
        for each in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(each, name, None) is not None
    }
    lower = f"of {limits['ge']:g} or more" if "ge" in limits else f"above {limits['gt']:g}" if "gt" in limits else ""
    upper = f"up to {limits['le']:g}" if "le" in limits else f"below {limits['lt']:g}" if "lt" in limits else ""
    return "".join(f" {text}" for text in (" and ".join(filter(None, (lower, upper))),) if text)
