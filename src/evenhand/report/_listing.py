"""List the runs and comparisons under a folder with their state, reading only what has changed."""

import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import LOCK, is_locked
from evenhand.report._serve_summary import comparison_figures, failure_reason, run_figures
from evenhand.runs import filenames as names
from evenhand.runs.run import Run

DEPTH = 5
"""Folders below the root; `evenhand reproduce` needs 3."""
MOST_FOLDERS = 20_000
NEWS = (names.CONFIG, names.HISTORY, names.SUMMARY)
"""The files whose change shows that a run is training."""
FILES = (*NEWS, names.SPLITS, names.PREDICTIONS, names.CHECKSUMS, names.COMPARISON, "report.html")
MOST_CHECKED = 2**28
"""Bytes of predictions that one list compares with their summaries, about a second of work; the next list goes on."""
LARGEST_CHECKED = 2**26
"""Larger predictions are left to `evenhand report`."""
FRESH = 60.0
"""Seconds since the last change in which a run counts as training, or three of its epochs if longer."""

Kind = Literal["run", "comparison"]
State = Literal["finished", "training", "stopped", "failed"]


@dataclass(frozen=True)
class Entry:
    """A run or a comparison on disk."""

    id: str
    """A hash of kind and name: all that a URL can ask for."""
    kind: Kind
    name: str
    """Its path below the root."""
    path: Path
    files: Mapping[str, os.stat_result]
    """Its regular files, without links, which may lead anywhere."""

    def size(self, name: str) -> int:
        """Return the bytes of one of its files; 0: it is not there."""
        return self.files[name].st_size if name in self.files else 0

    @property
    def has_report(self) -> bool:
        """Whether there is a report."""
        return "report.html" in self.files

    @property
    def has_model(self) -> bool:
        """Whether a model can be loaded: that of a finished run, or the one that a comparison recommends."""
        return self.kind == "comparison" or names.SUMMARY in self.files

    @property
    def has_history(self) -> bool:
        """Whether there is a history."""
        return names.HISTORY in self.files


@dataclass(frozen=True)
class RunState:
    """The state of a run; None: not known, or not yet."""

    entry: Entry
    state: State
    changed: float
    """When its files last changed, in seconds since 1970."""
    source: str | None = None
    imbalance: str | None = None
    objective: str | None = None
    model: str | None = None
    seed: int | None = None
    epochs_done: int | None = None
    epochs: int | None = None
    val_balanced_accuracy: float | None = None
    """Of the last epoch."""
    balanced_accuracy: float | None = None
    interval: tuple[float, float] | None = None
    few: float | None = None
    worst_recall: float | None = None
    worst_class: str | None = None
    problems: tuple[str, ...] = ()
    """One sentence per file that cannot be read, and why the run failed."""


@dataclass(frozen=True)
class Compared:
    """What a comparison found."""

    entry: Entry
    changed: float
    source: str | None = None
    imbalance: str | None = None
    model: str | None = None
    seeds: int | None = None
    balanced_accuracy: tuple[tuple[str, float], ...] = ()
    """Objectives and their means over seeds, the best first."""
    few: tuple[tuple[str, float], ...] = ()
    verdict: str | None = None
    problems: tuple[str, ...] = ()


