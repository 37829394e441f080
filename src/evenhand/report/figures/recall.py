"""Recall of each class against its training images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from evenhand.metrics.classification import class_recall
from evenhand.metrics.per_image import correct_per_image
from evenhand.metrics.predictions import Predictions
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Drawn, predictions_of
from evenhand.report.figures.page_figure import PageFigure, Shown, by_class
from evenhand.report.figures.style import (
    MOST_NAMED,
    NAME_SIZE,
    clear_frame,
    from_most_to_fewest,
    legend_below,
    literal,
    marker_style,
    new_figure,
    round_ticks,
    widest,
)
from evenhand.report.figures.tables import Runs, first_of, joint_confusion, recall_intervals
from evenhand.statistics.intervals import mean_recall_interval

POOLS = 8
"""Groups of similar counts that many classes are pooled into."""


def recall_by_count(runs: Drawn) -> Figure:
    """Draw the recall of each class against its training images, with 95% Wilson intervals, for several objectives.

    Up to 30 classes have a row each, the one with most training images on top. More are pooled with classes of similar
    training counts, equal ones together. Seeds are averaged; as they share test images, an
    interval is as wide as for one seed: it covers other test images, not other seeds.

    Args:
        runs: runs, a comparison, folders of these, or predictions: of one model, or of each objective, one per seed.

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
    runs = predictions_of(runs)
    first = first_of(runs)
    figure = _rows_of_recall(runs, first) if first.num_classes <= MOST_NAMED else _pools_of_recall(runs, first)
    handles = [Line2D([], [], linestyle="none", markersize=5, **marker_style(k)) for k in range(len(runs))]
    legend_below(figure, handles, list(runs))
    return figure


def _rows_of_recall(runs: Runs, first: Predictions) -> Figure:
    order = from_most_to_fewest(first.train_counts)
    labels = counted_names(first, order)
    pitch = max(0.26, 0.09 * len(runs) + 0.1)
    figure = new_figure(4.6 + widest(labels), 0.8 + pitch * len(order))
    axes = figure.add_subplot()
    there = np.isin(order, first.targets)  # a class without a test image has an empty row
    for position, seeds in enumerate(runs.values()):
        recall = class_recall(joint_confusion(seeds))[order]
        low, high = (ends[order] for ends in recall_intervals(seeds))
        rows = np.arange(len(order)) + _dodge(position, len(runs)) * 0.7
        style = marker_style(position)
        axes.hlines(rows[there], 100 * low[there], 100 * high[there], color=style["color"], linewidth=1.2, alpha=0.6)
        axes.scatter(100 * recall[there], rows[there], s=16, linewidths=0, zorder=3, **style)
    class_rows(axes, labels)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("recall (%), with 95% CI", fontsize=9)
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
        low, high = _pooled_intervals(seeds, pools)
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
    axes.set_ylabel("recall (%), with 95% CI", fontsize=9)
    clear_frame(axes)
    return figure


def _pooled_intervals(
    seeds: Sequence[Predictions], pools: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the intervals of the recall of pooled classes, NaN if there is none."""
    results = correct_per_image(seeds)
    found = []
    for pool in pools:
        own = np.isin(results.targets, pool)
        groups = None if results.groups is None else results.groups[own]
        together = np.zeros(int(own.sum()), np.int64)
        found.append(mean_recall_interval(results.correct[own], together, groups=groups) or (np.nan, np.nan))
    low, high = np.array(found).T
    return low, high


def _pools(counts: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Split the classes into groups of similar counts; equal counts stay together."""
    order = from_most_to_fewest(counts)
    edges = {int(counts[part[0]]) for part in np.array_split(order, min(POOLS, len(order)))}
    place = np.searchsorted(np.sort(list(edges)), counts, side="left")
    return [np.flatnonzero(place == each) for each in np.unique(place)]


def counted_names(predictions: Predictions, order: NDArray[np.intp]) -> list[str]:
    """Return the names of classes with their training images."""
    return [f"{literal(predictions.class_names[k])}  ({predictions.train_counts[k]:,})" for k in order]


def class_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Give each class a row, the first on top."""
    clear_frame(axes, "x")
    axes.set_yticks(range(len(labels)), labels, fontsize=NAME_SIZE)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _dodge(position: int, number: int) -> float:
    """Return the offset of the position-th of several markers, -0.5 to 0.5."""
    return (position - (number - 1) / 2) / max(number, 1)


def _on_page(data: ReportData, _: str) -> Shown:
    runs = data.predictions()
    first = first_of(runs)
    figure = recall_by_count(runs)
    order = from_most_to_fewest(first.train_counts).tolist()
    clouds = [each for each in figure.axes[0].collections if isinstance(each, PathCollection)]
    hover = []
    for cloud, (name, seeds) in zip(clouds, runs.items(), strict=False):
        recalls = class_recall(joint_confusion(seeds))
        texts = [
            f"{first.class_names[k]}, {name}: {recalls[k]:.1%}, {first.train_counts[k]:,} training images"
            for k in order
            if not np.isnan(recalls[k])
        ]
        hover.append((cloud, texts))
    alt = f"Recall of the classes with {', '.join(runs)}, by training images; the table below has the numbers."
    return by_class(figure, alt, hover, len(order))


RECALL = PageFigure("recall", "recall", _on_page)
