"""The schemas of a run's files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenhand.core.errors import EvenhandError
from evenhand.core.text import clipped, some
from evenhand.metrics.classification import class_recall, mean_recall
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.registry import METRICS, Metric
from evenhand.metrics.shot_groups import find_shot_groups

EpochRow = dict[str, float]
"""One epoch of a history."""

_Share = Annotated[float, Field(ge=-1e-9, le=1 + 1e-9)]
_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Positive = Annotated[float, Field(ge=0)]
_Interval = tuple[float, float]


LEARNED_NOTHING = "learned nothing"
"""How the failure of a run that does not beat always predicting one class begins."""


class StoredModel(BaseModel):
    """The content of a file: text is never parsed as a number, and keys that later versions add are kept."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)


class Environment(StoredModel):
    """The machine and the versions that a run was made with; nothing here is needed to use the run."""

    started: str | None = None
    python: str | None = None
    versions: dict[str, str] = {}
    commit: str | None = None
    code: str | None = None
    """A hash of the package's own code."""
    system: str | None = None
    processor: str | None = None
    cpus: _Count | None = None
    threads: _Count | None = None
    device: str | None = None
    devices: _Count | None = None
    precision: str | None = None
    seed: _Count | None = None
    weights: dict[str, str] | None = None
    """`sha256` and `source` of the initial weights; None: random ones."""


def precision_name(fabric_precision: object) -> str:
    """Return the name that a config uses for one of Fabric's precisions.

    Example:
        >>> from evenhand.runs.schemas import precision_name
        >>> precision_name("bf16-mixed")
        'bfloat16'
    """
    return {"32": "float32", "bf": "bfloat16", "16": "float16"}.get(str(fabric_precision)[:2], "unknown")


class SplitIds(StoredModel):
    """The ids of the images that a run was trained, validated and tested on."""

    source: str
    train: tuple[str, ...] = Field(min_length=1)
    val: tuple[str, ...]
    test: tuple[str, ...] = Field(min_length=1)
    calibration: tuple[str, ...] = ()
    """Those of prediction sets."""

    @model_validator(mode="after")
    def _disjoint(self) -> "SplitIds":
        named = {name: set(getattr(self, name)) for name in ("train", "val", "test", "calibration")}
        for name, ids in named.items():
            if len(ids) < len(getattr(self, name)):
                raise ValueError(f"an image is listed twice in {name}")
        for one, other in combinations(("train", "val", "test", "calibration"), 2):
            both = sorted(named[one] & named[other])
            if both:
                raise ValueError(f"{len(both):,} images are in both {one} and {other}, such as {both[0]!r}")
        return self

    @property
    def fingerprint(self) -> str:
        """A hash of all ids in order: equal for runs on the same images."""
        parts = [self.train, self.val, self.test, *([self.calibration] if self.calibration else [])]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class Selected(StoredModel):
    """The epoch whose weights were selected."""

    rule: str
    epoch: int = Field(ge=1)
    val_balanced_accuracy: _Share | None = None
    epoch_by_accuracy: int | None = None
    """The epoch that plain accuracy would select."""


class HeldOutCounts(StoredModel):
    """The images by class that were not trained on, and how many of them are answered correctly, without adjustment."""

    images: tuple[_Count, ...]
    correct: tuple[_Count, ...]


class WorstClass(StoredModel):
    """The class with the lowest recall."""

    name: str
    recall: _Share


class GroupRecall(StoredModel):
    """The mean recall of a group of classes."""

    recall: _Share
    interval: _Interval | None = None
    classes: _Count
    tested: _Count


class ClassResult(StoredModel):
    """The results of one class; None where it has no test image."""

    name: str
    group: str
    train_count: _Count
    test_count: _Count
    recall: _Share | None
    recall_interval: _Interval | None = None
    precision: _Share | None = None
    f1: _Share | None = None


