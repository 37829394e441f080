"""Columns of a table of images: which has the images, which the labels, and what the labels mean."""

import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some

IMAGE_NAMES = (
    "image",
    "img",
    "picture",
    "photo",
    "jpg",
    "jpeg",
    "png",
    "webp",
    "path",
    "file",
    "file_name",
    "filename",
)
LABEL_NAMES = ("label", "labels", "class", "category", "target", "fine_label", "class_name", "y")
BYTES, STRUCT = "bytes", "struct"
LABEL_KINDS = ("number", "boolean", "text")


@dataclass(frozen=True)
class Column:
    """A column as its file declares it."""

    name: str
    kind: str
    """`text`, `number`, `boolean`, `bytes`, `struct` (of bytes and a path) or another type."""
    feature: Mapping[str, Any]
    """Its feature as Hugging Face's datasets describes it; empty where the file has none."""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of a class label; None: it is none."""
        names = self.feature.get("names")
        if self.feature.get("_type") != "ClassLabel" or not isinstance(names, list):
            return None
        return tuple(unicodedata.normalize("NFC", str(name)) for name in names)

    def describe(self) -> str:
        """Return its type, and the classes that it names."""
        names = self.class_names
        return self.kind if names is None else f"{self.kind} of the classes {some(names)}"


def read_columns(schema: Any) -> list[Column]:
    """Return the columns of an Arrow schema, with the features that datasets stores in its metadata."""
    import pyarrow.types as of

    features: Any = {}
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError):
        features = {}  # written by others; the types are enough
    columns = []
    for field in schema:
        kind = field.type.value_type if of.is_dictionary(field.type) else field.type
        if of.is_string(kind) or of.is_large_string(kind) or str(kind) == "string_view":
            name = "text"
        elif (
            any(is_kind(kind) for is_kind in (of.is_binary, of.is_large_binary, of.is_fixed_size_binary))
            or str(kind) == "binary_view"
        ):
            name = "bytes"
        elif of.is_integer(kind) or of.is_floating(kind):  # a missing value makes pandas' whole numbers floats
            name = "number"
        elif of.is_boolean(kind):
            name = "boolean"
        elif of.is_struct(kind) and {"bytes", "path"} & {part.name for part in kind}:
            name = "struct"
        else:
            name = str(kind)
        feature = features.get(field.name) if isinstance(features, dict) else None
        columns.append(Column(field.name, name, feature if isinstance(feature, dict) else {}))
    return columns


def find_image_column(source: str, columns: Sequence[Column], given: str | None) -> Column:
    """Return the column of the images: the given one, or the only one that can be it.

    Raises:
        EvenhandError: there is none, or several.
    """
    if given is not None:
        column = _named(source, columns, given)
        if column.kind not in ("bytes", "struct", "text"):
            raise EvenhandError(
                f"The column {given!r} of {source} has the type {column.kind}; images are encoded (JPEG, PNG, ...) "
                "bytes or paths."
            )
        return column
    tiers = (
        [each for each in columns if each.feature.get("_type") == "Image"],
        [each for each in columns if each.kind == "struct"],
        [each for each in columns if each.kind == "bytes"],
        [each for each in columns if each.kind == "text" and each.name.lower() in IMAGE_NAMES],
    )
    unusable = [each.name for each in columns if each.name.lower() in IMAGE_NAMES]
    if not any(tiers) and len(unusable) == 1:
        return find_image_column(source, columns, unusable[0])  # says what is wrong with its type
    return _only(source, "image", next((tier for tier in tiers if tier), []), columns, IMAGE_NAMES[:2])


def find_label_column(source: str, columns: Sequence[Column], given: str | None) -> Column:
    """Return the column of the labels: the given one, or the only one that can be it.

    Raises:
        EvenhandError: there is none, or several.
    """
    if given is not None:
        column = _named(source, columns, given)
        if column.kind not in LABEL_KINDS:
            raise EvenhandError(
                f"The column {given!r} of {source} has the type {column.kind}; labels are whole numbers or text, one "
                "per image."
            )
        return column
    usable = [each for each in columns if each.kind in LABEL_KINDS]
    tiers = (
        [each for each in usable if each.class_names is not None],
        [each for each in usable if each.name.lower() in LABEL_NAMES],
    )
    unusable = [each.name for each in columns if each.name.lower() in LABEL_NAMES or each.class_names is not None]
    if not any(tiers) and len(unusable) == 1:
        return find_label_column(source, columns, unusable[0])  # says what is wrong with its type
    return _only(source, "label", next((tier for tier in tiers if tier), []), columns, LABEL_NAMES[:1])


def _named(source: str, columns: Sequence[Column], name: str) -> Column:
    for column in columns:
        if column.name == name:
            return column
    raise EvenhandError(f"{source} has no column {name!r}; it has {some([each.name for each in columns])}.")


def _only(
    source: str, what: str, found: Sequence[Column], columns: Sequence[Column], preferred: Sequence[str]
) -> Column:
    best = [each for name in preferred for each in found if each.name.lower() == name] or found
    if len(found) == 1 or (best is not found and best):
        return best[0]
    if not found:
        raise EvenhandError(
            f"{source} has no column that looks like the {what}: its columns are "
            f"{some([each.name for each in columns])}; name it, as in {source}:{what}=NAME."
        )
    raise EvenhandError(
        f"{source} has several columns that may be the {what}: {some([each.name for each in found])}; choose one, as "
        f"in {source}:{what}={found[0].name}."
    )


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as names."""

    names: list[str]
    """(N,)."""
    order: tuple[str, ...] | None
    """The classes in the order of the data set; None: by name."""


def read_labels(source: str, column: Column, values: Sequence[Any]) -> Labels:
    """Return the labels of a column as class names.

    Args:
        source: the source, for messages.
        column: the column.
        values: (N,), as Python values; none of them is missing.

    Raises:
        EvenhandError: a label is empty or has no name.
    """
    if column.kind == "text":
        names = [unicodedata.normalize("NFC", str(value).strip()) for value in values]
        if "" in names:
            raise EvenhandError(f"{source}, row {names.index('') + 1}: the label ({column.name!r}) is empty.")
        return Labels(names, None)
    broken = next((row for row, value in enumerate(values, start=1) if value != value // 1), None)
    if broken is not None:
        raise EvenhandError(
            f"{source}, row {broken}: the label ({column.name!r}) is {values[broken - 1]:g}; labels are whole numbers "
            "or text, one per image."
        )
    if column.kind == "number":
        values = [int(value) for value in values]
    known = column.class_names
    if known is None:
        return Labels([str(value) for value in values], tuple(map(str, sorted(set(values)))))
    numbers: NDArray[np.int64] = np.array([min(int(value), 2**62) for value in values], np.int64)
    if len(set(known)) < len(known):
        raise EvenhandError(f"{source} names its classes {some(known)}, some of which are equal; rename them.")
    wrong = np.flatnonzero((numbers < 0) | (numbers >= len(known)))
    if len(wrong):
        raise EvenhandError(
            f"{source}, row {wrong[0] + 1}: the label is {numbers[wrong[0]]}, but {column.name!r} names {len(known)} "
            "classes, numbered from 0."
        )
    return Labels([known[number] for number in numbers], known)
