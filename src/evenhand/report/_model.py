"""The model that a report hands over: what it reaches, its weakest classes, and the commands to use it."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import class_recall
from evenhand.metrics.per_image import PerImageResults, correct_per_image
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._gallery import Picture, class_pictures
from evenhand.report._report_data import ReportData
from evenhand.report._tables import Column, Table, TableCell
from evenhand.report.figures.tables import joint_confusion, recall_intervals
from evenhand.runs.run import Run
from evenhand.statistics.intervals import mean_recall_interval, wilson_interval

MOST_WEAK = 5
"""Classes listed as weakest, and classes to photograph more."""
MOST_CONFUSED = 3
"""Classes that a weak class is most often mistaken for."""
MOST_PICTURES = 5
FEWEST_CLASSES = 5
"""For a trend over classes."""
UNKNOWN = 0.3
"""Width of an interval from which a recall is hardly known."""
LEAST_GAIN = 0.1
"""Classes of a smaller gain per image, compared with the first, are not listed."""
PRECISION = 0.1
"""Half the width of the interval that the number of test images needed is given for."""
_Z = 1.959964


@dataclass(frozen=True, eq=False)
class Model:
    """The recommended objective of a comparison, or the only run."""

    name: str
    """The objective."""
    status: str
    """How sure the recommendation is."""
    folder: Path
    """What predict, export and serve are given."""
    seeds: list[Run]
    results: PerImageResults = field(init=False)
    """Of each test image, over seeds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", correct_per_image([run.predictions for run in self.seeds]))

    @property
    def used(self) -> Run:
        """The run whose weights predict, export and serve use."""
        return max(self.seeds, key=lambda run: run.summary.selected.val_balanced_accuracy or 0)

    @property
    def balanced_accuracy(self) -> float:
        """The mean over seeds, as in the table of results."""
        return _mean([run.summary.balanced_accuracy for run in self.seeds])


@dataclass(frozen=True)
class KeyFigure:
    """One number of the model: a title, the value with its interval, and what it is of."""

    title: str
    value: str
    interval: str = ""
    note: str = ""


@dataclass(frozen=True)
class WeakClass:
    """One of the classes with the lowest recall."""

    name: str
    group: str
    train_count: int
    recall: str
    interval: str
    missed: str
    """How many of its predictions are wrong."""
    confused: list[tuple[str, str]]
    """What it is most often mistaken for: class, and percent of its predictions."""
    pictures: list[Picture]


def find_model(data: ReportData) -> Model | None:
    """Return the model that a report hands over; None where it is about several runs, or recommends nothing."""
    comparison = data.comparison
    if comparison is None:
        if len(data.finished) != 1 or data.unfinished:
            return None
        [(_, seeds)] = data.finished.items()
        return Model(seeds[0].summary.objective, "Trained with", seeds[0].path, seeds)
    if comparison.recommended not in data.finished or data.folder is None:
        return None
    status = (
        "Recommended objective"
        if comparison.certainty == "shown"
        else "Recommended for now; which objective is best is undecided"
    )
    return Model(comparison.recommended, status, data.folder, data.finished[comparison.recommended])


def key_figures(model: Model) -> list[KeyFigure]:
    """Return what the model reaches, with 95% intervals over test images, or over groups of them."""
    results, seeds = model.results, model.seeds
    first = seeds[0].predictions
    figures = [
        KeyFigure(
            "balanced accuracy",
            _percent(model.balanced_accuracy),
            _interval(mean_recall_interval(results.correct, results.targets, groups=results.groups)),
            "mean recall of all classes",
        ),
        KeyFigure(
            "accuracy",
            _percent(_mean([run.summary.accuracy for run in seeds])),
            _interval(_accuracy_interval(results)),
            "of all test images",
        ),
    ]
    few = find_shot_groups(first.train_counts).few
    recalls = [group.recall for run in seeds if (group := run.summary.groups.get("few")) is not None]
    if len(recalls) == len(seeds):
        ends = mean_recall_interval(results.correct, results.targets, few, groups=results.groups)
        note = f"mean recall of {len(few)} class{'es' * (len(few) != 1)} with few training images"
        figures.append(KeyFigure("few-shot recall", _percent(_mean(recalls)), _interval(ends), note))
    recall = class_recall(joint_confusion([run.predictions for run in seeds]))
    worst = int(np.nanargmin(recall))
    low, high = (ends[worst] for ends in recall_intervals([run.predictions for run in seeds]))
    ends = None if np.isnan(low) else (float(low), float(high))
    figures.append(
        KeyFigure("lowest recall", _percent(recall[worst]), _interval(ends), f"of class {first.class_names[worst]}")
    )
    return figures


