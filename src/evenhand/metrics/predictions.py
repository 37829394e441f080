"""Predictions: what a model said about every test image, in one file; all judging starts from it."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from evenhand.core.arrays import read_arrays, write_arrays
from evenhand.core.errors import EvenhandError
from evenhand.core.text import clipped, some
from evenhand.metrics.classification import Confusion, confusion_matrix

KEYS = ("logits", "targets", "ids", "class_names", "train_counts")
OPTIONAL = ("groups", "fitted_counts", "adjustment")
"""Files of earlier versions have none."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said about N images of K classes, and what they are.

    Logits that are NaN or infinite may be kept, as a run that diverged has nothing else to show; they are refused where
    something is computed from them.

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
    """(N,): the true classes, 0 to K - 1."""
    ids: NDArray[np.str_]
    """(N,), unique: by these the predictions of two models are paired."""
    class_names: tuple[str, ...]
    """K different names."""
    train_counts: NDArray[np.int64]
    """(K,): training images of each class, as the shot groups count them."""
    groups: NDArray[np.str_] | None = None
    """(N,): which images belong together, as frames of one scene; None: each stands for itself."""
    fitted_counts: NDArray[np.int64] | None = None
    """(K,): images of each class that were really trained on, without those held out for validation."""
    adjustment: NDArray[np.float64] | None = None
    """(K,): what is added to the logits, which are kept as the network gave them, before they are judged."""

    def __post_init__(self) -> None:
        if not _is_array(self.logits, np.float32, 2) or len(self.logits) < 1 or self.logits.shape[1] < 2:
            raise EvenhandError(
                f"logits must be float32 of shape (N, K), N of 1 or more and K of 2 or more, got {_seen(self.logits)}."
            )
        _refuse_unlike("targets", self.targets, np.int64, len(self), self.logits)
        _refuse_unlike("ids", self.ids, np.str_, len(self), self.logits)
        if self.groups is not None:
            _refuse_unlike("groups", self.groups, np.str_, len(self), self.logits)
        _refuse_unlike("train_counts", self.train_counts, np.int64, self.num_classes, self.logits)
        if self.fitted_counts is not None:
            _refuse_unlike("fitted_counts", self.fitted_counts, np.int64, self.num_classes, self.logits)
        if self.adjustment is not None:
            _refuse_unlike("adjustment", self.adjustment, np.float64, self.num_classes, self.logits)
        _refuse_names(self.class_names, self.num_classes)
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
            raise EvenhandError(f"ids must be unique, but some come again: {some(unique[times > 1].tolist())}.")

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def num_classes(self) -> int:
        """K, classes without test images included."""
        return int(self.logits.shape[1])

    def check_finite(self) -> None:
        """Refuse logits that are NaN or infinite: no class is the most likely one there."""
        broken = np.flatnonzero(~np.isfinite(self.logits).all(axis=1))
        if len(broken):
            raise EvenhandError(
                f"The logits of {len(broken):,} of {len(self):,} images are NaN or infinite (first "
                f"{some([self.ids[broken[0]]])}), so they cannot be judged; train again, perhaps with a lower learning "
                "rate."
            )

    def predicted(self) -> NDArray[np.int64]:
        """Return the most likely class of each image, (N,); of equally likely ones the first."""
        self.check_finite()
        logits = self.logits if self.adjustment is None else self.logits.astype(np.float64) + self.adjustment
        predicted: NDArray[np.int64] = logits.argmax(axis=1).astype(np.int64, copy=False)
        return predicted

    def log_probabilities(self) -> NDArray[np.float64]:
        """Return the logarithms of the softmax, (N, K), in float64: finite for any finite logits.

        Example:
            >>> import numpy as np
            >>> from evenhand.metrics.predictions import Predictions
            >>> logits = np.array([[1000, 0]], np.float32)
            >>> Predictions(logits, np.array([0]), np.array(["a"]), ("x", "y"), np.array([1, 1])).log_probabilities()
            array([[    0., -1000.]])
        """
        self.check_finite()
        shift = 0.0 if self.adjustment is None else self.adjustment
        log_probabilities: NDArray[np.float64] = log_softmax(self.logits.astype(np.float64) + shift, axis=1)
        return log_probabilities

    def save(self, path: Path | str) -> None:
        """Write everything to a `.npz` of plain arrays, whole or not at all; equal predictions give equal bytes.

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
        write_arrays(
            path,
            logits=self.logits,
            targets=self.targets,
            ids=self.ids,
            class_names=np.array(self.class_names),
            train_counts=self.train_counts,
            **{key: value for key in OPTIONAL if (value := getattr(self, key)) is not None},
        )

    def correct(self) -> NDArray[np.bool_]:
        """Return whether each image was classified correctly, (N,)."""
        correct: NDArray[np.bool_] = self.predicted() == self.targets
        return correct

    def confidences(self) -> NDArray[np.float64]:
        """Return the probability of the predicted class of each image, (N,)."""
        confidences: NDArray[np.float64] = np.exp(self.log_probabilities().max(axis=1))
        return confidences

    @cached_property
    def confusion(self) -> Confusion:
        """The confusion matrix, (K, K): rows are actual classes, columns predicted ones."""
        return confusion_matrix(self.targets, self.predicted(), self.num_classes)


def load_predictions(path: Path | str) -> Predictions:
    """Read what :meth:`Predictions.save` wrote. Other arrays in the file are left alone; pickled ones are never read.

    Raises:
        EvenhandError: if there is no such file, or if it is damaged, foreign, or holds arrays that do not fit.
    """
    arrays = read_arrays(
        path, KEYS, "file of predictions", "write it again with `evenhand evaluate`", optional=OPTIONAL
    )
    try:
        classes, logits = np.atleast_1d(arrays.pop("class_names")), arrays["logits"]
        # One too many is told; all of them, as objects of their own, would take ten times the memory of their file.
        names = tuple(classes[: logits.shape[-1] + 1 if logits.ndim else 1].tolist())
        return Predictions(**arrays, class_names=names)
    except EvenhandError as error:
        raise EvenhandError(f"Cannot read {path}: {error}") from error


def _is_array(array: object, kind: type[np.generic], ndim: int) -> bool:
    return isinstance(array, np.ndarray) and np.issubdtype(array.dtype, kind) and array.ndim == ndim


def _seen(array: object) -> str:
    if not isinstance(array, np.ndarray):
        return f"a {type(array).__name__}"
    return f"{clipped(str(array.dtype))} of shape {clipped(str(array.shape))}"


def _refuse_unlike(
    name: str, array: NDArray[Any], kind: type[np.generic], size: int, logits: NDArray[np.float32]
) -> None:
    if not _is_array(array, kind, 1) or len(array) != size:
        wanted = "text" if kind is np.str_ else kind.__name__
        raise EvenhandError(
            f"{name} must be {wanted} of shape ({size},) as the logits are {logits.shape}, got {_seen(array)}."
        )


def _refuse_names(names: tuple[str, ...], num_classes: int) -> None:
    if len(names) != num_classes or not all(isinstance(name, str) for name in names):
        raise EvenhandError(f"class_names must be {num_classes} texts, one a column of logits, got {some(names)}.")
    if len(set(names)) < num_classes:
        again = [name for name, times in Counter(names).items() if times > 1]
        raise EvenhandError(f"class_names must differ, but some come again: {some(again)}.")
    # An array of text drops NULs at the end, so that what is read back would not be what was saved.
    if any("\0" in name for name in names):
        raise EvenhandError(f"class_names must not hold NUL characters, got {some(names)}.")