@dataclass
class Listing:
    """The runs and comparisons under a folder; files that have not changed are not read again.

    Hidden folders are left out. Links are not followed: inside the root they would list a run twice, and nothing
    outside the root is read.

    Args:
        root: the folder to search, to a depth of 5.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.report._listing import Listing
        >>> from evenhand.runs.config import make_config
        >>> from evenhand.runs.run import Run
        >>> root = Path(tempfile.mkdtemp())
        >>> Run(root / "mine").write_config(make_config(objective="cce", seed=3, epochs=30))
        >>> [(run.entry.name, run.objective, run.epochs, run.state) for run in Listing(root).runs()]
        [('mine', 'cce', 30, 'training')]
    """

    root: Path
    note: str = field(default="", init=False)
    """Shown above the list."""
    _entries: dict[str, Entry] = field(default_factory=dict, init=False)
    _cache: dict[str, tuple[object, Any]] = field(default_factory=dict, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.root.is_dir():
            raise EvenhandError(f"There is no folder {self.root}; give the one that holds your runs, such as runs/.")
        self.root = self.root.resolve()

    def refresh(self) -> list[Entry]:
        """Search the folder again."""
        with self._lock:
            found, self.note = _search(self.root)
            self._entries = {entry.id: entry for entry in found}
            self._cache = {key: kept for key, kept in self._cache.items() if key in self._entries}
            return found

    def find(self, id: str) -> Entry | None:
        """Return the entry of this id as it is on disk now."""
        with self._lock:
            known = self._entries.get(id) or next((entry for entry in self.refresh() if entry.id == id), None)
        if known is None or known.path.resolve() != known.path:  # a folder above it has become a link
            return None
        return next((entry for entry in _entries_at(self.root, known.path)[0] if entry.id == id), None)

    def runs(self) -> list[RunState]:
        """Search, and return the state of all runs, the newest first."""
        runs, left = [], MOST_CHECKED
        for entry in self.refresh():
            if entry.kind == "run":
                size = 0 if self._is_kept(entry, checked=True) else entry.size(names.PREDICTIONS)
                checked = entry.size(names.PREDICTIONS) <= LARGEST_CHECKED and size <= left
                left -= size * checked
                runs.append(self.run(entry, checked=checked))
        return sorted(runs, key=lambda run: -run.changed)

    def comparisons(self) -> list[Compared]:
        """Return the comparisons that the last search found, the newest first."""
        with self._lock:
            entries = list(self._entries.values())
        compared = [self._compared(entry) for entry in entries if entry.kind == "comparison"]
        return sorted(compared, key=lambda each: -each.changed)

    def run(self, entry: Entry, *, checked: bool | None = None) -> RunState:
        """Return the state of a run; with `checked`, its summary is compared with its predictions.

        None: as the last list did.
        """
        if checked is None:
            checked = self._is_kept(entry, checked=True)
        figures, problems = self._read(
            entry, lambda: run_figures(Run(entry.path), with_predictions=checked), checked=checked
        )
        changed = max(info.st_mtime for name, info in entry.files.items() if name in NEWS)
        state = self._state(entry, changed, figures.get("seconds"))
        if state == "failed":
            problems = (*problems, failure_reason(_failure_file(entry)))
        shown = {key: value for key, value in figures.items() if key != "seconds"}
        return RunState(entry, state, changed, **shown, problems=problems)

    def _state(self, entry: Entry, changed: float, seconds: float | None) -> State:
        """Return the state by files alone: locked runs are training; so are others that changed recently."""
        if names.SUMMARY in entry.files:
            return "finished"
        lock = entry.path / LOCK
        if _is_plain(lock) and is_locked(lock):
            return "training"
        if entry.path != self.root and _is_plain(_failure_file(entry)):  # nothing outside the root is read
            return "failed"
        return "training" if time.time() - changed < max(FRESH, 3 * (seconds or 0.0)) else "stopped"

    def _compared(self, entry: Entry) -> Compared:
        try:
            found = self._read(entry, lambda: comparison_figures(entry.path / names.COMPARISON))
        except EvenhandError as error:
            found = {"problems": (str(error),)}
        return Compared(entry, entry.files[names.COMPARISON].st_mtime, **found)

    def _read(self, entry: Entry, reader: Callable[[], Any], *, checked: bool = True) -> Any:
        """Return the content of an entry, read again only if its files have changed."""
        with self._lock:
            kept = self._cache.get(entry.id)
        stamp = _stamp(entry, checked=checked)
        if kept is None or kept[0] != stamp:
            kept = (stamp, reader())
            with self._lock:
                self._cache[entry.id] = kept
        return kept[1]

    def _is_kept(self, entry: Entry, *, checked: bool) -> bool:
        with self._lock:
            kept = self._cache.get(entry.id)
        return kept is not None and kept[0] == _stamp(entry, checked=checked)


def _stamp(entry: Entry, *, checked: bool) -> object:
    files = [(name, info.st_mtime_ns, info.st_size, info.st_ino) for name, info in sorted(entry.files.items())]
    return checked, files


def _search(root: Path) -> tuple[list[Entry], str]:
    found: list[Entry] = []
    waiting = [(root, 0)]
    for searched, (folder, depth) in enumerate(waiting):  # the list grows while it is iterated
        if searched == MOST_FOLDERS:
            return found, f"Only the first {MOST_FOLDERS:,} folders were searched; serve a smaller one."
        here, folders = _entries_at(root, folder)
        found += here
        if depth < DEPTH:
            waiting += [(each, depth + 1) for each in folders]
    return found, ""


def _entries_at(root: Path, folder: Path) -> tuple[list[Entry], list[Path]]:
    """Return the run and the comparison in a folder, if any, and its subfolders."""
    files: dict[str, os.stat_result] = {}
    folders = []
    try:
        with os.scandir(folder) as content:
            for each in content:
                if each.name in FILES and each.is_file(follow_symlinks=False):
                    files[each.name] = each.stat(follow_symlinks=False)
                elif each.name[0] != "." and each.name not in names.FOLDERS and each.is_dir(follow_symlinks=False):
                    folders.append(folder / each.name)
    except OSError:  # not readable, or just removed
        return [], []
    below = folder.relative_to(root).as_posix()
    name = folder.name if folder == root else below
    kinds: list[Kind] = ["run"] if names.CONFIG in files else []
    kinds += ["comparison"] if names.COMPARISON in files else []
    return [Entry(_id(kind, below), kind, name, folder, files) for kind in kinds], sorted(folders)


def _id(kind: Kind, below: str) -> str:
    return hashlib.sha256(f"{kind}\0".encode() + os.fsencode(below)).hexdigest()[:16]


def _failure_file(entry: Entry) -> Path:
    """Return where a grid records a failure; `evenhand.experiments.grid.jobs.Job` would import torch."""
    return entry.path.parent / ".grid" / f"{entry.path.name}.failure.json"


def _is_plain(path: Path) -> bool:
    """Return whether this is a regular file, not a link and not behind one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode) and path.resolve() == path
    except OSError:
        return False
