"""Difference in recall of each class between two objectives."""

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import stdtrit

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import class_recall
from evenhand.metrics.per_image import correct_per_image
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import One, seeds_of
from evenhand.report.figures.page_figure import PageFigure, Shown, bar_tooltips, by_class
from evenhand.report.figures.recall import class_rows, counted_names
from evenhand.report.figures.style import (
    INK,
    MOST_NAMED,
    QUIET,
    clear_frame,
    from_most_to_fewest,
    heading,
    new_figure,
    thinned,
    widest,
)
from evenhand.report.figures.tables import first_of, joint_confusion
from evenhand.statistics.image_sampling import paired_image_error

EXTREMES = 10
"""Of many classes, the largest gains and losses that are named."""
_Z = 1.959964


def recall_difference(ours: One, baseline: One, *, names: tuple[str, str]) -> Figure:
    """Draw the difference in recall of each class between two objectives, in percentage points.

    The classes are ordered by training images. The 95% intervals (Bonett and Price, for paired proportions) are over
    test images; with several seeds a small dot shows each, paired in the order given. With more than 30 classes, the
    ten largest gains and losses are named next to a plot of all; extremes of many noisy numbers are partly chance, as
    the intervals show.

    Args:
        ours: the runs of one objective, their folders or their predictions, one per seed.
        baseline: those of the other, tested on the same images.
        names: of the two objectives.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import recall_difference
        >>> names, ids, counts = ("cat", "dog"), np.array(["a", "b"]), np.array([900, 15])
        >>> right = Predictions(np.eye(2, dtype=np.float32), np.array([0, 1]), ids, names, counts)
        >>> wrong = Predictions(np.eye(2, dtype=np.float32)[[0, 0]], np.array([0, 1]), ids, names, counts)
        >>> figure = recall_difference([right], [wrong], names=("cce", "ce"))
        >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
        [0.0, 100.0]
    """
    ours, baseline = seeds_of(names[0], ours), seeds_of(names[1], baseline)
    first = first_of({names[0]: ours, names[1]: baseline})
    low, high = _paired_interval(ours, baseline)
    difference = _gains(ours, baseline)
    dots = [_gains([mine], [theirs]) for mine, theirs in zip(ours, baseline, strict=False)]
    order = from_most_to_fewest(first.train_counts)
    many = first.num_classes > MOST_NAMED
    if many:
        tested = order[~np.isnan(difference[order])]
        ranked = tested[np.argsort(-difference[tested], kind="stable")]
        order = np.concatenate([ranked[:EXTREMES], ranked[-EXTREMES:]]) if len(ranked) > 2 * EXTREMES else ranked
    labels = counted_names(first, order)
    figure = new_figure(4.4 + widest(labels) + (4.2 if many else 0), max(2.2, 1.0 + 0.24 * len(order)))
    panels = figure.subplots(1, 2 if many else 1, squeeze=False, width_ratios=[1.1, 1] if many else None)[0]
    axes = panels[-1]
    rows = np.arange(len(order))
    axes.barh(rows, np.nan_to_num(difference[order]), color=QUIET, height=0.7, alpha=0.6)
    axes.hlines(rows, 100 * low[order], 100 * high[order], color=INK, linewidth=1.0)
    if len(dots) > 1:
        for dot in dots:
            axes.scatter(dot[order], rows, s=9, facecolors="white", edgecolors=INK, linewidths=0.6, zorder=3)
    class_rows(axes, labels)
    axes.axvline(0, color=INK, linewidth=0.8)
    dotted = "; dots: seeds" if len(dots) > 1 else ""
    axes.set_xlabel(f"difference in recall (pp)\nline: 95% CI over test images{dotted}", fontsize=9)
    title = f"{names[0]} against {names[1]}"
    if many:
        shown = f"the {EXTREMES} best and {EXTREMES} worst" if len(order) == 2 * EXTREMES else "those tested"
        heading(axes, f"{shown} (training images)", 3.4, size=9)
        _draw_all(panels[0], difference, first.train_counts, title)
    else:
        heading(axes, f"{title}, per class (training images)", 3.5, size=9)
    return figure


def _gains(ours: Sequence[Predictions], baseline: Sequence[Predictions]) -> NDArray[np.float64]:
    """Return the difference in recall of each class in percentage points, (K,), NaN without test images."""
    return 100 * (class_recall(joint_confusion(ours)) - class_recall(joint_confusion(baseline)))