class Adjustment(StoredModel):
    """A post-hoc adjustment of the logits of a trained network."""

    kind: Literal["post-hoc", "prior", "tau-normalised"]
    """Subtract tau times the log prior; change to another prior; or normalise the weights of the last layer."""
    chosen: str
    """How tau was chosen: `given` or `validation`."""
    tau: float | None = Field(None, ge=-1000, le=1000)
    prior: str | None = None
    """The new prior: `train`, `balanced` or a file."""
    added_to_logits: tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...] | None = None
    """One value per class."""

    def describe(self) -> str:
        """Return a short description.

        Example:
            >>> from evenhand.runs.schemas import Adjustment
            >>> Adjustment(kind="post-hoc", chosen="validation", tau=1.2).describe()
            'post-hoc, tau 1.2, chosen on validation'
        """
        if self.kind == "prior":
            return f"prior, changed to {self.prior}"
        chosen = ", chosen on validation" if self.chosen == "validation" else ""
        bias = ", without the bias" if self.kind == "tau-normalised" else ""
        return f"{self.kind}, tau {self.tau or 0:g}{chosen}{bias}"

    def is_in(self, predictions: Predictions) -> bool:
        """Return whether predictions already include it, as those of an objective with a post-hoc part do."""
        own, added = predictions.adjustment, self.added_to_logits
        return own is not None and added is not None and len(own) == len(added) and np.allclose(own, added)


class Summary(StoredModel):
    """The results of a run on its test set, see :func:`evenhand.runs.summary.summarise`.

    Every metric of :data:`evenhand.metrics.registry.METRICS` is a key of the file, and is read from :attr:`metrics`.
    """

    source: str
    imbalance: str
    objective: str
    model: str
    seed: _Count
    epochs: _Count
    selected: Selected
    validation: HeldOutCounts | None = None
    """None: there are no such images, or an earlier version wrote this."""
    calibration: HeldOutCounts | None = None
    """None: there are no such images, or an earlier version wrote this."""
    seconds_per_epoch: _Positive
    notes: tuple[str, ...] = ()
    images: _Count
    classes: _Count
    absent_classes: tuple[str, ...] = ()
    accuracy: _Share
    accuracy_interval: _Interval | None
    balanced_accuracy: _Share
    balanced_accuracy_interval: _Interval | None
    test_groups: _Count | None = None
    worst_class: WorstClass
    groups: dict[str, GroupRecall | None]
    shot_rule: str
    failures: tuple[str, ...] = ()
    intervals: str
    per_class: tuple[ClassResult, ...] = Field(min_length=2)
    confusion_matrix: tuple[tuple[_Count, ...], ...]

    @model_validator(mode="after")
    def _check_metrics(self) -> "Summary":
        _ = self.metrics
        return self

    @property
    def learned_nothing(self) -> bool:
        """Whether :func:`evenhand.runs.failures.learned_nothing` was reported, or balanced accuracy is at chance."""
        tested = sum(row.test_count > 0 for row in self.per_class)
        return any(each.startswith(LEARNED_NOTHING) for each in self.failures) or self.balanced_accuracy <= 1 / tested

    @cached_property
    def metrics(self) -> dict[str, float | None]:
        """Every metric by name; one that an earlier version did not store is computed if it can be, else None."""
        stored = self.model_dump(include=set(METRICS))
        return {
            name: metric.check(stored[name]) if name in stored else self._compute(metric)
            for name, metric in METRICS.items()
        }

    def _compute(self, metric: Metric) -> float | None:
        size = len(self.confusion_matrix)
        square = all(len(row) == size for row in self.confusion_matrix)
        if metric.from_confusion is None or not square or not any(map(any, self.confusion_matrix)):
            return None
        return metric.from_confusion(np.array(self.confusion_matrix, np.int64))

    def check(self, predictions: Predictions) -> None:
        """Refuse a summary that is not of these predictions, naming the first value that disagrees."""
        if [row.name for row in self.per_class] != list(predictions.class_names):
            raise EvenhandError("its classes are not those of the predictions.")
        confusion = predictions.confusion
        if [list(row) for row in self.confusion_matrix] != confusion.tolist():
            raise EvenhandError("its confusion matrix is not that of the predictions.")
        recall, groups = class_recall(confusion), find_shot_groups(predictions.train_counts)
        pairs: dict[str, tuple[float | None, float | None]] = {
            # Only what is exact: log probabilities differ between machines in their last digits.
            **{
                name: (self.metrics[name], metric.from_confusion(confusion))
                for name, metric in METRICS.items()
                if metric.from_confusion is not None
            },
            "images": (self.images, len(predictions)),
            "worst_class": (self.worst_class.recall, float(np.nanmin(recall))),
        }
        # An earlier version grouped nearly balanced classes.
        for name in ("many", "medium", "few") if self.shot_rule == groups.rule else ():
            stored = self.groups.get(name)
            own = None if stored is None else stored.recall
            pairs[f"{name}-shot recall"] = (own, mean_recall(confusion, getattr(groups, name)))
        for row, value in zip(self.per_class, recall.tolist(), strict=True):
            pairs[f"recall of {row.name!r}"] = (row.recall, None if np.isnan(value) else value)
        for name, (own, expected) in pairs.items():
            if (own is None) != (expected is None) or (
                own is not None and expected is not None and abs(own - expected) > 1e-9
            ):
                raise EvenhandError(f"its {name} is {own}, but the predictions give {expected}.")


