"""Shared extraction: which process computes the features of which images.

A process claims a chunk of images, some seconds of work, computes and stores their features, and claims the next.
Images that another running process has claimed are left to it. So processes on different images never wait, and those
on the same images divide them. A claim is a locked file in the store's folder: it ends with its process, killed or not.
"""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json, write_json
from evenhand.core.locks import Lock, is_locked, remove_foreign, take_lock
from evenhand.core.opening import make_folder
from evenhand.training._feature_cache import FeatureStores

CLAIMS = "claims"
FIRST_BATCHES, MOST_BATCHES = 10, 640
CHUNK_SECONDS = 10.0
"""Time that a chunk should take: the longest that others wait for it, and the most work that a kill loses."""
PATIENCE = 300.0
"""Seconds to wait for one chunk of another process, which may be suspended, before its images are computed here."""
_POLL, _MUTEX_SECONDS, _LARGEST = 0.1, 10.0, 2**24

Rows = Mapping[bytes, Sequence[int]]
_logger = logging.getLogger("evenhand")


@dataclass(frozen=True)
class _Claim:
    """Images that a running process computes."""

    path: Path
    process: int
    host: str
    since: float
    digests: frozenset[bytes]

    @property
    def lock(self) -> Path:
        return self.path.with_suffix(".lock")

    def describe(self, images: int) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        return f"process {self.process}{where} ({images:,} image{'s' * (images != 1)}, since {since})"


def shared_chunks(
    store: FeatureStores,
    rows: Rows,
    into: NDArray[np.float16],
    *,
    seen: set[str],
    batch_size: int,
    advance: Callable[[int], None],
) -> Generator[Rows, None, None]:
    """Yield the images to compute here, in chunks; what other processes compute is read from the store.

    The caller computes and stores a chunk before it asks for the next.

    Args:
        store: of the features.
        rows: the rows of each image that is missing, by its digest.
        into: the array (N, F) of all rows.
        seen: names of the files of the store that were read already.
        batch_size: chunks are multiples of it, so that batches are full.
        advance: called with the number of images that were read from the store.
    """
    todo, batches, patience = dict(rows), FIRST_BATCHES, _Patience(store.network)
    while todo:
        try:
            with _mutex(store.folder / CLAIMS):
                # Claims first: a claim that has ended since then has stored its features.
                others = [each for each in _claims(store.folder / CLAIMS) if each.path not in patience.exhausted]
                found = store.fill(todo, into, seen)
                todo = {digest: places for digest, places in todo.items() if digest not in found}
                claimed = frozenset[bytes]().union(*(other.digests for other in others))
                free = [digest for digest in todo if digest not in claimed][: batches * batch_size]
                own = _claim(store.folder / CLAIMS, free) if free else None
        except (EvenhandError, OSError):  # not writable, or a disk without locks: nothing is shared
            yield todo
            return
        if found:
            advance(len(found))
        if own is None:
            patience.wait([other for other in others if not other.digests.isdisjoint(todo)], todo)
            continue
        began = time.monotonic()
        try:
            yield {digest: todo.pop(digest) for digest in free}
        finally:
            _release(*own)
        seconds = time.monotonic() - began
        if seconds < CHUNK_SECONDS / 2:
            batches = min(2 * batches, MOST_BATCHES)
        elif seconds > CHUNK_SECONDS:
            batches = max(batches // 2, 1)


class _Patience:
    """Waits for the claims of other processes, and names each once."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.exhausted: set[Path] = set()
        self._since: dict[Path, float] = {}

    def wait(self, claims: Sequence[_Claim], todo: Rows) -> None:
        """Wait until one of the claims ends, or patience does."""
        now = time.monotonic()
        new = [claim for claim in claims if claim.path not in self._since]
        self._since.update(dict.fromkeys((claim.path for claim in new), now))
        if new:
            named = ", ".join(claim.describe(len(claim.digests & todo.keys())) for claim in new)
            _logger.info("Waiting for features of %s from %s.", self.network, named)
        while claims and all(is_locked(claim.lock) for claim in claims):
            late = [claim for claim in claims if time.monotonic() - self._since[claim.path] > PATIENCE]
            if late:
                _logger.warning("Process %d has not ended its work; it is done here.", late[0].process)
                self.exhausted.update(claim.path for claim in late)
                return
            time.sleep(_POLL)


@contextmanager
def _mutex(folder: Path) -> Iterator[None]:
    """Let one process at a time read and add claims, which takes milliseconds."""
    make_folder(folder, within=folder.parent.parent)  # a link there may lead to files of others
    remove_foreign(folder / "lock")
    lock = FileLock(folder / "lock", thread_local=False)
    with suppress(Timeout):  # a suspended process: at worst, features are computed twice
        lock.acquire(timeout=_MUTEX_SECONDS)
    try:
        yield
    finally:
        lock.release()


def _claims(folder: Path) -> list[_Claim]:
    """Return the claims of running processes; remove those of processes that were killed."""
    found = []
    for path in folder.glob("*.json"):
        if is_locked(path.with_suffix(".lock")):
            with suppress(EvenhandError, KeyError, TypeError, ValueError):  # released meanwhile
                content = read_json(path, _LARGEST)
                digests = frozenset(bytes.fromhex(each) for each in content["digests"])
                found.append(_Claim(path, content["process"], content["host"], content["since"], digests))
        else:
            _remove(path)
    return found


def _claim(folder: Path, digests: Sequence[bytes]) -> tuple[Path, Lock]:
    path = folder / f"{uuid.uuid4().hex}.json"
    lock = take_lock(path.with_suffix(".lock"), wait=True)
    if lock is None:
        raise AssertionError("nobody else knows this name")
    about = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
    try:
        write_json(path, {**about, "digests": [digest.hex() for digest in digests]})
    except BaseException:
        _release(path, lock)
        raise
    return path, lock


def _release(path: Path, lock: Lock) -> None:
    _remove(path)
    lock.release()


def _remove(path: Path) -> None:
    for each in (path, path.with_suffix(".lock")):
        with suppress(OSError):
            each.unlink()
