"""Features on disk, by the weights, the preprocessing and the content of each image.

A store is a folder for one network and one preprocessing. Features are added in `.npz` files, each with the key of the
store, the digests of the images (n, 16) and their features (n, F) in float16. A file gets its name when it is complete,
so an interrupted extraction loses only the file in progress, and several processes can add to one store.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.arrays import read_arrays
from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing

FORMAT = 1
"""Increased whenever the same image would give other features, so that old ones are not found."""

_logger = logging.getLogger("evenhand")


@dataclass(frozen=True)
class FeatureStore:
    """The features of one network after one preprocessing, by the digest of the image.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from evenhand.training._feature_cache import FeatureStore
        >>> store = FeatureStore(Path(tempfile.mkdtemp()) / "lite0", "lite0", num_features=2)
        >>> store.add([b"0123456789abcdef"], np.array([[1.0, 2.0]], np.float16))
        True
        >>> into = np.zeros((3, 2), np.float16)
        >>> store.fill({b"0123456789abcdef": [0, 2], b"fedcba9876543210": [1]}, into)
        {b'0123456789abcdef'}
        >>> into.tolist()
        [[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]]
    """

    folder: Path
    key: str
    """A hash of all that the features depend on besides the image."""
    num_features: int
    """F."""
    network: str = "a frozen network"
    """For messages."""

    def fill(
        self, rows: Mapping[bytes, Sequence[int]], into: NDArray[np.float16], seen: set[str] | None = None
    ) -> set[bytes]:
        """Copy stored features into rows of an array (N, F).

        Args:
            rows: the rows of each image, by its digest.
            into: the array.
            seen: names of files to leave out, to which those read are added.

        Returns:
            The digests that were found.
        """
        found: set[bytes] = set()
        seen = set() if seen is None else seen
        if self.folder.is_symlink():  # to files of others
            return found
        for path in sorted(self.folder.glob("*.npz")):
            if len(found) < len(rows) and path.name not in seen:
                found |= self._read(path, rows, into)
                seen.add(path.name)
        return found

    def add(self, digests: Sequence[bytes], features: NDArray[np.float16]) -> bool:
        """Store the features (n, F) of these images. On failure, log a warning and return False."""
        path = self.folder / f"{uuid.uuid4().hex}.npz"
        names = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
        try:
            with replacing(path, within=self.folder.parent) as temporary, temporary.open("wb") as file:
                np.savez(file, key=np.array(self.key), digests=names, features=features)
        except (EvenhandError, OSError, ValueError) as error:  # a zip file cut short raises the last
            _logger.warning("Features are not stored for the next run. %s", error)
            return False
        return True

    def _read(self, path: Path, rows: Mapping[bytes, Sequence[int]], into: NDArray[np.float16]) -> set[bytes]:
        try:
            part = read_arrays(path, ["key", "digests"])
            if str(part["key"]) != self.key:
                raise _ForeignPartError("they belong to other weights or another preprocessing")
            digests = [row.tobytes() for row in part["digests"]]
            if rows.keys().isdisjoint(digests):
                return set()
            features = read_arrays(path, ["features"])["features"]
            if features.shape != (len(digests), self.num_features) or features.dtype != np.float16:
                raise ValueError(f"they are {features.shape} of {features.dtype}")
        except (EvenhandError, ValueError) as error:
            if not path.exists():  # cleared by another process
                return set()
            _logger.warning("The cached features in %s cannot be used (%s) and are computed again.", path, error)
            if not isinstance(error, _ForeignPartError) and not _may_pass(error):  # damaged for good: warn only once
                with suppress(OSError):
                    path.unlink()
            return set()
        known = [(row, digest) for row, digest in enumerate(digests) if digest in rows]
        for row, digest in known:
            into[rows[digest]] = features[row]
        return {digest for _, digest in known}


@dataclass(frozen=True)
class FeatureStores:
    """The stores of one or several networks, whose features are columns of one array, in this order."""

    stores: tuple[FeatureStore, ...]

    @property
    def folder(self) -> Path:
        """The folder of the first store, in which processes claim images."""
        return self.stores[0].folder

    @property
    def network(self) -> str:
        """The networks, for messages."""
        return "+".join(store.network for store in self.stores)

    def fill(self, rows: Mapping[bytes, Sequence[int]], into: NDArray[np.float16], seen: set[str]) -> set[bytes]:
        """Copy stored features as :meth:`FeatureStore.fill` does; return the digests that all stores have."""
        found = [store.fill(rows, part, seen) for store, part in zip(self.stores, self.split(into), strict=True)]
        return set.intersection(*found)

    def add(self, digests: Sequence[bytes], features: NDArray[np.float16]) -> bool:
        """Store the features of these images. On failure, log a warning and return False."""
        return all(
            store.add(digests, np.ascontiguousarray(part))
            for store, part in zip(self.stores, self.split(features), strict=True)
        )

    def split(self, features: NDArray[np.float16]) -> list[NDArray[np.float16]]:
        """Return the columns of each store, as views."""
        return np.split(features, np.cumsum([store.num_features for store in self.stores])[:-1], axis=1)


class _ForeignPartError(ValueError):
    """Features of another store: of no use here, but good, so they are kept."""


def _may_pass(error: BaseException | None) -> bool:
    """Return whether a file may be readable later: rights, a network disk or memory were the reason."""
    return error is not None and (isinstance(error, OSError | MemoryError) or _may_pass(error.__cause__))
