"""CSV manifests: one line per image, with path and label, and optionally split and group."""

import csv
import io
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import open_regular
from evenhand.core.text import some
from evenhand.data.folders import SPLIT_NAMES, leaves, number_classes
from evenhand.data.table import FilePixels, SampleTable, Split

COLUMNS = ("path", "label", "split", "group")


def load_csv(path: Path | str, *, allow_outside: bool = False, strict: bool = True) -> SampleTable:
    r"""Read a CSV manifest: columns `path` and `label`, and optionally `split` and `group`, in UTF-8.

    Paths are relative to the folder of the CSV file and stay inside it, unless others are allowed. `split` is train,
    val (or valid, validation) or test, for every line or for none. Samples with the same `group` are always in the same
    split; a line without a group is a group of its own. Classes are sorted by name.

    Args:
        path: the file.
        allow_outside: accept absolute paths, and paths and links that lead out of the folder.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: a path is missing, repeated or leaves the folder, a label is empty, or a split is unknown; the
            message names the line.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.data import load_csv
        >>> root = Path(tempfile.mkdtemp())
        >>> for name in ("a.png", "b.png"):
        ...     (root / name).touch()
        >>> _ = (root / "list.csv").write_text("path,label\na.png,dog\nb.png,cat\n")
        >>> table = load_csv(root / "list.csv")
        >>> table.class_names, table.labels.tolist()
        (('cat', 'dog'), [1, 0])
    """
    path = Path(path)
    root = path.resolve().parent
    columns, records = _read(path)
    check_paths(path, root, records, allow_outside)
    splits = _splits(path, records)
    class_names, labels = number_classes(str(path), [record.label for record in records], splits, strict=strict)
    groups = [record.group for record in records]
    if any(groups):
        # Lines without a group are named by their number; the leading space distinguishes it from every given name.
        groups = [record.group or f" {record.line}" for record in records]
        _refuse_straddling(path, records, splits)
    others = [name for name in columns if name not in COLUMNS]
    return SampleTable(
        name=path.stem,
        class_names=class_names,
        labels=labels,
        ids=np.array([record.path for record in records]),
        pixels=FilePixels(root, [record.path for record in records]),
        splits=None if splits is None else np.array(splits),
        groups=np.array(groups) if any(groups) else None,
        notes=(f"Ignored columns of {path.name}: {some(others)}.",) if others else (),
    )


@dataclass(frozen=True)
class Record:
    """An image of a manifest."""

    line: int
    path: str
    label: str = ""
    split: str = ""
    group: str = ""


def _read(path: Path) -> tuple[list[str], list[Record]]:
    """Return the column names and the lines, with normalised paths (`./a//b.png` is `a/b.png`)."""
    try:
        with io.TextIOWrapper(open_regular(path), newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file, strict=True)
            columns = [name.strip().lower() for name in next(rows, [])]
            if not {"path", "label"} <= set(columns) or len(set(columns)) < len(columns):
                raise EvenhandError(
                    f"{path} must start with a header line path,label and optionally split,group, "
                    f"got {','.join(columns)[:80]!r}."
                )
            records = list(_records(path, columns, ((rows.line_num, row) for row in rows)))
    except UnicodeDecodeError as error:
        raise EvenhandError(f"{path} is not in UTF-8 (byte {error.start}); save it as UTF-8.") from error
    except csv.Error as error:
        raise EvenhandError(f"Cannot read {path} as CSV, line {rows.line_num}: {error}.") from error
    except OSError as error:
        raise EvenhandError(f"Cannot read {path}: {error.strerror}.") from error
    if not records:
        raise EvenhandError(f"{path} lists no images; add lines with a path and a label.")
    return columns, records


def _records(path: Path, columns: Sequence[str], rows: Iterable[tuple[int, list[str]]]) -> Iterator[Record]:
    for line, row in rows:
        if not any(row):
            continue
        if len(row) != len(columns):
            raise EvenhandError(f"{path}, line {line}: expected {len(columns)} fields, got {len(row)}.")
        fields = {name: value.strip() for name, value in zip(columns, row, strict=True)}
        for name in ("path", "label"):
            if not fields[name]:
                raise EvenhandError(f"{path}, line {line}: the {name} is empty.")
        yield Record(
            line,
            os.path.normpath(fields["path"]).replace(os.sep, "/"),
            fields["label"],
            fields.get("split", "").lower(),
            fields.get("group", ""),
        )


def check_paths(
    path: Path | str, root: Path, records: Sequence[Record], allow_outside: bool, unit: str = "line"
) -> None:
    """Refuse paths that are repeated, leave the root or name no file; `unit` names the number of a record."""
    first: dict[str, int] = {}
    missing: list[Record] = []
    inside: dict[str, bool] = {}
    for record in records:
        where = f"{path}, {unit} {record.line}"
        if record.path in first:
            raise EvenhandError(f"{where}: {record.path!r} is already in {unit} {first[record.path]}.")
        first[record.path] = record.line
        if not allow_outside and (os.path.isabs(record.path) or record.path.split("/")[0] == ".."):
            raise EvenhandError(
                f"{where}: {record.path!r} leaves the folder {root}; give a path inside it, or --allow-outside."
            )
        full = os.path.join(root, record.path)
        folder = os.path.dirname(full)
        if folder not in inside:
            inside[folder] = allow_outside or not leaves(root, folder)
        try:
            mode = os.lstat(full).st_mode
            if not inside[folder] or (not allow_outside and stat.S_ISLNK(mode) and leaves(root, full)):
                raise EvenhandError(
                    f"{where}: {record.path!r} is a link that leaves the folder {root}; copy the file, or give "
                    "--allow-outside."
                )
            if not stat.S_ISREG(mode if not stat.S_ISLNK(mode) else os.stat(full).st_mode):
                raise EvenhandError(f"{where}: {record.path!r} is not a file.")
        except (OSError, ValueError):  # ValueError: a NUL in the name
            missing.append(record)
    if missing:
        shown = ", ".join(f"{record.path!r} ({unit} {record.line})" for record in missing[:3])
        raise EvenhandError(
            f"{path} names {len(missing):,} file{'s' * (len(missing) > 1)} that {'are' if len(missing) > 1 else 'is'} "
            f"not there: {shown}{', ...' * (len(missing) > 3)}; paths are relative to {root}."
        )


def _splits(path: Path, records: Sequence[Record]) -> list[Split] | None:
    if not any(record.split for record in records):
        return None
    for record in records:
        if record.split not in SPLIT_NAMES:
            raise EvenhandError(
                f"{path}, line {record.line}: the split must be train, val or test, got {record.split!r}."
            )
    return [SPLIT_NAMES[record.split] for record in records]


def _refuse_straddling(path: Path, records: Sequence[Record], splits: Sequence[Split] | None) -> None:
    side: dict[str, Split] = {}
    for record, split in zip(records, splits or (), strict=False):
        if record.group and side.setdefault(record.group, split) != split:
            raise EvenhandError(
                f"{path}, line {record.line}: the group {record.group!r} is in {side[record.group]} and in {split}; "
                "a group must be in one split."
            )
