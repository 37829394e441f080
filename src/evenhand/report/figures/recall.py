"""How well each class is recognised, beside how many images it was learnt from."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import class_recall
from evenhand.metrics.intervals import wilson_interval
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shots import ShotGroups, shot_groups
from evenhand.report.figures.style import (
    GAIN,
    INK,
    LOSS,
    MOST_NAMED,
    NAME_SIZE,
    clear_frame,
    from_most_to_fewest,
    heading,
    legend_below,
    literal,
    marker_style,
    new_figure,
    round_ticks,
    thinned,
    widest,
)
from evenhand.report.figures.tables import Runs, correct_by_image, first_of, joint_confusion

# Among very many classes, so many at each end of the differences are named.
EXTREMES = 10
# Very many classes are pooled into so many groups of similar counts.
POOLS = 8
_Z = 1.959964


def recall_by_count(runs: Runs) -> Figure:
    """Draw the recall of each class against its training images, with 95% Wilson intervals, for several objectives.

    Up to 30 classes have a row each, the one with most training images on top. More are pooled with classes of similar
    training counts, equal ones together. Seeds are averaged; as they are tested on the same images, an interval is as
    wide as for one seed: it says what other test images could change, not what other seeds would.

    Args:
        runs: the predictions of each objective, one for each seed.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import recall_by_count
        >>> logits, ids = np.eye(2, dtype=np.float32), np.array(["a", "b"])
        >>> mine = Predictions(logits, np.array([0, 1]), ids, ("cat", "dog"), np.array([9, 1500]))
        >>> figure = recall_by_count({"ce": [mine], "cce": [mine]})
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['dog  (1,500)', 'cat  (9)']
    """
    first = first_of(runs)
    figure = _rows_of_recall(runs, first) if first.num_classes <= MOST_NAMED else _pools_of_recall(runs, first)
    handles = [Line2D([], [], linestyle="none", markersize=5, **marker_style(k)) for k in range(len(runs))]
    legend_below(figure, handles, list(runs))
    return figure


def _rows_of_recall(runs: Runs, first: Predictions) -> Figure:
    order = from_most_to_fewest(first.train_counts)
    labels = _counted(first, order)
    pitch = max(0.26, 0.09 * len(runs) + 0.1)
    figure = new_figure(4.6 + widest(labels), 0.8 + pitch * len(order))
    axes = figure.add_subplot()
    for position, seeds in enumerate(runs.values()):
        support = np.array([(first.targets == k).sum() for k in order])
        recall = class_recall(joint_confusion(seeds))[order]
        low, high = wilson_interval(np.nan_to_num(recall), np.maximum(support, 1))
        there = support > 0  # a class without a test image has a row, empty
        rows = np.arange(len(order)) + _dodge(position, len(runs)) * 0.7
        style = marker_style(position)
        axes.hlines(rows[there], 100 * low[there], 100 * high[there], color=style["color"], linewidth=1.2, alpha=0.6)
        axes.scatter(100 * recall[there], rows[there], s=16, linewidths=0, zorder=3, **style)
    _class_rows(axes, labels)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("recall (%), with 95% interval", fontsize=9)
    return figure


def _pools_of_recall(runs: Runs, first: Predictions) -> Figure:
    pools = _pools(first.train_counts)
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    counts = np.array([first.train_counts[pool].mean() for pool in pools])
    for position, seeds in enumerate(runs.values()):
        style = marker_style(position)
        confusion = joint_confusion(seeds)
        hits, support = confusion.diagonal(), confusion.sum(axis=1)
        there = np.array([support[pool].sum() > 0 for pool in pools])
        recall = np.array([hits[pool].sum() / max(support[pool].sum(), 1) for pool in pools])
        trials = np.array([max(support[pool].sum() / len(seeds), 1) for pool in pools])
        low, high = wilson_interval(recall, trials)
        places = np.maximum(counts, 0.5) * 1.05 ** (_dodge(position, len(runs)) * len(runs))
        axes.plot(places[there], 100 * recall[there], color=style["color"], linewidth=0.8, alpha=0.6)
        axes.vlines(places[there], 100 * low[there], 100 * high[there], color=style["color"], linewidth=1.2, alpha=0.6)
        axes.scatter(places[there], 100 * recall[there], s=20, linewidths=0, zorder=3, **style)
    axes.set_xscale("log")
    ticks = round_ticks(max(counts.min(), 0.5), max(counts.max(), 0.5))
    axes.set_xticks(ticks, [f"{tick:,.3g}" if tick < 10 else f"{tick:,.0f}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(-2, 102)
    axes.set_xlabel(f"training images of a class (mean of classes pooled; {first.num_classes} classes)", fontsize=9)
    axes.set_ylabel("recall (%), with 95% interval", fontsize=9)
    clear_frame(axes)
    return figure


def _pools(counts: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Cut the classes into groups of similar counts; equal counts stay together."""
    order = from_most_to_fewest(counts)
    edges = {int(counts[part[0]]) for part in np.array_split(order, min(POOLS, len(order)))}
    place = np.searchsorted(np.sort(list(edges)), counts, side="left")
    return [np.flatnonzero(place == each) for each in np.unique(place)]


