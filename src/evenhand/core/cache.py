"""What evenhand keeps on disk between commands, in the user's cache folder."""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from evenhand.core.errors import EvenhandError

PARTS = {
    "pixels": "decoded images, so that the next run starts at once",
    "features": "features of frozen networks",
    "backbones": "the frozen networks that runs were trained on",
    "data": "data sets that were fetched",
}
"""Folders in the cache, and what each holds; what is not listed is kept by a newer or older version."""
PRECIOUS = ("backbones", "data")
"""What is only removed by name: it may not be had again."""


@dataclass(frozen=True)
class CachePart:
    """One folder of the cache."""

    name: str
    holds: str
    path: Path
    files: int
    bytes: int


def cache_root() -> Path:
    """Return the folder that everything is kept in."""
    return platformdirs.user_cache_path("evenhand", appauthor=False)


def list_cache(root: Path | None = None) -> list[CachePart]:
    """Return what is kept, part by part.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.cache import list_cache
        >>> [part.name for part in list_cache(Path(tempfile.mkdtemp()))]
        ['pixels', 'features', 'backbones', 'data']
    """
    root = root or cache_root()
    found = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    names = [*PARTS, *(name for name in found if name not in PARTS)]
    return [_measure(root / name, PARTS.get(name, "of another version")) for name in names]


def clear_cache(names: list[str] | None = None, root: Path | None = None) -> list[CachePart]:
    """Remove parts of the cache; None: all but `PRECIOUS`.

    Returns:
        What was removed.

    Raises:
        EvenhandError: there is no such part, or it cannot be removed.
    """
    known = {part.name: part for part in list_cache(root)}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise EvenhandError(f"The cache has no part {unknown[0]!r}; it has {', '.join(known)}.")
    chosen = [known[name] for name in (names or [name for name in known if name not in PRECIOUS])]
    try:
        for part in chosen:
            if part.path.is_symlink():
                part.path.unlink()  # what it points to is not ours
            elif part.path.is_dir():
                shutil.rmtree(part.path)
    except OSError as error:
        raise EvenhandError(f"Cannot remove {error.filename}: {error.strerror or error}.") from error
    return [part for part in chosen if part.files]


def _measure(path: Path, holds: str) -> CachePart:
    files = total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # gone by now
                total += os.lstat(os.path.join(folder, name)).st_size
                files += 1
    return CachePart(path.name, holds, path, files, total)
