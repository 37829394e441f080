"""The grammar of specs: objectives, imbalances and other choices as short text.

A spec is `name`, `name:value`, or `name:key=value:key=value`; parts are joined by `+`, lists of specs by `,`.
"""

import re
from dataclasses import dataclass, field

from evenhand.core.errors import EvenhandError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class SpecPart:
    """A part of a spec: its name, the value after the name (or None), and its options, all as text."""

    name: str
    value: str | None = None
    options: dict[str, str] = field(default_factory=dict)


def parse(text: str) -> tuple[SpecPart, ...]:
    """Parse a spec of one or more parts joined by `+`.

    Example:
        >>> from evenhand.core.spec import parse
        >>> parse("exp:100")
        (SpecPart(name='exp', value='100', options={}),)
        >>> parse("focal:gamma=2:alpha=0.25")[0].options
        {'gamma': '2', 'alpha': '0.25'}
    """
    return tuple(_parse_part(part, text) for part in re.split(r"\+(?=[a-z])", text.strip()))


def _parse_part(part: str, text: str) -> SpecPart:
    name, *settings = part.split(":")
    if not _NAME.fullmatch(name):
        raise EvenhandError(f"Cannot read {text!r}: expected NAME, NAME:VALUE or NAME:KEY=VALUE, got {part!r}.")
    value, options = None, {}
    for position, setting in enumerate(settings):
        key, equals, content = setting.partition("=")
        if equals and _NAME.fullmatch(key) and content:
            if key in options:
                raise EvenhandError(f"Cannot read {text!r}: {key} is given twice.")
            options[key] = content
        elif not equals and position == 0 and setting:
            value = setting
        else:
            raise EvenhandError(f"Cannot read {text!r}: expected KEY=VALUE after {name!r}, got {setting!r}.")
    return SpecPart(name, value, options)


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a path from the options behind it: `PATH:KEY=VALUE:KEY=VALUE`.

    Example:
        >>> from evenhand.core.spec import split_options
        >>> split_options("photos/train.parquet:image=img:label=fine_label")
        ('photos/train.parquet', {'image': 'img', 'label': 'fine_label'})
    """
    rest, options = text, dict[str, str]()
    while ":" in rest:
        before, _, setting = rest.rpartition(":")
        key, equals, content = setting.partition("=")
        if not (before and equals and content and _NAME.fullmatch(key)):
            break
        if key in options:
            raise EvenhandError(f"Cannot read {text!r}: {key} is given twice.")
        rest, options = before, {key: content, **options}
    return rest, options
