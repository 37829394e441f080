"""Folders of class folders: `train/ val/ test/` with classes inside, or classes alone."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data._arrays import SPLITS
from evenhand.data.table import FilePixels, SampleTable, Split

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"}
)
SPLIT_NAMES: dict[str, Split] = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def load_folder(path: Path | str, *, allow_outside: bool = False, strict: bool = True) -> SampleTable:
    """Read a folder of class folders.

    The class folders are either directly in it, or in `train`, `test` and optionally `val` (or `valid`, `validation`).
    Files in subfolders of a class folder belong to that class. Hidden files and files without an image suffix are
    ignored, and a note counts them; another names class folders without images. Classes are sorted by name.

    Args:
        path: the folder.
        allow_outside: follow links that lead out of it.
        strict: require two or more classes, each in both train and test if splits are given.

    Raises:
        EvenhandError: there are no images, a link leads out of the folder, or, if strict, training and test have
            different classes or there is only one class.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.data.folders import load_folder
        >>> root = Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     (root / name / "1.jpg").touch()
        >>> table = load_folder(root)
        >>> table.class_names, table.ids.tolist()
        (('cat', 'dog'), ['cat/1.jpg', 'dog/1.jpg'])
    """
    root = Path(path).resolve()
    scan = _Scan(root, allow_outside)
    folders = scan.folders(root)
    if not folders:
        raise EvenhandError(
            f"{path} has no class folders; give each class a folder with its images, or list the images in a CSV file."
        )
    split_folders = _split_folders(str(path), folders)
    files: list[tuple[str, str, Split | None]] = []
    for split, folder in split_folders.items() if split_folders else [(None, root)]:
        classes = scan.folders(folder) if split else folders
        if not classes:
            raise EvenhandError(f"{folder} has no class folders.")
        for place in classes:
            files += [(name, unicodedata.normalize("NFC", place.name), split) for name in scan.images(place)]
    if not files:
        raise EvenhandError(f"{path} has no images in its class folders: {some(scan.empty)}; add images.")
    if split_folders:
        scan.ignored += [folder.name + "/" for folder in folders if folder not in split_folders.values()]
    names = [name for _, name, _ in files]
    splits = [split for _, _, split in files if split]
    class_names, labels = number_classes(str(path), names, splits or None, strict=strict)
    count = len(scan.ignored)
    kind = "file or folder that is not an image" if count == 1 else "files or folders that are not images"
    notes = [f"Ignored {count:,} {kind}: {some(scan.ignored, 3)}."] if count else []
    if scan.empty:
        notes.append(f"Ignored class folders without images: {some(scan.empty)}.")
    nested = _nested_classes(str(path), class_names, [name for name, _, _ in files], bool(split_folders))
    notes = [nested, *notes] if nested else notes
    return SampleTable(
        name=root.name or str(root),
        class_names=class_names,
        labels=labels,
        ids=np.array([name for name, _, _ in files]),
        pixels=FilePixels(root, [name for name, _, _ in files]),
        splits=np.array(splits) if splits else None,
        notes=tuple(notes),
    )


def _nested_classes(source: str, class_names: Sequence[str], files: Sequence[str], split: bool) -> str | None:
    """Return a note if no class folder has images directly in it, but in several subfolders."""
    below: dict[str, set[str]] = {name: set() for name in class_names}
    for file in files:
        *folders, _ = file.split("/")[1 if split else 0 :]
        below[unicodedata.normalize("NFC", folders[0])].add("/".join(folders))
    if any(name in folders or len(folders) < 2 for name, folders in below.items()):
        return None
    largest = max(below, key=lambda name: len(below[name]))
    inner = os.path.commonpath(below[largest])
    return (
        f"The classes are {some(class_names)}, though all their images are in subfolders, such as "
        f"{some(sorted(below[largest]), 2)}; if those are the classes, use {os.path.join(source, inner)} as the source."
    )


def number_classes(
    source: str, names: Sequence[str], splits: Sequence[Split] | None, *, strict: bool = True
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Number the classes by name, and check that they can be trained and evaluated.

    Args:
        source: the source, for messages.
        names: (N,), the class of each sample.
        splits: (N,), where the source fixes them.
        strict: raise an error where `class_problem` finds one.

    Returns:
        The class names and the labels, (N,).

    Example:
        >>> from evenhand.data.folders import number_classes
        >>> number_classes("photos", ["dog", "cat", "dog"], None)
        (('cat', 'dog'), array([1, 0, 1]))
    """
    found, labels = np.unique(np.array(names), return_inverse=True)
    class_names = tuple(found.tolist())
    problem = class_problem(source, class_names, labels, None if splits is None else np.array(splits))
    if strict and problem:
        raise EvenhandError(problem)
    return class_names, labels.astype(np.int64)


