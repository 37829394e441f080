"""Parquet files of images: one file, or a folder of them as Hugging Face's hub keeps data sets."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.core.errors import EvenhandError
from evenhand.core.opening import refuse_special
from evenhand.core.text import some
from evenhand.data._arrays import reading
from evenhand.data._arrow import file_state, parquet_images, require_pyarrow
from evenhand.data._dataset_table import OPTIONS, SPLITS_BY_NAME, Part, dataset_table
from evenhand.data.table import SampleTable

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.parquet$")
_SPLIT = re.compile(rf"({'|'.join(SPLITS_BY_NAME)})(?=[-_.]|$)", re.IGNORECASE)


def load_parquet(
    path: Path | str,
    options: Mapping[str, str] | None = None,
    *,
    allow_outside: bool = False,
    strict: bool = True,
) -> SampleTable:
    """Read a Parquet file of images and labels, or a folder of Parquet files.

    Images are encoded bytes (JPEG, PNG, ...), alone or in a struct with a path, or paths of files relative to the
    folder of the Parquet file. Labels are whole numbers, with the names of a class label where the file has them, or
    text. A column `split` or the names of the files (`train-00000-of-00002.parquet`) give the splits, a column `group`
    the groups. Labels are checked before any image is read; images are copied once to an Arrow file in the cache, from
    which each is read when it is needed. It needs the package pyarrow.

    Args:
        path: the file or folder.
        options: names of the columns `image`, `label` and `group`, and the split to `test` on, where they cannot be
            found by type and name.
        allow_outside: accept paths of images that lead out of the folder.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: pyarrow is missing, the file is damaged, a column is not there or not usable, or the disk of the
            cache has no room.
    """
    pa = require_pyarrow()
    path, options = Path(path), dict(options or {})
    refuse_options(str(path), options)
    files = [path] if path.is_file() else find_parquet(path)
    by_split: dict[str | None, list[Path]] = {}
    for file in files:
        by_split.setdefault(_split_of(file, path), []).append(file)
    if None in by_split and len(by_split) > 1:
        raise EvenhandError(
            f"{path} has Parquet files with a split in their name and others without, such as "
            f"{by_split[None][0].name}; give one of them."
        )
    parts, notes = [], []
    for split, own in by_split.items():
        schemas = []
        lengths = []
        for file in own:
            with reading(file):
                refuse_special(os.stat(file).st_mode, file)
                metadata = pa.parquet.read_metadata(file)
                schemas.append(metadata.schema.to_arrow_schema())
                lengths.append(metadata.num_rows)
        odd = [file for file, schema in zip(own, schemas, strict=True) if set(schema.names) != set(schemas[0].names)]
        if odd:
            raise EvenhandError(f"{odd[0]} has other columns ({some(schemas[own.index(odd[0])].names)}) than {own[0]}.")
        parts.append(_part(split, own, schemas, sum(lengths)))
        notes += _missing_shards(own)
    if not any(part.length for part in parts):
        raise EvenhandError(f"{path} has no rows; add images.")
    folder = path.parent if path.is_file() else path
    return dataset_table(
        str(path),
        path.stem,
        path,
        parts,
        options,
        paths_from=folder,
        allow_outside=allow_outside,
        strict=strict,
        notes=notes,
    )


def find_parquet(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder: in it, in `data`, or in folders of splits; none where it has none.

    Raises:
        EvenhandError: it has folders such as `label=cat`, in whose names a column is kept.
    """
    places = [folder, folder / "data"]
    places += [place / split for place in list(places) for split in SPLITS_BY_NAME]
    found = [file for place in places for file in sorted(place.glob("*.parquet")) if not file.name.startswith(".")]
    partition = None if found else next(folder.glob("*=*/*.parquet"), None)
    if partition is not None:
        column = partition.parent.name.split("=")[0]
        raise EvenhandError(
            f"{folder} is partitioned: the column {column!r} is in the names of folders, such as "
            f"{partition.parent.name!r}; write it without partitions."
        )
    return found


def refuse_options(source: str, options: Mapping[str, str], known: tuple[str, ...] = OPTIONS) -> None:
    """Refuse options that such a source does not take."""
    unknown = [name for name in options if name not in known]
    if unknown:
        raise EvenhandError(f"Cannot read {source!r} with {unknown[0]}={options[unknown[0]]}: it takes {some(known)}.")


def _split_of(file: Path, source: Path) -> str | None:
    """Return the split that the name of a file, or of the folder around it, names."""
    if file == source:
        return None
    names = (file.name, file.parent.name if file.parent != source else "")
    found = next((match for name in names if (match := _SPLIT.match(name))), None)
    return found.group(1).lower() if found else None


def _missing_shards(files: list[Path]) -> list[str]:
    """Return a note where the files are only some of those that their names count, such as 00000-of-00002."""
    shards = [match for file in files if (match := _SHARD.search(file.name))]
    if len(shards) < len(files) or len({shard.group(2) for shard in shards}) != 1:
        return []
    total, found = int(shards[0].group(2)), {int(shard.group(1)) for shard in shards}
    missing = [number for number in range(min(total, 10**5)) if number not in found]
    if not missing:
        return []
    first = _SHARD.sub(f"-{missing[0]:05d}-of-{total:05d}.parquet", files[0].name)
    return [f"{len(missing):,} of {total:,} files are not there, such as {first}."]


def _part(split: str | None, files: list[Path], schemas: list[Any], length: int) -> Part:
    pa = require_pyarrow()

    def values(column: str) -> list[Any]:
        found: list[Any] = []
        for file in files:
            with reading(file):
                found += pa.parquet.ParquetFile(file).read(columns=[column]).column(column).to_pylist()
        return found

    def images(column: str) -> list[Any]:
        return [chunk for file in files for chunk in parquet_images(file, column)]

    others = tuple((file.name, schema) for file, schema in zip(files[1:], schemas[1:], strict=True))
    return Part(split, schemas[0], length, values, images, " ".join(file_state(file) for file in files), others)
