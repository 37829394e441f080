"""The values that a pydantic field allows, in words."""

import types
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

UNIONS = (Union, types.UnionType)


def describe_allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Return the values that a field allows.

    Args:
        annotation: the type of the field.
        metadata: its bounds, as `FieldInfo.metadata` has them.

    Example:
        >>> from typing import Literal
        >>> from evenhand.core.allowed import describe_allowed
        >>> describe_allowed(int | Literal["auto"]), describe_allowed(list[float]), describe_allowed(bool | None)
        ('a whole number or auto', 'a list of numbers', 'true or false or null')
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(map(str, inner))
    if origin is Annotated:
        bounds = [bound for each in inner[1:] for bound in getattr(each, "metadata", [each])]
        return describe_allowed(inner[0], [*bounds, *metadata])
    if origin in UNIONS:
        return " or ".join(describe_allowed(each, metadata) for each in inner)
    if origin in (tuple, list):
        item = get_args(inner[0])[0] if get_origin(inner[0]) is Annotated else inner[0]
        return f"a list of {describe_allowed(item).removeprefix('a ')}s"
    if annotation in (int, float):
        return ("a whole number" if annotation is int else "a number") + _bounds(metadata)
    return {bool: "true or false", types.NoneType: "null"}.get(annotation, "text")


def _bounds(metadata: Sequence[Any]) -> str:
    limits = {
        name: getattr(each, name)
        for each in metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(each, name, None) is not None and abs(getattr(each, name)) < 2**62
    }
    if "ge" in limits and "le" in limits:
        return f" from {limits['ge']:g} to {limits['le']:g}"
    lower = f"of {limits['ge']:g} or more" if "ge" in limits else f"above {limits['gt']:g}" if "gt" in limits else ""
    upper = f"up to {limits['le']:g}" if "le" in limits else f"below {limits['lt']:g}" if "lt" in limits else ""
    return " ".join(["", *filter(None, [lower, "and" * bool(lower and upper), upper])]) if lower or upper else ""
