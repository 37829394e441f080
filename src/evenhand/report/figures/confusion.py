"""Confusion matrices."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from evenhand.metrics.classification import Confusion, balanced_accuracy
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Drawn, predictions_of
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import (
    FAINT,
    INK,
    MOST_NAMED,
    NAME_SIZE,
    QUIET,
    from_most_to_fewest,
    literal,
    new_figure,
    thinned,
    widest,
    wrap,
)
from evenhand.report.figures.tables import first_of, joint_confusion

MOST_NUMBERED = 15
"""Classes; cells of larger matrices are too small for a number."""
MOST_TABULATED = 20
"""Classes; up to here a page shows a table of numbers instead."""
MOST_LABELLED = 60
"""Classes; up to here rows and columns have names, more are numbered."""


def confusion_matrices(runs: Drawn, *, by_count: bool = False) -> Figure:
    """Draw the confusion matrices of several objectives side by side, on one colour scale.

    Rows are true classes, columns predicted classes, and each row is divided by its sum, so the diagonal shows
    recalls. Seeds are summed. Up to 60 classes are named, more are numbered; up to 15 the cells show percentages. The
    row of a class without a test image is hatched.

    Args:
        runs: runs, a comparison, folders of these, or predictions: of one model, or of each objective, one per seed.
        by_count: order the classes by training images, the largest first.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import confusion_matrices
        >>> logits, ids = np.eye(3, dtype=np.float32), np.array(["a", "b", "c"])
        >>> mine = Predictions(logits, np.array([0, 1, 1]), ids, ("cat", "dog", "owl"), np.array([9, 500, 70]))
        >>> figure = confusion_matrices({"ce": [mine], "cce": [mine]}, by_count=True)
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['dog', 'owl', 'cat']
    """
    runs = predictions_of(runs)
    first = first_of(runs)
    order = from_most_to_fewest(first.train_counts) if by_count else np.arange(first.num_classes)
    names = [literal(first.class_names[k]) for k in order]
    figure, panels = _panels(len(runs), names)
    side = panels[0].get_position().width * figure.get_figwidth()
    for axes, (objective, seeds) in zip(panels, runs.items(), strict=True):
        confusion = joint_confusion(seeds)
        shares = _draw_shares(axes, confusion[np.ix_(order, order)])
        title = f"{wrap(objective, side, 10)}\nbalanced accuracy {balanced_accuracy(confusion):.1%}"
        axes.set_title(title, loc="left", fontsize=10, color=INK)
        if by_count and len(names) > MOST_NAMED:
            _mark_groups(axes, first.train_counts)
    _label(panels, names, side, ", largest first" if by_count else "")
    right = panels[min(1, len(panels) - 1)].get_position()
    box = (right.x1 + 0.2 / figure.get_figwidth(), right.y0, 0.15 / figure.get_figwidth(), right.height)
    bar = figure.colorbar(shares, cax=figure.add_axes(box))
    bar.set_label("percent of the true class", fontsize=9)
    bar.ax.tick_params(labelsize=NAME_SIZE)
    return figure


def _panels(number: int, names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure with square axes for the matrices, two per row, and room for the names."""
    named = len(names) <= MOST_LABELLED
    cell = 0.42 if len(names) <= MOST_NUMBERED else 0.22 if len(names) <= MOST_NAMED else 0.17
    side = max(2.3, cell * len(names)) if named else 4.8
    margin = 0.55 + (widest(names) if named else 0.3)
    heads, gap = 0.6, 0.25
    columns = min(2, number)
    rows = -(-number // columns)
    width = margin + columns * (side + gap) + 0.75
    height = margin + rows * (side + heads)
    figure = new_figure(width, height, layout=None)
    panels = []
    for place in range(number):
        row, column = divmod(place, columns)
        left, bottom = margin + column * (side + gap), margin + (rows - 1 - row) * (side + heads)
        panels.append(figure.add_axes((left / width, bottom / height, side / width, side / height)))
    return figure, panels


def _label(panels: Sequence[Axes], names: Sequence[str], side: float, ranked: str) -> None:
    """Label the rows of the panels on the left and the columns of those at the bottom."""
    named = len(names) <= MOST_LABELLED
    places = list(range(len(names))) if named else thinned(len(names))
    labels = [names[place] if named else str(place + 1) for place in places]
    what = "class" if named else f"class, 1 to {len(names)}"
    for number, axes in enumerate(panels):
        axes.set_xticks(places, labels, fontsize=NAME_SIZE, rotation=90 if named else 0)
        axes.set_yticks(places, labels, fontsize=NAME_SIZE)
        left, lowest = number % 2 == 0, number >= len(panels) - 2
        axes.tick_params(length=2, labelleft=left, labelbottom=lowest)
        if left:
            axes.set_ylabel(wrap(f"true {what}{ranked}", side, 9), fontsize=9)
        if lowest:
            axes.set_xlabel(wrap(f"predicted {what}{ranked}", side, 9), fontsize=9)


def _draw_shares(axes: Axes, confusion: Confusion) -> AxesImage:
    support = confusion.sum(axis=1)
    percent: NDArray[np.float64] = 100 * confusion / np.maximum(support, 1)[:, None]
    image = axes.imshow(percent, cmap="Greys", vmin=0, vmax=100, aspect="equal")
    for row in np.flatnonzero(support == 0):
        axes.axhspan(row - 0.5, row + 0.5, facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0)
    if len(confusion) <= MOST_NUMBERED:
        for row, column in zip(*np.nonzero(confusion), strict=True):
            share = percent[row, column]
            number = f"{share:.0f}" if round(share) else "·"
            colour = "white" if share > 55 else INK
            axes.text(column, row, number, ha="center", va="center", fontsize=7.5, color=colour)
    return image


def _mark_groups(axes: Axes, counts: NDArray[np.int64]) -> None:
    """Draw lines between the shot groups."""
    groups = find_shot_groups(counts)
    places = np.cumsum([len(groups.many), len(groups.medium), len(groups.few)])[:-1]
    for place in places[(places > 0) & (places < len(counts))]:
        axes.axhline(place - 0.5, color=QUIET, linewidth=0.6, linestyle="dashed")
        axes.axvline(place - 0.5, color=QUIET, linewidth=0.6, linestyle="dashed")


def _on_page(data: ReportData, name: str) -> Shown:
    figure = confusion_matrices({name: data.predictions()[name]}, by_count=True)
    alt = f"Confusion matrix of {name}, classes with most training images first; a table lists the largest confusions."
    return Shown(figure, alt, points=True)


CONFUSION = PageFigure(
    "confusion",
    "confusion",
    _on_page,
    condition=lambda data: (
        data.comparable() and MOST_TABULATED < first_of(data.predictions()).num_classes <= MOST_LABELLED
    ),
    panels=lambda data: data.finished,
)
