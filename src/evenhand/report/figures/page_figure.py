"""What a figure says of its place in the report."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.figure import Figure

from evenhand.report._report_data import Material
from evenhand.report.figures.style import MOST_NAMED

# Up to so many the bars are worth an SVG.
MOST_DRAWN = 200

Section = Literal[
    "verdict", "objectives", "data", "recall", "differences", "confusion", "calibration", "training", "features"
]
"""The sections of the page that have figures."""

Hover = Sequence[tuple[Artist, Sequence[str]]]
"""What the parts of an artist say under the pointer: a bar has one text, a cloud of points one a point."""


@dataclass(frozen=True)
class Shown:
    """A figure as the page shows it."""

    figure: Figure
    alt: str
    """What it shows, for those who cannot see it."""
    hover: Hover = ()
    points: bool = False
    """It has so many parts that only a PNG makes sense."""


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page. To add one: write it and its entry in a file of `figures`, and name the entry in `PAGE`."""

    name: str
    """Its own among all figures of the page."""
    section: Section
    draw: Callable[[Material, str], Shown]
    """Makes it from what the page shows and the name of the panel, which is empty where there is but one.

    It raises an `EvenhandError` where it cannot; that is said in its place.
    """
    condition: Callable[[Material], bool] = Material.comparable
    """Whether it is shown at all."""
    caption: str = ""
    panels: Callable[[Material], Iterable[str]] | None = None
    """Names of panels of which one is seen at a time, such as objectives."""


def by_class(figure: Figure, alt: str, hover: Hover, classes: int) -> Shown:
    """Show a figure whose parts are classes: of few, values are told under the pointer; very many are a PNG."""
    return Shown(figure, alt, hover if classes <= MOST_NAMED else (), points=classes > MOST_DRAWN)


def bars_say(figure: Figure, texts: Sequence[str]) -> Hover:
    """Let the bars of a figure's last axes tell these texts, one each."""
    return [(bar, [text]) for bar, text in zip(figure.axes[-1].patches, texts, strict=False)]