@dataclass(frozen=True, eq=False)
class Features:
    """The layer before the classifier, of some test images."""

    features: NDArray[np.float16]
    """(n, F)."""
    targets: NDArray[np.int64]
    ids: NDArray[np.str_]

    def check(self, predictions: Predictions) -> None:
        """Refuse features that are not of these predictions."""
        targets = dict(zip(predictions.ids.tolist(), predictions.targets.tolist(), strict=True))
        if [targets.get(name) for name in self.ids.tolist()] != self.targets.tolist():
            raise EvenhandError("it does not belong to the predictions.")

    def __post_init__(self) -> None:
        plain = self.features.ndim == 2 and self.features.dtype == np.float16
        if not plain or not _are_columns(len(self.features), self.targets, self.ids):
            raise EvenhandError(f"its arrays do not fit each other: {_shapes(self.features, self.targets, self.ids)}.")


@dataclass(frozen=True, eq=False)
class Thumbnails:
    """Thumbnails of some test images."""

    images: NDArray[np.uint8]
    """(n, S, S, C), C of 1 or 3."""
    index: NDArray[np.int64]
    """Their rows in the predictions."""
    ids: NDArray[np.str_]

    def check(self, predictions: Predictions) -> None:
        """Refuse thumbnails that are not of these predictions."""
        inside = not len(self.index) or 0 <= self.index.min() <= self.index.max() < len(predictions)
        if not inside or not np.array_equal(predictions.ids[self.index], self.ids):
            raise EvenhandError("it does not belong to the predictions.")

    def __post_init__(self) -> None:
        plain = self.images.ndim == 4 and self.images.dtype == np.uint8 and self.images.shape[3] in (1, 3)
        if not plain or 0 in self.images.shape[1:] or not _are_columns(len(self.images), self.index, self.ids):
            raise EvenhandError(f"its arrays do not fit each other: {_shapes(self.images, self.index, self.ids)}.")


def check_history(rows: Sequence[EpochRow]) -> None:
    """Refuse invalid rows: epochs count from 1, accuracies are 0 to 1, seconds 0 or more."""
    if not rows:
        raise EvenhandError("it has no epochs.")
    for place, row in enumerate(rows, start=1):
        if row.get("epoch") != place:
            raise EvenhandError(f"row {place} has epoch {row.get('epoch')}.")
        for name, value in row.items():
            # Other columns may be NaN: complement entropy of wrong images where there are none.
            if (name.endswith("accuracy") and not 0 <= value <= 1) or (name == "seconds" and not 0 <= value < np.inf):
                raise EvenhandError(f"{name} of epoch {place} is {value}.")


def check_ids(predictions: Predictions, ids: Sequence[str], split: str) -> None:
    """Refuse predictions that are not of the images of a split, in order."""
    if len(predictions) != len(ids) or predictions.ids.tolist() != list(ids):
        known = set(ids)
        others = [name for name in predictions.ids.tolist() if name not in known]
        example = f", such as {some(others, 1)}" if others else ""
        raise EvenhandError(
            f"its {len(predictions):,} images are not the {len(ids):,} {split} images of the run in the same order"
            f"{example}."
        )


def _are_columns(size: int, numbers: NDArray[Any], ids: NDArray[Any]) -> bool:
    whole = numbers.ndim == 1 and numbers.dtype.kind == "i" and len(numbers) == size
    return whole and ids.ndim == 1 and ids.dtype.kind == "U" and len(ids) == size


def _shapes(*arrays: NDArray[Any]) -> str:
    return ", ".join(clipped(f"{array.dtype} {array.shape}") for array in arrays)
