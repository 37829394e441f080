"""Predictions: the logits of a model for every test image, in one file; all metrics start from it."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from evenhand.core.arrays import array_bytes, read_arrays
from evenhand.core.errors import EvenhandError
from evenhand.core.files import write_bytes
from evenhand.core.text import clipped, some
from evenhand.metrics.classification import Confusion, confusion_matrix

KEYS = ("logits", "targets", "ids", "class_names", "train_counts")
OPTIONAL = ("groups", "fitted_counts", "adjustment")
"""Earlier versions did not write these."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """Logits and labels of N images of K classes.

    Logits may be NaN or infinite, as those of a run that diverged; they are refused where something is computed from
    them.

    Raises:
        EvenhandError: if the arrays do not fit each other, naming the one that does not.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> predictions = Predictions(
        ...     logits=np.array([[2, 0, 1], [0, 3, 1]], np.float32),
        ...     targets=np.array([0, 2]),
        ...     ids=np.array(["test/00000", "test/00001"]),
        ...     class_names=("cat", "dog", "lynx"),
        ...     train_counts=np.array([500, 90, 12]),
        ... )
        >>> predictions.predicted()
        array([0, 1])
    """

    logits: NDArray[np.float32]
    """(N, K), N of 1 or more, K of 2 or more."""
    targets: NDArray[np.int64]
    """(N,): the actual classes, 0 to K - 1."""
    ids: NDArray[np.str_]
    """(N,), unique: they pair the predictions of two models."""
    class_names: tuple[str, ...]
    """K different names."""
    train_counts: NDArray[np.int64]
    """(K,): training images per class, as the shot groups count them."""
    groups: NDArray[np.str_] | None = None
    """(N,): the group of each image, such as the scene of a frame; None: images are independent."""
    fitted_counts: NDArray[np.int64] | None = None
    """(K,): training images per class without those held out for validation."""
    adjustment: NDArray[np.float64] | None = None
    """(K,): added to the raw logits before anything is computed from them."""

    def __post_init__(self) -> None:
        if not _is_array(self.logits, np.float32, 2) or len(self.logits) < 1 or self.logits.shape[1] < 2:
            raise EvenhandError(
                f"logits must be float32 of shape (N, K), N 1 or more and K 2 or more, got {_describe(self.logits)}."
            )
        for name, kind, size in (
            ("targets", np.int64, len(self)),
            ("ids", np.str_, len(self)),
            ("groups", np.str_, len(self)),
            ("train_counts", np.int64, self.num_classes),
            ("fitted_counts", np.int64, self.num_classes),
            ("adjustment", np.float64, self.num_classes),
        ):
            array = getattr(self, name)
            if array is None and name in OPTIONAL:
                continue
            if not _is_array(array, kind, 1) or len(array) != size:
                expected = "text" if kind is np.str_ else kind.__name__
                raise EvenhandError(
                    f"{name} must be {expected} of shape ({size},) as the logits are {self.logits.shape}, got "
                    f"{_describe(array)}."
                )
        _check_names(self.class_names, self.num_classes)
        outside = np.flatnonzero((self.targets < 0) | (self.targets >= self.num_classes))
        if len(outside):
            raise EvenhandError(
                f"targets must be 0 to {self.num_classes - 1}, got {self.targets[outside[0]]} for "
                f"{some([self.ids[outside[0]]])}."
            )
        if self.adjustment is not None and not np.isfinite(self.adjustment).all():
            raise EvenhandError(f"adjustment must be finite, got {clipped(str(self.adjustment.tolist()))}.")
        if self.train_counts.min() < 0:
            raise EvenhandError(f"train_counts must be 0 or more, got {self.train_counts.min()}.")
        unique, times = np.unique(self.ids, return_counts=True)
        if len(unique) < len(self):
            raise EvenhandError(
                f"ids must be unique, but some occur more than once: {some(unique[times > 1].tolist())}."
            )

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """K, including classes without test images."""
        return int(self.logits.shape[1])

    def check_finite(self) -> None:
        """Refuse logits that are NaN or infinite."""
        broken = np.flatnonzero(~np.isfinite(self.logits).all(axis=1))
        if len(broken):
            raise EvenhandError(
                f"The logits of {len(broken):,} of {len(self):,} images are NaN or infinite (first "
                f"{some([self.ids[broken[0]]])}), so they cannot be evaluated; train again, for instance with a lower "
                "learning rate."
            )

    def predicted(self) -> NDArray[np.int64]:
        """Return the most probable class of each image, (N,); of equal ones the first."""
        self.check_finite()
        logits = self.logits if self.adjustment is None else self.logits.astype(np.float64) + self.adjustment
        return np.asarray(logits.argmax(axis=1), np.int64)

    def log_probabilities(self) -> NDArray[np.float64]:
        """Return the log softmax, (N, K), in float64: finite for any finite logits.

        Example:
            >>> import numpy as np
            >>> from evenhand.metrics.predictions import Predictions
            >>> logits = np.array([[1000, 0]], np.float32)
            >>> Predictions(logits, np.array([0]), np.array(["a"]), ("x", "y"), np.array([1, 1])).log_probabilities()
            array([[    0., -1000.]])
        """
        self.check_finite()
        shift = 0.0 if self.adjustment is None else self.adjustment
        return np.asarray(log_softmax(self.logits.astype(np.float64) + shift, axis=1))

    def save(self, path: Path | str) -> None:
        """Write everything to a `.npz` of plain arrays, atomically; equal predictions give equal bytes.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import numpy as np
            >>> from evenhand.metrics.predictions import Predictions, load_predictions
            >>> path = Path(tempfile.mkdtemp()) / "some.npz"
            >>> logits = np.array([[1, 0]], np.float32)
            >>> Predictions(logits, np.array([0]), np.array(["a"]), ("Löwe", "猫"), np.array([7, 3])).save(path)
            >>> load_predictions(path).class_names
            ('Löwe', '猫')
        """
        write_bytes(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what :meth:`save` writes."""
        return array_bytes(
            logits=self.logits,
            targets=self.targets,
            ids=self.ids,
            class_names=np.array(self.class_names),
            train_counts=self.train_counts,
            **{key: value for key in OPTIONAL if (value := getattr(self, key)) is not None},
        )

    def correct(self) -> NDArray[np.bool_]:
        """Return whether each image was classified correctly, (N,)."""
        return np.asarray(self.predicted() == self.targets)

    def confidences(self) -> NDArray[np.float64]:
        """Return the probability of the predicted class of each image, (N,)."""
        return np.asarray(np.exp(self.log_probabilities().max(axis=1)))

    @cached_property
    def confusion(self) -> Confusion:
        """The confusion matrix, (K, K): rows are actual classes, columns predicted ones."""
        return confusion_matrix(self.targets, self.predicted(), self.num_classes)


