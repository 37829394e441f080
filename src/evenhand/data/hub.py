"""Data sets of Hugging Face's library `datasets`: saved on disk, or from the hub."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.extras import how_to_install
from evenhand.data._arrow import file_state
from evenhand.data._dataset_table import OPTIONS, Part, dataset_table, table_columns
from evenhand.data.parquet import refuse_options
from evenhand.data.table import SampleTable

PREFIX = "hf:"
"""Before the name of a data set on the hub."""
HUB_OPTIONS = (*OPTIONS, "config", "revision")


def is_saved_dataset(folder: Path) -> bool:
    """Return whether a folder was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (
        (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    )


def load_saved_dataset(
    path: Path | str,
    options: Mapping[str, str] | None = None,
    *,
    allow_outside: bool = False,
    strict: bool = True,
) -> SampleTable:
    """Read a data set that was saved by `save_to_disk` of `datasets`; its images are read where they are.

    Args:
        path: the folder.
        options: as :func:`~evenhand.data.load_parquet` takes them.
        allow_outside: accept paths of images that lead out of the folder.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: the package datasets is missing, the folder is damaged, or columns cannot be used.
    """
    path, options = Path(path), dict(options or {})
    refuse_options(str(path), options)
    with _library(f"Cannot read {path}") as datasets:
        loaded = datasets.load_from_disk(str(path))
        parts = _parts(datasets, loaded)
    return dataset_table(
        str(path), path.name, path, parts, options, paths_from=path, allow_outside=allow_outside, strict=strict
    )


def load_hub_dataset(
    source: str,
    options: Mapping[str, str] | None = None,
    *,
    download: bool = True,
    allow_outside: bool = False,
    strict: bool = True,
) -> SampleTable:
    """Load a data set of Hugging Face's hub by the library `datasets`, which downloads and caches it.

    Code of a data set is never run: the library has refused data sets with scripts since version 4.

    Args:
        source: `hf:NAME`, such as `hf:ylecun/mnist`; NAME may be a local folder in the layout of the hub.
        options: as :func:`~evenhand.data.load_parquet` takes them, and `config` and `revision` of the data set.
        download: False: use only what the library has downloaded before.
        allow_outside: accept paths of images that lead out of the library's cache.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: the package datasets is missing, the data set cannot be loaded, or columns cannot be used.
    """
    name, options = source.removeprefix(PREFIX), dict(options or {})
    refuse_options(source, options, HUB_OPTIONS)
    if not name.strip("/. "):
        raise EvenhandError(f"Cannot read {source!r}: give the name of a data set, as in hf:ylecun/mnist.")
    local = Path(os.path.expanduser(name))
    if is_saved_dataset(local):
        return load_saved_dataset(local, options, allow_outside=allow_outside, strict=strict)
    with _library(f"Cannot load {source}") as datasets:
        loaded = datasets.load_dataset(
            os.path.expanduser(name),
            options.pop("config", None),
            revision=options.pop("revision", None),
            download_config=None if download else datasets.DownloadConfig(local_files_only=True),
        )
        parts = _parts(datasets, loaded)
        root = local if local.is_dir() else Path(datasets.config.HF_CACHE_HOME)
    return dataset_table(
        source,
        Path(name).name,
        Path(source),
        parts,
        options,
        paths_from=root,
        allow_outside=allow_outside,
        strict=strict,
    )


@contextlib.contextmanager
def _library(what: str) -> Iterator[ModuleType]:
    """Import datasets, and re-raise what it raises inside the block in one sentence."""
    try:
        import datasets
    except ImportError as error:
        raise EvenhandError(f"{what}: the package datasets is not installed; {how_to_install('datasets')}.") from error
    if int(datasets.__version__.split(".")[0]) < 4:  # earlier ones may run code of a data set
        raise EvenhandError(f"{what}: datasets {datasets.__version__} is too old; {how_to_install('datasets')}.")
    try:
        yield datasets
    except EvenhandError:
        raise
    except Exception as error:  # the library raises nearly anything
        raise EvenhandError(f"{what}: {reason(error)}.") from error


def _parts(datasets: ModuleType, loaded: Any) -> list[Part]:
    splits = loaded if isinstance(loaded, datasets.DatasetDict) else {None: loaded}
    return [_part(name, dataset) for name, dataset in splits.items()]


def _part(name: str | None, dataset: Any) -> Part:
    if dataset._indices is not None:  # rows were selected or shuffled
        dataset = dataset.flatten_indices()
    states = [file_state(Path(file["filename"])) for file in dataset.cache_files]
    fingerprint = hashlib.sha256(" ".join([*states, dataset._fingerprint]).encode()).hexdigest()[:32]
    return table_columns(dataset.data.table, fingerprint, name, dataset.features.arrow_schema)
