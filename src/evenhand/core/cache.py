"""The user's cache folder: what it holds, and clearing it."""

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from evenhand.core.errors import EvenhandError

PARTS = {
    "pixels": "decoded images",
    "features": "features of frozen networks",
    "tables": "images of Parquet files",
    "backbones": "frozen networks that runs were trained on",
    "data": "downloaded data sets",
}
"""Folders of the cache and their content; others belong to other versions."""
PRECIOUS = ("backbones", "data")
"""Folders that are only removed by name: they may not be available again."""


@dataclass(frozen=True)
class CachePart:
    """One folder of the cache."""

    name: str
    holds: str
    path: Path
    files: int
    bytes: int


def cache_root() -> Path:
    """Return the cache folder."""
    return platformdirs.user_cache_path("evenhand", appauthor=False)


def list_cache(root: Path | None = None) -> list[CachePart]:
    """Return the folders of the cache with their sizes.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.core.cache import list_cache
        >>> [part.name for part in list_cache(Path(tempfile.mkdtemp()))]
        ['pixels', 'features', 'tables', 'backbones', 'data']
    """
    root = root or cache_root()
    found = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    names = [*PARTS, *(name for name in found if name not in PARTS)]
    return [_measure(root / name, PARTS.get(name, "of another version")) for name in names]


def clear_cache(names: list[str] | None = None, root: Path | None = None) -> list[CachePart]:
    """Remove folders of the cache; None: all but `PRECIOUS`.

    Returns:
        The folders that were removed.

    Raises:
        EvenhandError: there is no such folder, or it cannot be removed.
    """
    known = {part.name: part for part in list_cache(root)}
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise EvenhandError(f"The cache has no folder {unknown[0]!r}; it has {', '.join(known)}.")
    chosen = [known[name] for name in (names or [name for name in known if name not in PRECIOUS])]
    try:
        for part in chosen:
            if part.path.is_symlink():
                part.path.unlink()  # its target is not ours
            elif part.path.is_dir():
                shutil.rmtree(part.path)
    except OSError as error:
        raise EvenhandError(f"Cannot remove {error.filename}: {error.strerror or error}.") from error
    return [part for part in chosen if part.files]


def _measure(path: Path, holds: str) -> CachePart:
    files = total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # removed meanwhile
                total += os.lstat(os.path.join(folder, name)).st_size
                files += 1
    return CachePart(path.name, holds, path, files, total)
