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


def reliability(runs: Drawn) -> Figure:
    """Draw accuracy against confidence, for all test images and for those of each shot group.

    On the diagonal accuracy equals confidence; below it the model is overconfident. Images are put into 15 bins of
    confidence, and bins of fewer than 5 images are left out; vertical lines are 95% Wilson intervals. The expected
    calibration error (ECE) of each model includes all bins. The seeds of an objective are pooled.

    Args:
        runs: runs, a comparison, folders of these, or predictions: of one model, or of each objective, one per seed.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import reliability
        >>> logits = np.array([[2, 0, 0]] * 9, np.float32)
        >>> ids, names = np.array(list("abcdefghi")), ("cat", "dog", "owl")
        >>> mine = Predictions(logits, np.array([0] * 7 + [1, 2]), ids, names, np.array([500, 90, 9]))
        >>> figure = reliability({"ce": [mine]})
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['all 9 predictions', 'many-shot: 7', 'medium-shot: 1', 'few-shot: 1']
    """
    runs = predictions_of(runs)
    first = first_of(runs)
    groups = find_shot_groups(first.train_counts)
    parts: list[tuple[str, Sequence[int]]] = [("all", range(first.num_classes))]
    if groups.many or groups.few:
        parts += [(name, classes) for name in ("many", "medium", "few") if (classes := getattr(groups, name))]
    figure = new_figure(0.5 + 2.75 * len(parts), 3.1 + 0.16 * len(runs))
    panels = figure.subplots(1, len(parts), squeeze=False, sharey=True)[0]
    for axes, (name, classes) in zip(panels, parts, strict=True):
        seeds = next(iter(runs.values()))
        number = sum(int(np.isin(each.targets, classes).sum()) for each in seeds)
        heading(axes, f"all {number:,} predictions" if name == "all" else f"{name}-shot: {number:,}", 2.5)
        axes.plot([0, 100], [0, 100], color=QUIET, linewidth=0.8, linestyle="dashed")
        lines = ["confidence (%)"]
        for position, (objective, seeds) in enumerate(runs.items()):
            confidence, correct = _pooled(seeds, classes)
            if len(confidence):
                _draw_bins(axes, confidence, correct, position, len(seeds))
                error = expected_calibration_error(confidence, correct, bins=BINS)
                lines.append(f"ECE {100 * error:.1f}  {wrap(objective, 1.7, 7.5)}")
        clear_frame(axes, "both")
        axes.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal")
        axes.set_xlabel("\n".join(lines), fontsize=7.5)
    panels[0].set_ylabel("accuracy (%)", fontsize=9)
    handles = [Line2D([], [], linewidth=1.0, markersize=5, **marker_style(k)) for k in range(len(runs))]
    legend_below(figure, handles, list(runs))
    return figure


def _pooled(seeds: Sequence[Predictions], classes: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return confidence and correctness of the images of some classes."""
    chosen = np.concatenate([np.isin(each.targets, classes) for each in seeds])
    confidence = np.concatenate([each.confidences() for each in seeds])[chosen]
    return np.minimum(confidence, 1.0), np.concatenate([each.correct() for each in seeds])[chosen]


def _draw_bins(
    axes: Axes, confidence: NDArray[np.float64], correct: NDArray[np.bool_], position: int, seeds: int
) -> None:
    style = marker_style(position)
    place = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence, side="left")
    size = np.bincount(place, minlength=BINS)
    there = size >= 5
    mean, share = (np.bincount(place, values, minlength=BINS)[there] / size[there] for values in (confidence, correct))
    # Seeds share their test images, so they do not add trials.
    low, high = wilson_interval(share, size[there] / seeds)
    axes.vlines(100 * mean, 100 * low, 100 * high, color=style["color"], linewidth=1.0, alpha=0.5)
    axes.plot(100 * mean, 100 * share, linewidth=1.0, markersize=3.5, **style)


def _on_page(data: ReportData, _: str) -> Shown:
    runs = data.predictions()
    alt = f"Reliability diagrams of {', '.join(runs)}: accuracy against confidence, for all images and by shot group."
    return Shown(reliability(runs), alt)


CALIBRATION = PageFigure("calibration", "calibration", _on_page)
