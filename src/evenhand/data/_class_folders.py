"""Known data sets as class folders: `<root>/cifar100/train/apple/1.png` and so on."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data.folders import SPLIT_NAMES, load_folder
from evenhand.data.standard import Standard, part_note
from evenhand.data.table import SampleTable, Split


def load_class_folders(standard: Standard, root: Path, *, allow_outside: bool = False) -> SampleTable | None:
    """Read a known data set from class folders in the folder of its name; None if there are none.

    The files are not checked against the official ones, which a note says. Classes have the official order, by which an
    imbalance goes, if their folders have the official names or numbers; otherwise that of their names.

    Args:
        standard: the set.
        root: the data root; searched for `NAME` with `train` and `test` in it.
        allow_outside: follow links that lead out of the folder.

    Raises:
        EvenhandError: the number of class folders is wrong, or there is no test folder.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.data._class_folders import load_class_folders
        >>> from evenhand.data.standard import CIFAR10
        >>> load_class_folders(CIFAR10, Path(tempfile.mkdtemp())) is None
        True
    """
    folder = root / standard.name
    if not _has_class_folders(folder):
        return None
    table = load_folder(folder, allow_outside=allow_outside)
    number = len(standard.class_names)
    if table.num_classes != number:
        raise EvenhandError(
            f"{folder} has {table.num_classes} class folders, {some(table.class_names)}, but {standard.title} has "
            f"{number} classes; complete them, or use the folder itself as the source."
        )
    order, names = _official_order(standard, table.class_names)
    sizes: dict[Split, int] = {"train": len(table.rows("train")), "test": len(table.rows("test"))}
    complete = sizes == standard.sizes
    notes = (f"Read from the class folders in {folder}, which are not checked against the official files.",)
    return replace(
        table,
        name=standard.name,
        class_names=names,
        labels=np.argsort(order)[table.labels],
        info=standard.info,
        notes=(*notes, *(() if complete else (part_note(standard, sizes),)), *table.notes),
    )


def _has_class_folders(folder: Path) -> bool:
    """Return whether there is a split folder with folders in it."""
    try:
        splits = [each for each in folder.iterdir() if each.is_dir() and each.name.lower() in SPLIT_NAMES]
        return any(each.is_dir() for split in splits for each in split.iterdir())
    except OSError:
        return False


def _official_order(standard: Standard, names: tuple[str, ...]) -> tuple[list[int], tuple[str, ...]]:
    """Return the places of sorted class folders in the official order, and the class names in it."""
    official = [_plain(name) for name in standard.class_names]
    found = [_plain(name) for name in names]
    if sorted(found) == sorted(official):
        return [found.index(name) for name in official], standard.class_names
    if all(name.isdecimal() for name in names) and sorted(map(int, names)) == list(range(len(names))):
        return sorted(range(len(names)), key=lambda place: int(names[place])), standard.class_names
    return list(range(len(names))), names


def _plain(name: str) -> str:
    """Return the letters and digits of a name: a folder cannot be named `T-shirt/top`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
