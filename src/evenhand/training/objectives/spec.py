"""From the text of an objective to its parts, and back to the one spelling that it has."""

import difflib
from itertools import pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import SpecPart, parse
from evenhand.training.objectives.losses import CrossEntropy
from evenhand.training.objectives.part import KINDS, PARTS, Known, Part, spelled

_SHOWN_WITHOUT_CE = ("logits", "step")
"""Kinds of parts that can stand alone for an objective: beside them ce is not written."""


def read_parts(spec: str) -> tuple[Part, ...]:
    """Read the parts of an objective, in their order, ce where no loss is named.

    Raises:
        EvenhandError: one sentence about the first mistake.
    """
    parts = [_read_part(each, spec) for each in parse(spec)]
    if not any(part.kind == "loss" for part in parts):
        parts.append(CrossEntropy())
    order = list(KINDS)
    parts.sort(key=lambda part: order.index(part.kind))
    for one, other in pairwise(parts):
        if one.kind == other.kind:
            twice = one.name == other.name
            what = f"{one.name} stands there twice" if twice else f"{one.name} and {other.name} are of one kind"
            raise EvenhandError(f"Cannot train with {spec!r}: {what}, which changes {KINDS[one.kind]}; leave one out.")
    staged = any(part.kind == "stage" for part in parts)
    # What makes up for the counts in a first stage rests in the second, which does so anew.
    acting = [part for part in parts if not staged or part.kind in ("stage", "after")]
    correcting = [part.name for part in acting if part.corrects]
    if len(correcting) > 1:
        raise EvenhandError(
            f"Cannot train with {spec!r}: {correcting[0]} and {correcting[1]} both make up for the class counts, which "
            "would be done twice; leave one out."
        )
    for part in parts:
        part.check(parts)
    return tuple(part.plainest() for part in parts)


def spell(parts: tuple[Part, ...]) -> str:
    """Return the one spelling of an objective."""
    alone = any(part.kind in _SHOWN_WITHOUT_CE for part in parts)
    return "+".join(part.spec() for part in parts if not (alone and isinstance(part, CrossEntropy)))


def settings_of(part: type[Part]) -> dict[str, str]:
    """Return what each setting of a part may be, its default and what it does, in words.

    Example:
        >>> from evenhand.training.objectives.losses import Focal
        >>> from evenhand.training.objectives.spec import settings_of
        >>> settings_of(Focal)["gamma"]
        'a number of 0 or more (2): how fast it fades'
    """
    texts = {}
    for key, field in part.model_fields.items():
        default = "" if field.default is None else f" ({spelled(field.default)})"
        texts[key] = f"{_wanted(field)}{default}: {field.description}"
    return texts


def settings_to_try(spec: str, num_classes: int | None = None) -> list[str]:
    """Return what `compare --tune` trains for an objective: itself, and each setting that one of its parts declares.

    One part is changed at a time, so that there are few. A part that is given with settings stays as it is given.

    Args:
        spec: an objective.
        num_classes: K, to leave out settings that do not go with so few classes; None: not known.

    Raises:
        EvenhandError: there is no such objective, in one sentence.

    Example:
        >>> from evenhand.training.objectives import settings_to_try
        >>> settings_to_try("label-smoothing")
        ['ce+label-smoothing', 'ce+label-smoothing:eps=0.05', 'ce+label-smoothing:eps=0.2']
        >>> settings_to_try("cce:share=0.3")
        ['cce:share=0.3']
    """
    parts = read_parts(spec)
    found = [spell(parts)]
    for place, part in enumerate(parts):
        tuned = PARTS[part.tuned_as or part.name]
        for settings in () if part.model_fields_set else tuned.tried:
            changed = (*parts[:place], tuned.model_validate(settings), *parts[place + 1 :])
            if _goes_together(changed, num_classes):
                found.append(spell(changed))
    return found


def _goes_together(parts: tuple[Part, ...], num_classes: int | None) -> bool:
    try:
        for part in parts:
            part.check(parts)
            if num_classes is not None:
                part.check_known(Known((1,) * num_classes))
    except EvenhandError:
        return False
    return True


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
    known = list(part.model_fields)
    if given.value is not None or not set(given.options) <= set(known):
        takes = f"takes {' and '.join(known)}" if known else "takes no options"
        raise EvenhandError(f"Cannot train with {spec!r}: {given.name} {takes}.")
    try:
        return part.model_validate({key: _value(text) for key, text in given.options.items()})
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise EvenhandError(
            f"The {key} of {part.name} must be {_wanted(part.model_fields[key])}, got {given.options[key]!r}."
        ) from None


def _value(text: str) -> Any:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _wanted(field: FieldInfo) -> str:
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
