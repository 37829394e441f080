"""YAML of strangers: size, depth and aliases are looked at before anything is built of it."""

from pathlib import Path
from typing import Any

import yaml

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes

MOST_BYTES, MOST_NODES, MOST_DEPTH, LONGEST_VALUE = 2**16, 10_000, 20, 4096
"""A config has about 60 values on 3 levels; the longest path that a system takes has 4,096 bytes."""


class Unreadable(ValueError):  # noqa: N818 - of the text, not of the program
    """It is no YAML, or YAML that holds what its tags say it does not."""


def parse_yaml(text: str) -> Any:
    """Read a YAML document.

    Raises:
        EvenhandError: it is larger, deeper, or by its aliases would become larger than anything a config needs.
        Unreadable: it is no YAML.

    Example:
        >>> from evenhand.runs._safe_yaml import parse_yaml
        >>> parse_yaml("{epochs: 3, data: {source: digits}}")
        {'epochs': 3, 'data': {'source': 'digits'}}
    """
    if len(text) > MOST_BYTES:
        raise EvenhandError(f"it has {len(text):,} characters, and more than {MOST_BYTES:,} are not read.")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MOST_NODES:
            raise EvenhandError(f"by its aliases it would grow to more than {MOST_NODES:,} values.")
        return loader.construct_document(node)
    except EvenhandError:
        raise
    except (yaml.YAMLError, MemoryError, RecursionError) as error:
        raise Unreadable(reason(error)) from error
    # A tag that does not fit its value fails as int(), a dictionary or a date fail, so nothing narrower is safe.
    except Exception as error:
        raise Unreadable(f"a value does not fit its tag or type: {reason(error)}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    try:
        content = parse_yaml(_decode(path))
    except (EvenhandError, Unreadable) as error:
        told = str(error).removeprefix(f"Cannot read {path}: ").rstrip(".")
        raise EvenhandError(f"Cannot read the config {path}: {told}.") from error
    if not isinstance(content, dict):
        raise EvenhandError(f"Cannot read the config {path}: expected KEY: VALUE lines, got {type(content).__name__}.")
    return content


def _decode(path: Path) -> str:
    try:
        return read_bytes(path, MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise Unreadable(reason(error)) from error


# Not the faster loader in C, which deep nesting brings down with the whole process.
class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_VALUE:
            raise EvenhandError(
                f"a value has {len(event.value):,} characters, and more than {LONGEST_VALUE:,} are not read."
            )
        if self.depth == MOST_DEPTH:
            raise EvenhandError(f"it is nested more than {MOST_DEPTH} deep.")
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_yaml_int(self, node: Any) -> int:
        value = int(super().construct_yaml_int(node))
        if abs(value) >= 2**63:
            raise EvenhandError(f"a whole number has {value.bit_length()} bits, and more than 63 are not read.")
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node becomes when each alias is replaced by what it stands for."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MOST_NODES + 1  # of a node inside itself
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.MappingNode):
        children = [each for pair in node.value for each in pair]
    known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]
