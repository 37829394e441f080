"""Reliability diagrams."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from evenhand.metrics.classification import expected_calibration_error
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Drawn, predictions_of
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import QUIET, clear_frame, heading, legend_below, marker_style, new_figure, wrap
from evenhand.report.figures.tables import first_of
from evenhand.statistics.intervals import wilson_interval

BINS = 15


def reliability(runs: Drawn, *, first_style: int = 0) -> Figure:
    """Draw accuracy against confidence, for all test images and for those of each shot group.

    On the diagonal accuracy equals confidence; below it the model is overconfident. The predictions of all seeds are
    put into 15 bins of confidence, and bins of fewer than 5 are left out; vertical lines are 95% Wilson intervals. The
    expected calibration error (ECE) of each model has 15 bins of equal width, and is the mean of that of its seeds.

    Args:
        runs: runs, a comparison, folders of these, or predictions: of one model, or of each objective, one per seed.
        first_style: position of the first objective among all, for its colour and marker.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import reliability
        >>> logits = np.array([[2, 0, 0]] * 9, np.float32)
        >>> ids, names = np.array(list("abcdefghi")), ("cat", "dog", "owl")
        >>> mine = Predictions(logits, np.array([0] * 7 + [1, 2]), ids, names, np.array([500, 90, 9]))
        >>> figure = reliability({"ce": [mine]})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['all: 9 predictions', 'many-shot: 7', 'medium-shot: 1', 'few-shot: 1']
    """
    runs = predictions_of(runs)
    parts = calibration_parts(first_of(runs))
    # One objective needs no legend, and without one the axes have known places, which are faster to draw.
    alone = len(runs) == 1
    columns = min(2, len(parts)) if alone else len(parts)
    rows = -(-len(parts) // columns)
    width, height = 0.5 + (2.45 if alone else 2.75) * columns, rows * ((2.6 if alone else 3.1) + 0.16 * len(runs))
    figure = new_figure(width, height, layout=None if alone else "constrained")
    if alone:
        sides = {"left": 0.62 / width, "right": 1 - 0.12 / width, "top": 1 - 0.32 / height, "bottom": 0.55 / height}
        figure.subplots_adjust(**sides, wspace=0.18, hspace=0.42)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axes, (name, classes) in zip(grid.flat, parts, strict=False):
        seeds = next(iter(runs.values()))
        number = sum(int(np.isin(each.targets, classes).sum()) for each in seeds)
        heading(axes, f"all: {number:,} predictions" if name == "all" else f"{name}-shot: {number:,}", 2.2)
        axes.plot([0, 100], [0, 100], color=QUIET, linewidth=0.8, linestyle="dashed")
        lines = ["confidence (%)"]
        for position, (objective, seeds) in enumerate(runs.items(), start=first_style):
            confidence, correct, ids = _pooled(seeds, classes)
            if len(confidence):
                _draw_bins(axes, confidence, correct, ids, position)
                name = f"  {wrap(objective, 1.4, 7.5)}" if len(runs) > 1 else ""
                lines.append(f"ECE {100 * mean_calibration_error(seeds, classes):.1f}%{name}")
        clear_frame(axes, "both")
        axes.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal")
        axes.set_xlabel("\n".join(lines), fontsize=7.5)
    for axes in list(grid.flat)[len(parts) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("accuracy (%)", fontsize=9)
    if not alone:
        handles = [Line2D([], [], linewidth=1.0, markersize=5, **marker_style(k)) for k in range(len(runs))]
        legend_below(figure, handles, list(runs))
    return figure


def calibration_parts(first: Predictions) -> list[tuple[str, Sequence[int]]]:
    """Return what calibration is shown of: all classes, and each shot group if there are several."""
    groups = find_shot_groups(first.train_counts)
    parts: list[tuple[str, Sequence[int]]] = [("all", range(first.num_classes))]
    if groups.many or groups.few:
        parts += [(name, classes) for name in ("many", "medium", "few") if (classes := getattr(groups, name))]
    return parts


def mean_calibration_error(seeds: Sequence[Predictions], classes: Sequence[int]) -> float:
    """Return the mean over seeds of the ECE on the test images of some classes; NaN where no seed has any."""
    errors = []
    for each in seeds:
        own = np.isin(each.targets, classes)
        if own.any():
            errors.append(expected_calibration_error(each.confidences()[own], each.correct()[own], bins=BINS))
    return float(np.mean(errors)) if errors else float("nan")


def _pooled(
    seeds: Sequence[Predictions], classes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.str_]]:
    """Return confidence, correctness and ids of the images of some classes."""
    chosen = np.concatenate([np.isin(each.targets, classes) for each in seeds])
    confidence = np.concatenate([each.confidences() for each in seeds])[chosen]
    correct = np.concatenate([each.correct() for each in seeds])[chosen]
    return np.minimum(confidence, 1.0), correct, np.concatenate([each.ids for each in seeds])[chosen]


def _draw_bins(
    axes: Axes, confidence: NDArray[np.float64], correct: NDArray[np.bool_], ids: NDArray[np.str_], position: int
) -> None:
    style = marker_style(position)
    place = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence, side="left")
    size = np.bincount(place, minlength=BINS)
    there = size >= 5
    mean, share = (np.bincount(place, values, minlength=BINS)[there] / size[there] for values in (confidence, correct))
    # An image that several seeds put into a bin is one trial.
    images = np.array([len(np.unique(ids[place == each])) for each in np.flatnonzero(there)])
    low, high = wilson_interval(share, np.maximum(images, 1))
    axes.vlines(100 * mean, 100 * low, 100 * high, color=style["color"], linewidth=1.0, alpha=0.5)
    axes.plot(100 * mean, 100 * share, linewidth=1.0, markersize=3.5, **style)


def _on_page(data: ReportData, name: str) -> Shown:
    alt = f"Reliability diagrams of {name}: accuracy against confidence, for all images and by shot group."
    figure = reliability({name: data.predictions()[name]}, first_style=list(data.finished).index(name))
    return Shown(figure, alt)


CALIBRATION = PageFigure("calibration", "calibration", _on_page, panels=lambda data: data.finished)