def load_predictions(path: Path | str, *, within: Path | str | None = None) -> Predictions:
    """Read what :meth:`Predictions.save` wrote; other arrays are ignored, and pickled ones never read.

    Raises:
        EvenhandError: the file is missing, damaged, or holds arrays that do not fit each other.
    """
    arrays = read_arrays(
        path, KEYS, "file of predictions", "write it again with `evenhand evaluate`", optional=OPTIONAL, within=within
    )
    try:
        classes, logits = np.atleast_1d(arrays.pop("class_names")), arrays["logits"]
        # At most one too many: as Python objects, names would take ten times the memory of the file.
        names = tuple(classes[: logits.shape[-1] + 1 if logits.ndim else 1].tolist())
        return Predictions(**arrays, class_names=names)
    except EvenhandError as error:
        raise EvenhandError(f"Cannot read {path}: {error}") from error


def _is_array(array: object, kind: type[np.generic], ndim: int) -> bool:
    return isinstance(array, np.ndarray) and np.issubdtype(array.dtype, kind) and array.ndim == ndim


def _describe(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    return f"{clipped(str(array.dtype))} of shape {clipped(str(array.shape))}"


def _check_names(names: tuple[str, ...], num_classes: int) -> None:
    if len(names) != num_classes or not all(isinstance(name, str) for name in names):
        raise EvenhandError(f"class_names must be {num_classes} strings, one per column of logits, got {some(names)}.")
    if len(set(names)) < num_classes:
        repeated = [name for name, times in Counter(names).items() if times > 1]
        raise EvenhandError(f"class_names must differ, but some occur more than once: {some(repeated)}.")
    # numpy drops NULs at the end of text, so the names read back would differ.
    if any("\0" in name for name in names):
        raise EvenhandError(f"class_names must not contain NUL characters, got {some(names)}.")
