"""Tables with a column of images and one of labels, in one or more splits, as a source."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data._arrays import SPLITS, reading
from evenhand.data._arrow import ArrowImages, arrow_images, encoded
from evenhand.data._columns import (
    BYTES,
    STRUCT,
    Column,
    find_image_column,
    find_label_column,
    read_columns,
    read_labels,
)
from evenhand.data._manifest import Record, check_paths
from evenhand.data.folders import SPLIT_NAMES, class_problem
from evenhand.data.table import FilePixels, SampleTable, Split

OPTIONS = ("image", "label", "group", "test")
"""Options of such a source: three columns, and the split to test on."""
SPLITS_BY_NAME: dict[str, Split] = {**SPLIT_NAMES, "dev": "val"}


@dataclass(frozen=True)
class Part:
    """One split of a data set, or all of it."""

    name: str | None
    """The split as the data set names it; None: it has none."""
    schema: Any
    """Of Arrow."""
    length: int
    values: Callable[[str], list[Any]]
    """Returns a column as Python values."""
    images: Callable[[str], list[Any]]
    """Returns the images of a column as binary arrays that are not read yet."""
    fingerprint: str
    """Changes with the files."""
    others: tuple[tuple[str, Any], ...] = ()
    """The names and schemas of its further files."""


def dataset_table(
    source: str,
    name: str,
    root: Path,
    parts: Sequence[Part],
    options: Mapping[str, str],
    *,
    paths_from: Path,
    allow_outside: bool = False,
    strict: bool = True,
    notes: Sequence[str] = (),
) -> SampleTable:
    """Make a table of the splits of a data set; labels are read and checked before any image.

    Args:
        source: for messages.
        name: of the table.
        root: prefix of the names of images in messages.
        parts: the splits.
        options: those of `OPTIONS` that were given.
        paths_from: the folder that paths of images are relative to, and must not leave.
        allow_outside: accept paths that leave it.
        strict: require classes that can be trained and evaluated.
        notes: about the source.

    Raises:
        EvenhandError: a column is missing, several may be meant, or labels or splits cannot be used.
    """
    first = next((part for part in parts if SPLITS_BY_NAME.get((part.name or "").lower()) == "train"), parts[0])
    columns = read_columns(first.schema)
    image = find_image_column(source, columns, options.get("image"))
    label = find_label_column(source, columns, options.get("label"))
    notes = list(notes)
    for column in (image, label):
        without = [part for part in parts if column.name not in part.schema.names]
        notes += [f"Ignored the split {part.name!r}, which has no column {column.name!r}." for part in without]
        parts = [part for part in parts if part not in without]
    _check_same(source, parts, first, (image, label))
    used, splits = _choose_parts(source, parts, options.get("test"), notes)
    used, splits, values = _labelled(source, label, used, splits, notes)
    labels = read_labels(source, label, values)
    own = _split_column(source, columns, used, options.get("test")) if splits is None else None
    if splits is None and own is None and any(column.name == "split" for column in columns):
        notes.append("Ignored the column 'split', which has no names of splits such as train and test.")
    rows = np.concatenate([np.arange(part.length) for part in used])
    each = splits if splits is not None else own
    names = [part.name or "row" for part in used for _ in range(part.length)]
    ids = np.array([f"{prefix}/{row:05d}" for prefix, row in zip(names, rows.tolist(), strict=True)])
    class_names = labels.order or tuple(sorted(set(labels.names)))
    number = {each: place for place, each in enumerate(class_names)}
    numbers = np.array([number[each] for each in labels.names], np.int64)
    empty = np.flatnonzero(np.bincount(numbers, minlength=len(class_names)) == 0)
    if len(empty):
        notes.append(f"Ignored classes without images: {some([class_names[place] for place in empty])}.")
        kept = np.setdiff1d(np.arange(len(class_names)), empty)
        numbers, class_names = np.searchsorted(kept, numbers), tuple(class_names[place] for place in kept)
    problem = class_problem(source, class_names, numbers, None if each is None else np.array(each))
    if strict and problem:
        raise EvenhandError(problem)
    return SampleTable(
        name=name,
        class_names=class_names,
        labels=numbers,
        ids=ids,
        pixels=_pixels(source, root, image, used, ids, paths_from, allow_outside),
        splits=None if each is None else np.array(each),
        groups=_groups(source, columns, used, options.get("group"), each),
        notes=tuple(notes),
    )


def _check_same(source: str, parts: Sequence[Part], first: Part, columns: Sequence[Column]) -> None:
    """Refuse splits or files in which a column has another type, or a label other classes behind its numbers."""
    schemas = [(part.name or source, part.schema) for part in parts] + [each for part in parts for each in part.others]
    for name, schema in schemas:
        own = {column.name: column for column in read_columns(schema)}
        for column in columns:
            found = own[column.name]
            alike = {column.kind, found.kind} <= {BYTES, STRUCT}  # both hold encoded images
            if not alike and (found.kind, found.class_names) != (column.kind, column.class_names):
                raise EvenhandError(
                    f"{source} has the column {column.name!r} as {column.describe()} in {first.name or source!r}, but "
                    f"as {found.describe()} in {name!r}; save them alike."
                )


def _choose_parts(
    source: str, parts: Sequence[Part], test: str | None, notes: list[str]
) -> tuple[list[Part], list[Split] | None]:
    """Return the splits that are used, and what each is used for; None: they are to be cut."""
    names = [part.name for part in parts]
    if len(parts) == 1:
        if test is not None and test == names[0]:
            raise EvenhandError(f"{source} has only the split {test!r}, so nothing would be left to train on.")
        if test is not None and "split" not in parts[0].schema.names:
            raise EvenhandError(f"{source} has no splits, so none can be the test set; leave out test={test}.")
        return list(parts), None
    found: dict[str, Split] = {
        name: SPLITS_BY_NAME[name.lower()] for name in names if name and name.lower() in SPLITS_BY_NAME
    }
    if test is not None:
        if test not in names:
            raise EvenhandError(f"{source} has no split {test!r}; it has {some([name or '' for name in names])}.")
        found = {**{name: kind for name, kind in found.items() if kind != "test"}, test: "test"}
        others = [name for name in names if name and name != test]
        if len(others) == 1 and others[0] not in found:
            found[others[0]] = "train"
    missing = [kind for kind in ("train", "test") if kind not in found.values()]
    if "test" in missing and "val" in found.values() and "train" in found.values():
        other = next(name for name, kind in found.items() if kind == "val")
        raise EvenhandError(f"{source} has no test split; give {source}:test={other} to test on {other!r}.")
    if missing:
        listed = some([name or "" for name in names])
        hint = f"name the test set, as in {source}:test={names[-1]}" if test is None else "rename the one to train on"
        raise EvenhandError(f"{source} has the splits {listed}, none of which is named {missing[0]}; {hint}.")
    unused = [name or "" for name in names if name not in found]
    if unused:
        notes.append(f"Ignored splits: {some(unused)}.")
    used = sorted((part for part in parts if part.name in found), key=lambda part: SPLITS.index(found[part.name or ""]))
    return used, [found[part.name or ""] for part in used]


def _labelled(
    source: str, label: Column, parts: list[Part], kinds: list[Split] | None, notes: list[str]
) -> tuple[list[Part], list[Split] | None, list[Any]]:
    """Return the splits that have labels, the split of each row, and all labels."""
    used: list[Part] = []
    rows: list[Split] = []
    values: list[Any] = []
    for place, part in enumerate(parts):
        own = part.values(label.name)
        none = [
            value is None or value != value or (label.class_names is not None and value == -1)  # NaN is not itself
            for value in own
        ]
        if own and all(none) and kinds is not None:
            notes.append(f"Ignored the split {part.name!r}, which has no labels.")
            continue
        if any(none):
            where = f"row {none.index(True) + 1}{f' of {part.name}' if part.name else ''}"
            raise EvenhandError(
                f"{source}: {sum(none):,} of {len(own):,} labels ({label.name!r}) are missing, the first in {where}; "
                "remove these rows."
            )
        used.append(part)
        values += own
        rows += [] if kinds is None else [kinds[place]] * part.length
    if not values:
        raise EvenhandError(f"{source} has no labelled images; add rows.")
    if kinds is not None and len(used) == 1:
        return used, None, values
    if kinds is not None and "test" not in rows:
        other = next((part.name for part in used if kinds[parts.index(part)] == "val"), None)
        hint = f"; give {source}:test={other} to test on {other!r}" if other else ""
        raise EvenhandError(f"The test split of {source} has no labels{hint}.")
    return used, None if kinds is None else rows, values


def _split_column(
    source: str, columns: Sequence[Column], parts: Sequence[Part], test: str | None
) -> list[Split] | None:
    """Return the split of each row as a column `split` gives it; None: there is none."""
    if not any(column.name == "split" and column.kind == "text" for column in columns):
        return None
    names = [str(value or "").strip() for part in parts for value in part.values("split")]
    if not any(names):
        return None
    found: dict[str, Split] = {
        name: SPLITS_BY_NAME[name.lower()] for name in set(names) if name.lower() in SPLITS_BY_NAME
    }
    if test is not None:
        if test not in names:
            raise EvenhandError(
                f"{source} has no split {test!r} in its column 'split'; it has {some(sorted(set(names)))}."
            )
        left_out = next((name for name, kind in found.items() if kind == "test" and name != test), None)
        if left_out is not None:
            raise EvenhandError(
                f"{source} has a test set, the split {left_out!r}, besides test={test}; leave out test={test}, or "
                f"remove the rows of {left_out!r}."
            )
        found[test] = "test"
    for row, name in enumerate(names, start=1):
        if name not in found:
            raise EvenhandError(f"{source}, row {row}: the split must be train, val or test, got {name!r}.")
    return [found[name] for name in names]


def _groups(
    source: str, columns: Sequence[Column], parts: Sequence[Part], given: str | None, splits: Sequence[Split] | None
) -> Any:
    """Return the group of each row: of the given column, or one named `group`."""
    name = given or "group"
    if name not in [column.name for column in columns]:
        if given is not None:
            listed = some([column.name for column in columns])
            raise EvenhandError(f"{source} has no column {given!r}; it has {listed}.")
        return None
    values = [value for part in parts for value in part.values(name)]
    # The leading space distinguishes rows without a group from every given name.
    groups = [
        f" {row}" if value in (None, "") or value != value else str(value).strip()  # NaN is not equal to itself
        for row, value in enumerate(values)
    ]
    side: dict[str, Split] = {}
    for group, split in zip(groups, splits or (), strict=False):
        if side.setdefault(group, split) != split:
            raise EvenhandError(
                f"{source}: the group {group!r} is in {side[group]} and in {split}; a group must be in one split."
            )
    return np.array(groups)


def _pixels(
    source: str, root: Path, image: Column, parts: Sequence[Part], ids: Any, paths_from: Path, allow_outside: bool
) -> FilePixels:
    """Return the images: the bytes in the column, or the files that its paths name."""
    if image.kind == "text" or (image.kind == "struct" and _only_paths(parts, image.name)):
        values = [value for part in parts for value in part.values(image.name)]
        named = [str((value.get("path") if isinstance(value, dict) else value) or "") for value in values]
        without = [row for row, value in enumerate(named, start=1) if not value]
        if without:
            raise EvenhandError(f"{source}, row {without[0]}: {image.name!r} has neither bytes nor a path of an image.")
        folder = paths_from.resolve()
        inside = [os.path.relpath(path, folder) if _is_in(path, folder) else path for path in named]
        records = [Record(row, os.path.normpath(path).replace(os.sep, "/")) for row, path in enumerate(inside, start=1)]
        check_paths(source, folder, records, allow_outside, unit="row")
        return FilePixels(folder, [record.path for record in records])
    with reading(root):
        chunks = [chunk for part in parts for chunk in part.images(image.name)]
        packed: ArrowImages = arrow_images(chunks, " ".join(part.fingerprint for part in parts))
    return FilePixels(root, ids.tolist(), packed=packed)


def _is_in(path: str, folder: Path) -> bool:
    return os.path.isabs(path) and Path(path).is_relative_to(folder)


def _only_paths(parts: Sequence[Part], column: str) -> bool:
    """Return whether no row of a struct has bytes; only the first rows with an image are read."""
    for part in parts:
        if not any(field.name == "bytes" for field in part.schema.field(column).type):
            return True
        for chunk in part.images(column):
            if chunk.null_count < len(chunk):
                return False
    return True


def table_columns(table: Any, fingerprint: str, name: str | None, schema: Any) -> Part:
    """Return a split whose columns are in a memory-mapped Arrow table."""

    def images(column: str) -> list[Any]:
        return [encoded(chunk) for chunk in table.column(column).chunks]

    return Part(name, schema, len(table), lambda column: table.column(column).to_pylist(), images, fingerprint)