def _accuracy_interval(results: PerImageResults) -> tuple[float, float] | None:
    if results.groups is not None:
        together = np.zeros(len(results.targets), np.int64)
        return mean_recall_interval(results.correct, together, groups=results.groups)
    low, high = wilson_interval(results.correct.mean(), len(results.correct))
    return float(low), float(high)


def measured_on(model: Model) -> str:
    """Return what the numbers of the model are of, in a sentence or two."""
    results, number = model.results, len(model.seeds)
    images = f"{len(results.ids):,} test images"
    if results.groups is not None:
        images = f"{len(np.unique(results.groups)):,} groups of {images}"
    if number == 1:
        return f"Brackets: 95% CI over {images}; other training runs are not covered."
    spread = np.std([run.summary.balanced_accuracy for run in model.seeds], ddof=1)
    best = "best on validation" if model.used.summary.selected.val_balanced_accuracy else "the first"
    return (
        f"Means over {number} seeds; the balanced accuracy of seeds has a standard deviation of {100 * spread:.1f} pp. "
        f"Brackets: 95% CI over {images}, each counted once; other training runs are not covered. The commands use "
        f"seed {model.used.config.seed}, {best}."
    )


def weakest_classes(model: Model, most: int = MOST_WEAK) -> list[WeakClass]:
    """Return the classes of a recall up to the mean, the lowest first, with pictures of their errors."""
    seeds = [run.predictions for run in model.seeds]
    first, confusion = seeds[0], joint_confusion(seeds)
    recall, totals = class_recall(confusion), confusion.sum(axis=1)
    low, high = recall_intervals(seeds)
    groups = find_shot_groups(first.train_counts)
    order = np.argsort(recall, kind="stable")  # NaN, without a test image, last
    limit = np.nanmean(recall) + 1e-9
    weakest = [int(k) for k in order[: min(most, max(1, len(recall) // 2))] if recall[k] <= limit and recall[k] < 1]
    pictures = class_pictures(_with_pictures(model), weakest, MOST_PICTURES)
    what = "test images" if len(seeds) == 1 else f"predictions ({len(seeds)} seeds)"
    found = []
    for k in weakest:
        wrong = confusion[k].copy()
        wrong[k] = 0
        rivals = [int(j) for j in np.argsort(-wrong, kind="stable")[:MOST_CONFUSED] if wrong[j]]
        found.append(
            WeakClass(
                first.class_names[k],
                groups.of(k),
                int(first.train_counts[k]),
                _percent(recall[k]),
                _interval(None if np.isnan(low[k]) else (float(low[k]), float(high[k]))),
                f"{wrong.sum():,} of {totals[k]:,} {what} wrong",
                [(first.class_names[j], _percent(wrong[j] / totals[k])) for j in rivals],
                pictures[k],
            )
        )
    return found


def _with_pictures(model: Model) -> list[Run]:
    """Return the runs that have pictures, the one that is used first."""
    runs = []
    for run in [model.used, *(run for run in model.seeds if run is not model.used)]:
        try:
            _ = run.thumbnails
        except EvenhandError:
            continue  # the section of errors has the reason
        runs.append(run)
    return runs


def photograph_table(model: Model, most: int = MOST_WEAK) -> Table:
    """Return the classes whose recall the next photographs would probably raise most, as a table.

    If the error of a class falls as a power of its training images, as learning curves mostly do, one more image lowers
    it in proportion to error / images. The error is taken from the middle of its interval, so that a class that was
    tested on few images counts as not known rather than as perfect.
    """
    seeds = [run.predictions for run in model.seeds]
    first, results = seeds[0], model.results
    recall = class_recall(joint_confusion(seeds))
    low, high = recall_intervals(seeds)
    middle = np.where(np.isnan(low), 0.5, (low + high) / 2)
    counts, tested = first.train_counts, np.bincount(results.targets, minlength=first.num_classes)
    gains = gain_per_image(middle, counts)
    order = np.argsort(-gains, kind="stable")[: min(most, max(1, len(counts) // 2))]
    order = order[gains[order] >= LEAST_GAIN * gains.max()]
    perfect = (recall == 1) & (high - low <= UNKNOWN)  # and tested on enough images to say so
    if not perfect.all():
        order = order[~perfect[order]]
    columns = [Column("class", kind="text"), Column("training images"), Column("recall (%)")]
    columns += [Column("test images"), Column("reason", kind="text")]
    rows = []
    for k in order.tolist():
        ends = None if np.isnan(low[k]) else (float(low[k]), float(high[k]))
        needed = "" if results.groups is not None else _needed(middle[k], int(tested[k]))
        rows.append(
            [
                TableCell(first.class_names[k]),
                TableCell(f"{counts[k]:,}", value=int(counts[k])),
                TableCell("" if np.isnan(recall[k]) else f"{100 * recall[k]:.1f}", small=_interval(ends)),
                TableCell(f"{tested[k]:,}", small=needed),
                TableCell(_reason(k, recall, ends, counts), kind="text"),
            ]
        )
    return Table(columns, rows)


def gain_per_image(recall: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return error / training images, (K,): what one more image lowers the error by, up to a common factor."""
    share: NDArray[np.float64] = (1 - recall) / np.maximum(counts, 1)
    return share


def _needed(middle: float, tested: int) -> str:
    """Return how many test images give an interval of ±10 pp, where there are fewer."""
    needed = math.ceil(_Z**2 * middle * (1 - middle) / PRECISION**2)
    return f"({needed})" if needed > tested else ""


def _reason(k: int, recall: NDArray[np.float64], ends: tuple[float, float] | None, counts: NDArray[np.int64]) -> str:
    if np.isnan(recall[k]):
        return "no test image"
    reasons = []
    if counts[k] <= np.median(counts) and counts[k] < counts.max():
        reasons.append("few training images")
    if recall[k] < np.nanmean(recall):
        reasons.append("low recall")
    if ends is None or ends[1] - ends[0] > UNKNOWN:
        reasons.append("few test images")
    return "; ".join(reasons) or "most errors per training image"


def count_trend(recall: NDArray[np.float64], counts: NDArray[np.int64]) -> tuple[float, float, float] | None:
    """Return by how much recall rises over classes where training images double, with its 95% interval.

    It is the slope of the least-squares line of recall on log2 of the counts, with Student's t.

    Args:
        recall: (K,), NaN for a class without a test image.
        counts: training images, (K,).

    Returns:
        Slope, lower and upper end; None with fewer than 5 classes, or where no class has twice as many as another.

    Example:
        >>> import numpy as np
        >>> from evenhand.report._model import count_trend
        >>> recall = np.array([0.5, 0.6, 0.7, 0.8, 0.9]) + np.array([1, -1, 0, -1, 1]) / 100
        >>> [round(each, 2) for each in count_trend(recall, np.array([10, 20, 40, 80, 160]))]
        [0.1, 0.09, 0.11]
    """
    there = ~np.isnan(recall) & (counts > 0)
    y, x = recall[there], np.log2(counts[there])
    if len(x) < FEWEST_CLASSES or np.ptp(x) < 1:
        return None
    apart = x - x.mean()
    slope = float(apart @ y / (apart @ apart))
    rest = y - y.mean() - slope * apart
    half = float(stdtrit(len(x) - 2, 0.975)) * math.sqrt(rest @ rest / (len(x) - 2) / (apart @ apart))
    return slope, slope - half, slope + half


def trend_sentence(model: Model) -> str:
    """Return what is known about whether more photographs would help."""
    first = model.seeds[0].predictions
    recall = class_recall(joint_confusion([run.predictions for run in model.seeds]))
    found = count_trend(recall, first.train_counts)
    if found is None:
        return (
            "The classes have too similar numbers of training images, or are too few, to see whether more photographs "
            "would help."
        )
    slope, low, high = (100 * each for each in found)
    start = (
        f"Over the classes, twice as many training images go with {slope:+.1f} pp of recall [{low:+.1f}, {high:+.1f}]"
    )
    if low > 0:
        return f"{start}: more photographs should help. Classes also differ in difficulty, so by how much is not known."
    return (
        f"{start}: it is not shown that more photographs raise recall here. Look first at what the weakest classes are "
        "mistaken for."
    )


def commands(model: Model) -> list[tuple[str, str]]:
    """Return what can be done with the model, and the command for each."""
    folder = shlex.quote(str(model.folder))
    return [
        ("Classify images", f"evenhand predict {folder} new-photos/"),
        ("Export to ONNX", f"evenhand export {folder} --onnx model.onnx"),
        ("Browse and try it", f"evenhand serve {folder}"),
        ("In Python", f"import evenhand; model = evenhand.load({str(model.folder)!r})"),
    ]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"[{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"