def class_problem(
    source: str, class_names: Sequence[str], labels: NDArray[np.integer], splits: NDArray[np.str_] | None
) -> str | None:
    """Return in one sentence why the classes of a source cannot be trained and evaluated; None: they can.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.folders import class_problem
        >>> class_problem("photos", ["cat"], np.array([0, 0]), None)
        "photos has only one class, 'cat'; a classifier needs two or more."
    """
    if len(class_names) < 2:
        return f"{source} has only one class, {class_names[0]!r}; a classifier needs two or more."
    if splits is None:
        return None
    held = {split: {class_names[k] for k in np.unique(labels[splits == split])} for split in SPLITS}
    if not held["train"] or not held["test"]:
        missing = "train" if not held["train"] else "test"
        return f"{source} has splits but no {missing} images; add some, or give no splits."
    unequal = sorted(held["train"] ^ held["test"])
    if unequal:
        return f"{source} has classes in only one of train and test: {some(unequal)}; add images, or remove them."
    unknown = sorted(held["val"] - held["train"])
    return f"{source} has classes in val that are not in train: {some(unknown)}." if unknown else None


def leaves(root: Path, path: str) -> bool:
    """Return whether a path, with all links resolved, is outside the root, which is already resolved."""
    return not Path(os.path.realpath(path)).is_relative_to(root)


@dataclass
class _Scan:
    """A walk below a root that does not leave it, and records what it ignored."""

    root: Path
    allow_outside: bool = False
    ignored: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)

    def folders(self, folder: Path) -> list[Path]:
        """Return the folders in a folder, sorted by name; files are ignored."""
        found = []
        for entry in self._entries(folder):
            if entry.is_dir():
                found.append(Path(entry.path))
            else:
                self.ignored.append(self._name(entry.path))
        return found

    def images(self, folder: Path) -> list[str]:
        """Return the images in a class folder and below, relative to the root."""
        found = sorted(self._walk(folder, (os.path.realpath(folder),)))
        if not found:
            self.empty.append(self._name(str(folder)))
        return found

    def _walk(self, folder: Path, above: tuple[str, ...]) -> Iterable[str]:
        for entry in self._entries(folder):
            if entry.is_dir():
                real = os.path.realpath(entry.path)
                if real not in above:  # a link to a parent folder would never end
                    yield from self._walk(Path(entry.path), (*above, real))
            elif entry.is_file() and os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
                yield self._name(entry.path)
            else:
                self.ignored.append(self._name(entry.path))

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        """Return the visible entries of a folder, sorted by name."""
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise EvenhandError(f"Cannot read {folder}: {error.strerror}.") from error
        visible = []
        for entry in entries:
            if entry.name.startswith("."):
                self.ignored.append(self._name(entry.path))
                continue
            if entry.is_symlink():
                if not self.allow_outside and leaves(self.root, entry.path):
                    raise EvenhandError(
                        f"{entry.path} is a link that leaves {self.root}; give --allow-outside to follow such links, "
                        "copy what it points to, or remove it."
                    )
                if not os.path.exists(entry.path):
                    raise EvenhandError(f"{entry.path} is a link to nothing; remove it.")
            visible.append(entry)
        return visible

    def _name(self, path: str) -> str:
        name = path[len(str(self.root)) :].lstrip(os.sep).replace(os.sep, "/")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise EvenhandError(
                f"{self.root} contains {os.fsencode(name)!r}, a name that is not UTF-8; rename it."
            ) from error
        return name


def _split_folders(source: str, folders: Sequence[Path]) -> dict[Split, Path] | None:
    """Return the folder of each split, or None where the folders are classes.

    A data set of vehicles may have a class `train`: the name means a split only next to `val` or `test`, or if there is
    no other folder.
    """
    found: dict[Split, Path] = {}
    for folder in folders:
        split = SPLIT_NAMES.get(folder.name.lower())
        if split and split in found:
            raise EvenhandError(f"{source} has both {found[split].name} and {folder.name}; keep one of them.")
        if split:
            found[split] = folder
    if "train" not in found or len(found) == 1 < len(folders):
        return None
    if "test" not in found:
        advice = (
            f"rename {found['val'].name} to test (validation is then cut from training)"
            if "val" in found
            else f"use {found['train']} as the source to have it split"
        )
        raise EvenhandError(
            f"{source} has {' and '.join(f.name for f in found.values())} but no test folder; {advice}."
        )
    return {split: found[split] for split in SPLITS if split in found}
