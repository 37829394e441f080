"""The entry of a figure in the report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from evenhand.report._report_data import ReportData
from evenhand.report.figures.style import MOST_NAMED

MOST_DRAWN = 200
"""Classes; figures of more are a PNG."""

Section = Literal[
    "verdict", "results", "data", "recall", "differences", "confusion", "calibration", "training", "features"
]
"""The sections of the page that have figures."""

Hover = Sequence[tuple[Artist, Sequence[str]]]
"""Tooltips of artists: one text for a bar, one per point for a scatter plot."""


@dataclass(frozen=True)
class Shown:
    """A figure as the page shows it."""

    figure: Figure
    alt: str
    """Text alternative."""
    hover: Hover = ()
    points: bool = False
    """Whether it has too many parts for an SVG."""


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page. To add one, write it and its entry in a file of `figures`, and add the entry to `PAGE`."""

    name: str
    """Unique on the page."""
    section: Section
    draw: Callable[[ReportData, str], Shown]
    """Draws it from the data and the name of the panel, if any; an `EvenhandError` is shown in its place."""
    condition: Callable[[ReportData], bool] = ReportData.comparable
    """Whether it is shown at all."""
    caption: str = ""
    panels: Callable[[ReportData], Iterable[str]] | None = None
    """Names of panels shown one at a time, such as objectives."""


def by_class(figure: Figure, alt: str, hover: Hover, classes: int) -> Shown:
    """Show a figure whose parts are classes: with tooltips for few classes, as a PNG for very many."""
    return Shown(figure, alt, hover if classes <= MOST_NAMED else (), points=classes > MOST_DRAWN)


def bar_tooltips(figure: Figure, texts: Sequence[str]) -> Hover:
    """Return tooltips for the bars of a figure's last axes, one each."""
    return [(bar, [text]) for bar, text in zip(figure.axes[-1].patches, texts, strict=False)]
