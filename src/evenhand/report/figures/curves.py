"""Training curves."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Folder, histories_of
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import QUIET, clear_frame, heading, legend_below, line_style, new_figure
from evenhand.runs.comparison import Comparison

History = Sequence[Mapping[str, float]]
"""The rows of a history."""
Histories = Mapping[str, Sequence[History]]
"""The histories of each objective, one per seed."""
Drawn = Histories | Folder | Sequence[Folder] | Comparison
"""Histories, runs, folders of runs, or a comparison or its folder."""


def error_curves(histories: Drawn, *, column: str = "test_accuracy") -> Figure:
    """Draw the error, in percent, after each epoch of training.

    The line is the mean over seeds, the band the range over seeds. Only epochs that all seeds of an objective have
    reached are drawn.

    Args:
        histories: runs, a comparison, folders of these, or the rows of the history of each objective, one list per
            seed.
        column: `test_accuracy` or `test_balanced_accuracy`, which runs with `--track-test` have, or `val_accuracy` or
            `val_balanced_accuracy`.

    Example:
        >>> from evenhand.report.figures import error_curves
        >>> seeds = [[{"epoch": 1, "test_accuracy": 0.5}, {"epoch": 2, "test_accuracy": last}] for last in (0.7, 0.9)]
        >>> figure = error_curves({"ce": seeds})
        >>> figure.axes[0].get_lines()[0].get_ydata().round(6)
        array([50., 20.])
    """
    part, _, kind = column.partition("_")
    what = {"test": "test", "val": "validation"}.get(part, part)
    balanced = "balanced " if kind == "balanced_accuracy" else ""
    flipped = {
        name: [[{**row, column: 100 * (1 - _value(row, column))} for row in history] for history in seeds]
        for name, seeds in histories_of(histories).items()
    }
    return history_curves(flipped, column, label=f"{balanced}{what} error (%)")


def history_curves(histories: Drawn, column: str, *, label: str) -> Figure:
    """Draw any column of the histories of several objectives; see :func:`error_curves` for lines and bands.

    Args:
        histories: runs, a comparison, folders of these, or the rows of the history of each objective, one list per
            seed.
        column: its name.
        label: of the vertical axis.

    Example:
        >>> from evenhand.report.figures import history_curves
        >>> figure = history_curves({"ce": [[{"epoch": 1, "train_loss": 2.3}]]}, "train_loss", label="training loss")
        >>> figure.axes[0].get_ylabel()
        'training loss'
    """
    histories = histories_of(histories)
    figure = new_figure(5.4, 3.4)
    axes = figure.add_subplot()
    _draw_curves(axes, histories, column)
    axes.set_ylabel(label, fontsize=9)
    _legend(figure, histories)
    return figure


def complement_entropy_curves(histories: Drawn, *, num_classes: int | None = None) -> Figure:
    """Draw the complement entropy of correctly and of incorrectly classified validation images.

    Complement entropy is the entropy of the normalised probabilities of the wrong classes: at its maximum, ln(K - 1),
    all wrong classes are equally probable. Complement cross entropy raises it.

    Args:
        histories: runs, a comparison, folders of these, or the rows of the history of each objective, one list per
            seed.
        num_classes: K, to mark the largest value.

    Example:
        >>> from evenhand.report.figures import complement_entropy_curves
        >>> row = {"epoch": 1, "val_complement_entropy_right": 1.9, "val_complement_entropy_wrong": 1.2}
        >>> figure = complement_entropy_curves({"ce": [[row]], "cce": [[row]]}, num_classes=10)
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['correctly classified images', 'incorrectly classified images']
    """
    histories = histories_of(histories)
    largest = None if num_classes is None or num_classes <= 2 else math.log(num_classes - 1)
    figure = new_figure(5.4, 5.2)
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, kind, word in zip(panels, ("right", "wrong"), ("correctly", "incorrectly"), strict=True):
        _draw_curves(axes, histories, f"val_complement_entropy_{kind}")
        heading(axes, f"{word} classified images", 4.6)
        if largest is not None:
            axes.axhline(largest, color=QUIET, linewidth=0.8, linestyle="dashed")
    panels[0].set_ylim(bottom=0)
    panels[0].set_xlabel("")
    for axes in panels:
        axes.set_ylabel("complement entropy (nats)", fontsize=9)
    _legend(figure, histories, None if largest is None else f"ln({num_classes} - 1), all wrong classes equal")
    return figure


def _draw_curves(axes: Axes, histories: Histories, column: str, first: int = 0) -> None:
    if not histories:
        raise EvenhandError("There are no histories to draw.")
    for position, (name, seeds) in enumerate(histories.items(), start=first):
        common = min((len(history) for history in seeds), default=0)  # epochs that all seeds have reached
        if not common:
            raise EvenhandError(f"{name!r} has no finished epoch to draw.")
        epochs = np.array([row["epoch"] for row in seeds[0][:common]])
        values = np.array([[_value(row, column) for row in history[:common]] for history in seeds])
        style = line_style(position)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # an epoch without a value in any seed is a gap
            mean, low, high = np.nanmean(values, 0), np.nanmin(values, 0), np.nanmax(values, 0)
        # A line through one epoch has no length.
        axes.plot(epochs, mean, marker="o" if len(epochs) == 1 else None, markersize=4, **style)
        if len(values) > 1:
            axes.fill_between(epochs, low, high, color=style["color"], alpha=0.18, linewidth=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epoch", fontsize=9)
    clear_frame(axes)


def _value(row: Mapping[str, float], column: str) -> float:
    if column not in row:
        advice = "; train with --track-test to have it" if column.startswith("test_") else ""
        raise EvenhandError(f"The history has no column {column!r}, only {some(list(row), 12)}{advice}.")
    return row[column]


def _legend(figure: Figure, histories: Histories, dashed: str | None = None) -> None:
    handles = [Line2D([], [], **line_style(position)) for position in range(len(histories))]
    labels = [
        f"{name} (mean and range of {len(seeds)} seeds)" if len(seeds) > 1 else name
        for name, seeds in histories.items()
    ]
    if dashed is not None:
        handles.append(Line2D([], [], color=QUIET, linewidth=0.8, linestyle="dashed"))
        labels.append(dashed)
    legend_below(figure, handles, labels)


def _histories(data: ReportData) -> Histories:
    return {name: [run.history for run in seeds] for name, seeds in data.trained().items()}


def _has(column: str) -> Callable[[ReportData], bool]:
    """Return a condition: every run has epochs, and every epoch has this column."""

    def condition(data: ReportData) -> bool:
        histories = [history for seeds in _histories(data).values() for history in seeds]
        return bool(histories) and all(history and all(column in row for row in history) for history in histories)

    return condition


def _accuracy_figure(column: str, caption: str) -> PageFigure:
    def draw(data: ReportData, _: str) -> Shown:
        percent = {
            name: [[{**row, column: 100 * row[column]} for row in history] for history in seeds]
            for name, seeds in _histories(data).items()
        }
        alt = f"{caption[:-1]}, after each epoch, for {', '.join(percent)}."
        return Shown(history_curves(percent, column, label="balanced accuracy (%)"), alt)

    return PageFigure(column, "training", draw, condition=_has(column), caption=caption)


def loss_curves(histories: Histories) -> Figure:
    """Draw the training loss of each objective on an axis of its own, as losses have different scales.

    Args:
        histories: the rows of the history of each objective, one list per seed.

    Example:
        >>> from evenhand.report.figures.curves import loss_curves
        >>> row = {"epoch": 1, "train_loss": 2.3}
        >>> [axes.get_title(loc="left") for axes in loss_curves({"ce": [[row]], "cce": [[row]]}).axes]
        ['ce', 'cce']
    """
    columns = min(2, len(histories))
    rows = -(-len(histories) // columns)
    wide = columns == 1
    figure = new_figure(5.4, 3.4 if wide else 0.4 + 1.9 * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for position, (axes, (name, seeds)) in enumerate(zip(grid.flat, histories.items(), strict=False)):
        _draw_curves(axes, {name: seeds}, "train_loss", position)
        heading(axes, name, 4.8 if wide else 2.3, size=9)
        axes.set_xlabel("epoch" if position >= len(histories) - columns else "", fontsize=9)
    for axes in list(grid.flat)[len(histories) :]:
        axes.set_visible(False)
    figure.supylabel("training loss", fontsize=9)
    return figure


def _loss_on_page(data: ReportData, _: str) -> Shown:
    histories = _histories(data)
    return Shown(loss_curves(histories), f"Training loss after each epoch, for {', '.join(histories)}.")


def _complement_entropy_on_page(data: ReportData, _: str) -> Shown:
    histories = _histories(data)
    seeds = [each for seeds in data.predictions().values() for each in seeds]
    number = seeds[0].num_classes if seeds and len({each.num_classes for each in seeds}) == 1 else None
    alt = f"Complement entropy of correctly and incorrectly classified images per epoch, {', '.join(histories)}."
    return Shown(complement_entropy_curves(histories, num_classes=number), alt)


CURVES = (
    _accuracy_figure(
        "val_balanced_accuracy", "Balanced accuracy on validation images, by which the best epoch is selected."
    ),
    _accuracy_figure("test_balanced_accuracy", "Balanced accuracy on the test set, not used for selection."),
    PageFigure(
        "train_loss",
        "training",
        _loss_on_page,
        condition=_has("train_loss"),
        caption="Training loss; losses of different objectives cannot be compared.",
    ),
    PageFigure(
        "complement_entropy",
        "training",
        _complement_entropy_on_page,
        condition=_has("val_complement_entropy_right"),
        caption="Complement entropy of validation images: how evenly the remaining probability is spread over the "
        "wrong classes. Complement cross entropy raises it.",
    ),
)
