"""The verdict as a figure: differences from the baseline with intervals, the zero line and the margin."""

import os
from collections.abc import Sequence

from matplotlib.figure import Figure

from evenhand.core.errors import EvenhandError
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Folder
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import (
    FAINT,
    INK,
    NAME_SIZE,
    clear_frame,
    literal,
    new_figure,
    widest,
)
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import Difference

UNDECIDED = "#9A9A9A"


def verdict_picture(differences: Sequence[Difference] | Comparison | Folder, baseline: str | None = None) -> Figure:
    """Draw the primary differences, in pp: a dot and an interval each, the zero line, and the margin as a band.

    What is decided is dark, what is not is grey.

    Args:
        differences: a comparison or its folder, or the differences of one; only those of the first metric are drawn.
        baseline: its name; None: that of the comparison.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.report.figures import verdict_picture
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> figure = verdict_picture(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['cce', 'cot']
    """
    if isinstance(differences, str | os.PathLike):
        differences = Comparison.read(differences)
    if isinstance(differences, Comparison):
        baseline = baseline or differences.baseline
        differences = differences.differences
    if baseline is None:
        raise EvenhandError("The name of the baseline is missing; give it after the differences, or give a comparison.")
    if not differences:
        raise EvenhandError("There are no differences to draw.")
    shown = [each for each in differences if each.metric == differences[0].metric]
    names = [literal(each.objective) for each in shown]
    words = [each.words for each in shown]
    figure = new_figure(4.2 + widest(names) + widest(words), 1.05 + 0.28 * len(shown))
    axes = figure.subplots()
    margin = 100 * shown[0].margin
    axes.axvspan(-margin, margin, color=FAINT, alpha=0.35, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.9)
    for row, each in enumerate(shown):
        colour = INK if each.decided else UNDECIDED
        if each.low is not None and each.high is not None:
            axes.hlines(row, 100 * each.low, 100 * each.high, color=colour, linewidth=2)
        axes.plot(100 * each.mean, row, "o", color=colour, markersize=5)
    axes.set_yticks(range(len(shown)), names, fontsize=NAME_SIZE)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    clear_frame(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        f"difference in balanced accuracy vs. {literal(baseline)} (pp)\n"
        f"line: 95% CI; shaded: ±{margin:g} pp equivalence margin",
        fontsize=NAME_SIZE,
    )
    other = axes.secondary_yaxis("right")
    other.set_yticks(range(len(shown)), words, fontsize=NAME_SIZE)
    other.tick_params(length=0)
    other.spines["right"].set_visible(False)
    return figure


def _on_page(data: ReportData, _: str) -> Shown:
    comparison = data.comparison
    assert comparison is not None
    primary = [each for each in comparison.differences if each.metric == comparison.differences[0].metric]
    texts = "; ".join(f"{each.objective} {100 * each.mean:+.1f} pp, {each.words}" for each in primary)
    figure = verdict_picture(comparison.differences, comparison.baseline)
    return Shown(figure, f"Differences in balanced accuracy against {comparison.baseline}: {texts}.")


VERDICT = PageFigure(
    "verdict",
    "verdict",
    _on_page,
    condition=lambda data: data.comparison is not None and bool(data.comparison.differences),
)