def recall_difference(
    ours: Sequence[Predictions], baseline: Sequence[Predictions], *, names: tuple[str, str]
) -> Figure:
    """Draw how much more of each class one objective recognises than another, in points of recall.

    The classes are ordered by training images. The intervals (95%, Bonett and Price's for paired shares) say what other
    test images could change; with several seeds a small dot shows each, paired in the order given. Of more than 30
    classes the ten largest gains and losses are named beside a picture of all; the extremes of many noisy numbers are
    partly luck, which the intervals show.

    Args:
        ours: the predictions of one objective, one for each seed.
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
    first = first_of({names[0]: ours, names[1]: baseline})
    low, high = _paired_interval(ours, baseline)
    recalls = [class_recall(joint_confusion(seeds)) for seeds in (ours, baseline)]
    difference = 100 * (recalls[0] - recalls[1])
    dots = [
        100 * (class_recall(joint_confusion([mine])) - class_recall(joint_confusion([theirs])))
        for mine, theirs in zip(ours, baseline, strict=False)
    ]
    order = from_most_to_fewest(first.train_counts)
    many = first.num_classes > MOST_NAMED
    if many:
        tested = order[~np.isnan(difference[order])]
        ranked = tested[np.argsort(-difference[tested], kind="stable")]
        order = np.concatenate([ranked[:EXTREMES], ranked[-EXTREMES:]]) if len(ranked) > 2 * EXTREMES else ranked
    labels = _counted(first, order)
    wide = widest(labels)
    figure = new_figure(4.4 + wide + (4.2 if many else 0), max(2.2, 1.0 + 0.24 * len(order)))
    panels = figure.subplots(1, 2 if many else 1, squeeze=False, width_ratios=[1.1, 1] if many else None)[0]
    axes = panels[-1]
    rows = np.arange(len(order))
    colours = [GAIN if value >= 0 else LOSS for value in np.nan_to_num(difference[order])]
    axes.barh(rows, np.nan_to_num(difference[order]), color=colours, height=0.7, alpha=0.75)
    axes.hlines(rows, 100 * low[order], 100 * high[order], color=INK, linewidth=1.0)
    if len(dots) > 1:
        for dot in dots:
            axes.scatter(dot[order], rows, s=9, facecolors="white", edgecolors=INK, linewidths=0.6, zorder=3)
    _class_rows(axes, labels)
    axes.axvline(0, color=INK, linewidth=0.8)
    dotted = "; dots: seeds" if len(dots) > 1 else ""
    axes.set_xlabel(f"difference in recall (points)\nline: 95% interval over test images{dotted}", fontsize=9)
    title = f"{names[0]} against {names[1]}"
    if many:
        shown = f"the {EXTREMES} best and {EXTREMES} worst" if len(order) == 2 * EXTREMES else "those tested"
        heading(axes, f"{shown} (training images)", 3.4, size=9)
        _draw_all(panels[0], difference, first.train_counts, title)
    else:
        heading(axes, f"{title}, per class (training images)", 3.5, size=9)
    return figure


def _draw_all(axes: Axes, difference: NDArray[np.float64], counts: NDArray[np.int64], title: str) -> None:
    """Draw the differences of very many classes by rank, with the mean of each shot group."""
    order = from_most_to_fewest(counts)
    ordered = np.nan_to_num(difference[order])
    colours = [GAIN if value >= 0 else LOSS for value in ordered]
    axes.bar(np.arange(len(order)), ordered, width=1.0, color=colours, alpha=0.55)
    groups: ShotGroups = shot_groups(counts)
    start = 0
    for classes in (groups.many, groups.medium, groups.few):
        own = difference[list(classes)]
        if len(own) and not np.isnan(own).all():
            mean = float(np.nanmean(own))
            end = start + len(own)
            axes.hlines(mean, start - 0.5, end - 0.5, color=INK, linewidth=1.6)
        start += len(classes)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xlim(-0.5, len(order) - 0.5)
    places = thinned(len(order))
    axes.set_xticks(places, [str(place + 1) for place in places])
    clear_frame(axes)
    axes.set_xlabel("class, most training images first; lines: means of shot groups", fontsize=9)
    axes.set_ylabel("difference in recall (points)", fontsize=9)
    heading(axes, f"{title}: all {len(order)} classes", 3.8, size=9)


def _paired_interval(
    ours: Sequence[Predictions], baseline: Sequence[Predictions]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ends of the interval of the difference in recall of each class, (K,) each, NaN without test images.

    Bonett and Price (2012) add one image to either kind of disagreement. With several seeds an image is gained or lost
    by a part; the variance is then a little overstated.
    """
    ids, targets, mine = correct_by_image(ours)
    other_ids, _, theirs = correct_by_image(baseline)
    if not np.array_equal(ids, other_ids):
        raise EvenhandError("The two objectives were not tested on the same images, so they cannot be paired.")
    num_classes = ours[0].num_classes
    images = np.bincount(targets, minlength=num_classes)
    gained, lost = (
        (np.bincount(targets, np.maximum(sign * (mine - theirs), 0), minlength=num_classes) + 1) / (images + 2)
        for sign in (1, -1)
    )
    half = _Z * np.sqrt(np.maximum(gained + lost - (gained - lost) ** 2, 0) / (images + 2))
    low, high = np.clip(gained - lost - half, -1, 1), np.clip(gained - lost + half, -1, 1)
    low[images == 0] = high[images == 0] = np.nan
    return low, high


def _counted(predictions: Predictions, order: NDArray[np.intp]) -> list[str]:
    return [f"{literal(predictions.class_names[k])}  ({predictions.train_counts[k]:,})" for k in order]


def _class_rows(axes: Axes, labels: Sequence[str]) -> None:
    clear_frame(axes, "x")
    axes.set_yticks(range(len(labels)), labels, fontsize=NAME_SIZE)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _dodge(position: int, number: int) -> float:
    """Return how far beside its place the position-th of several marks stands, -0.5 to 0.5."""
    return (position - (number - 1) / 2) / max(number, 1)
