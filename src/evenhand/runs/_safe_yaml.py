"""YAML from untrusted files: size, depth and aliases are checked before anything is built."""

from pathlib import Path
from typing import Any

import yaml

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes

MOST_BYTES, MOST_NODES, MOST_DEPTH, LONGEST_VALUE = 2**16, 10_000, 20, 4096
"""A config has about 60 values on 3 levels; the longest path of a system has 4,096 bytes."""


class Unreadable(ValueError):  # noqa: N818 - of the text, not of the program
    """The text is not YAML, or a value does not fit its tag."""


def parse_yaml(text: str) -> Any:
    """Read a YAML document.

    Raises:
        EvenhandError: it is larger or deeper than any config, or its aliases would expand to more.
        Unreadable: it is not YAML.

    Example:
        >>> from evenhand.runs._safe_yaml import parse_yaml
        >>> parse_yaml("{epochs: 3, data: {source: digits}}")
        {'epochs': 3, 'data': {'source': 'digits'}}
    """
    if len(text) > MOST_BYTES:
        raise EvenhandError(f"it has {len(text):,} characters, more than the limit of {MOST_BYTES:,}.")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > MOST_NODES:
            raise EvenhandError(f"its aliases expand to more than {MOST_NODES:,} values.")
        return loader.construct_document(node)
    except EvenhandError:
        raise
    except (yaml.YAMLError, MemoryError, RecursionError) as error:
        raise Unreadable(reason(error)) from error
    # A tag that does not fit its value raises whatever int(), dict or date raise.
    except Exception as error:
        raise Unreadable(f"a value does not fit its tag or type: {reason(error)}") from error


def read_yaml(path: Path, *, within: Path | None = None) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    try:
        content = parse_yaml(read_bytes(path, MOST_BYTES, within=within).decode())
    except (EvenhandError, Unreadable, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, UnicodeDecodeError) else str(error)
        why = why.removeprefix(f"Cannot read {path}: ").rstrip(".")
        raise EvenhandError(f"Cannot read the config {path}: {why}.") from error
    if not isinstance(content, dict):
        raise EvenhandError(f"Cannot read the config {path}: expected KEY: VALUE lines, got {type(content).__name__}.")
    return content


# Not the faster loader in C: deep nesting crashes the process.
class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > LONGEST_VALUE:
            raise EvenhandError(
                f"a value has {len(event.value):,} characters, more than the limit of {LONGEST_VALUE:,}."
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
            raise EvenhandError(f"a whole number has {value.bit_length()} bits, more than the limit of 63.")
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values of a node with all aliases expanded."""
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = MOST_NODES + 1  # for a node that contains itself
    children: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        children = node.value
    elif isinstance(node, yaml.MappingNode):
        children = [each for pair in node.value for each in pair]
    known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]