def _draw_all(axes: Axes, difference: NDArray[np.float64], counts: NDArray[np.int64], title: str) -> None:
    """Draw the differences of many classes by rank, with the mean of each shot group."""
    order = from_most_to_fewest(counts)
    ordered = np.nan_to_num(difference[order])
    axes.bar(np.arange(len(order)), ordered, width=1.0, color=QUIET, alpha=0.5)
    groups = find_shot_groups(counts)
    start = 0
    for classes in (groups.many, groups.medium, groups.few):
        own = difference[list(classes)]
        if not np.isnan(own).all():
            axes.hlines(np.nanmean(own), start - 0.5, start + len(own) - 0.5, color=INK, linewidth=1.6)
        start += len(classes)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-0.5, len(order) - 0.5)
    places = thinned(len(order))
    axes.set_xticks(places, [str(place + 1) for place in places])
    clear_frame(axes)
    axes.set_xlabel("class, most training images first; lines: means of shot groups", fontsize=9)
    axes.set_ylabel("difference in recall (pp)", fontsize=9)
    heading(axes, f"{title}: all {len(order)} classes", 3.8, size=9)


def _paired_interval(
    ours: Sequence[Predictions], baseline: Sequence[Predictions]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the ends of the interval of the difference in recall of each class, (K,), NaN without test images.

    Bonett and Price (2012) add one image to either kind of disagreement. With several seeds, an image is gained or lost
    in part; the variance is then slightly overestimated.
    """
    results, other = correct_per_image(ours), correct_per_image(baseline)
    if not np.array_equal(results.ids, other.ids):
        raise EvenhandError("The two objectives were not tested on the same images, so they cannot be paired.")
    mine, theirs, targets, num_classes = results.correct, other.correct, results.targets, ours[0].num_classes
    if results.groups is not None:
        return _by_group(mine, theirs, targets, results.groups, num_classes)
    images = np.bincount(targets, minlength=num_classes)
    gained, lost = (
        (np.bincount(targets, np.maximum(sign * (mine - theirs), 0), minlength=num_classes) + 1) / (images + 2)
        for sign in (1, -1)
    )
    half = _Z * np.sqrt(np.maximum(gained + lost - (gained - lost) ** 2, 0) / (images + 2))
    low, high = np.clip(gained - lost - half, -1, 1), np.clip(gained - lost + half, -1, 1)
    low[images == 0] = high[images == 0] = np.nan
    return low, high


def _by_group(
    mine: NDArray[np.float64],
    theirs: NDArray[np.float64],
    targets: NDArray[np.int64],
    groups: NDArray[np.str_],
    num_classes: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the same over groups of images; also NaN for a class tested on a single group."""
    low, high = np.full(num_classes, np.nan), np.full(num_classes, np.nan)
    for k in np.unique(targets):
        found = paired_image_error(mine[None], theirs[None], targets, groups=groups, classes=[int(k)])
        if found is not None:
            half = float(stdtrit(found.freedom, 0.975)) * found.error
            low[k], high[k] = max(found.mean - half, -1.0), min(found.mean + half, 1.0)
    return low, high


def _compared(data: ReportData) -> Iterable[str]:
    return [name for name in data.finished if data.comparison and name != data.comparison.baseline]


def _on_page(data: ReportData, name: str) -> Shown:
    assert data.comparison is not None
    runs, baseline = data.predictions(), data.comparison.baseline
    first = runs[name][0]
    figure = recall_difference(runs[name], runs[baseline], names=(name, baseline))
    gains = _gains(runs[name], runs[baseline])
    texts = ["no test image" if np.isnan(gain) else f"{gain:+.1f} pp" for gain in gains]
    order = from_most_to_fewest(first.train_counts).tolist()
    rose, fell = int((gains > 0).sum()), int((gains < 0).sum())
    alt = f"Difference in recall of each class, {name} against {baseline}: {rose} classes rose and {fell} fell."
    hover = bar_tooltips(figure, [f"{first.class_names[k]}: {texts[k]}" for k in order])
    return by_class(figure, alt, hover, len(order))


DIFFERENCE = PageFigure(
    "difference",
    "differences",
    _on_page,
    condition=lambda data: data.comparable() and bool(_compared(data)),
    panels=_compared,
)
