"""Load any source of images: a data set's name, a folder, a `.csv`, `.npz` or `.parquet`, or Hugging Face data sets."""

import difflib
import os
from pathlib import Path

import platformdirs

from evenhand.core.errors import EvenhandError
from evenhand.core.spec import parse, split_options
from evenhand.core.text import clipped
from evenhand.data._arrays import load_npz
from evenhand.data._class_folders import load_class_folders
from evenhand.data._manifest import load_csv
from evenhand.data.benchmarks import BENCHMARKS
from evenhand.data.download import MissingData
from evenhand.data.folders import load_folder
from evenhand.data.hub import PREFIX, is_saved_dataset, load_hub_dataset, load_saved_dataset
from evenhand.data.parquet import find_parquet, load_parquet
from evenhand.data.standard import STANDARD
from evenhand.data.table import SampleTable


def load_source(
    source: str | Path = "digits",
    *,
    data_root: Path | str | None = None,
    download: bool = True,
    allow_outside: bool = False,
    strict: bool = True,
) -> SampleTable:
    """Read a source of labelled images into a table; images that are files are not opened yet.

    A benchmark that is neither in its official files nor in a `NAME.npz` is read from class folders,
    `NAME/train/CLASS/` and `NAME/test/CLASS/` in the data root, before it is downloaded.

    Args:
        source: the name of a benchmark, `digits`, `fashion-mnist`, `cifar10`, `cifar100`, `svhn`, `tiny-imagenet` or
            `road-marking`, with options as in `road-marking:classes=10:split=runs`; or the path of a folder of class
            folders (:func:`~evenhand.data.load_folder`), of a CSV manifest
            (:func:`~evenhand.data.load_csv`), of a `.npz` (:func:`~evenhand.data.load_npz`), of a `.parquet` or a
            folder of them (:func:`~evenhand.data.load_parquet`), or of a data set saved by Hugging Face's `datasets`
            (:func:`~evenhand.data.load_saved_dataset`); or `hf:NAME`
            (:func:`~evenhand.data.load_hub_dataset`). The last three take options, as in
            `data.parquet:image=img:label=fine_label`. For a folder with the name of a benchmark, write `./digits`.
        data_root: folder of the benchmarks, see :func:`find_data_root`.
        download: download missing files of a benchmark.
        allow_outside: follow links and paths that lead out of the folder.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: there is no such source or it cannot be read.

    Example:
        >>> from evenhand.data.sources import load_source
        >>> table = load_source("digits")
        >>> len(table), table.num_classes
        (1797, 10)
    """
    if isinstance(source, str) and source.split(":")[0] in BENCHMARKS:
        part, *others = parse(source)
        benchmark = BENCHMARKS[part.name]
        if others or part.value is not None or not set(part.options) <= set(benchmark.options):
            takes = f"the options {' and '.join(benchmark.options)}" if benchmark.options else "no options"
            raise EvenhandError(f"Cannot read {source!r}: {part.name} takes {takes}.")
        root, standard = find_data_root(data_root), STANDARD.get(part.name)
        if standard is None:
            return benchmark.load(root, download=download, **part.options)
        try:
            return benchmark.load(root, download=False)
        except MissingData:
            found = load_class_folders(standard, root, allow_outside=allow_outside)
        if found is not None:
            return found
        try:
            return benchmark.load(root, download=download)
        except MissingData as error:
            where = root / part.name
            raise MissingData(f"{str(error).rstrip('.')}, or class folders into {where}/train and /test.") from error
    if not str(source).strip():
        raise _unknown(source)
    if isinstance(source, str) and source.startswith(PREFIX):
        name, options = split_options(source)
        return load_hub_dataset(name, options, download=download, allow_outside=allow_outside, strict=strict)
    path, options = Path(os.path.expanduser(source)), {}
    try:
        if isinstance(source, str) and not path.exists():
            name, options = split_options(source)
            path = Path(os.path.expanduser(name))
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:  # a name too long, or with a NUL
        raise EvenhandError(f"{str(source)[:80]!r} is neither a known data set nor a path.") from error
    if is_folder and is_saved_dataset(path):
        return load_saved_dataset(path, options, allow_outside=allow_outside, strict=strict)
    if path.suffix.lower() == ".parquet" if is_file else is_folder and bool(find_parquet(path)):
        return load_parquet(path, options, allow_outside=allow_outside, strict=strict)
    if options and (is_folder or is_file):
        raise EvenhandError(f"Cannot read {str(source)!r}: only Parquet files and data sets take options.")
    if is_folder:
        return load_folder(path, allow_outside=allow_outside, strict=strict)
    if not is_file:
        raise _unknown(source)
    if path.suffix.lower() == ".csv":
        return load_csv(path, allow_outside=allow_outside, strict=strict)
    if path.suffix.lower() == ".npz":
        return load_npz(path, strict=strict)
    raise EvenhandError(f"Cannot read {path}: expected a folder, a .csv, .npz or .parquet, or the name of a data set.")


def list_datasets() -> list[str]:
    """Return the names of the data sets that `load_source` knows; it also takes files and folders.

    Example:
        >>> from evenhand import list_datasets
        >>> list_datasets()[:2]
        ['digits', 'fashion-mnist']
    """
    return list(BENCHMARKS)


def find_data_root(data_root: Path | str | None = None) -> Path:
    """Return the folder of the benchmarks: the one given, else that of `EVENHAND_DATA`, else the user's cache.

    Example:
        >>> from evenhand.data.sources import find_data_root
        >>> find_data_root("/data").as_posix()
        '/data'
    """
    given = data_root or os.environ.get("EVENHAND_DATA")
    return (
        Path(os.path.expanduser(given)) if given else platformdirs.user_cache_path("evenhand", appauthor=False) / "data"
    )


def _unknown(source: str | Path) -> EvenhandError:
    text = str(source)
    if isinstance(source, Path) or os.sep in text or "/" in text or Path(text).suffix in (".csv", ".npz", ".parquet"):
        return EvenhandError(f"There is no file or folder {clipped(text)}.")
    near = difflib.get_close_matches(text.lower().split(":")[0], BENCHMARKS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(BENCHMARKS)}."
    return EvenhandError(f"{clipped(text)!r} is neither a known data set nor a file or folder; {hint}")
