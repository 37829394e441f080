"""Embed figures in a page: as inline SVG with tooltips, or as an image."""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from evenhand.core.errors import EvenhandError
from evenhand.core.text import visible
from evenhand.report._report_data import ReportData
from evenhand.report.figures.page_figure import Hover, PageFigure, Section
from evenhand.report.figures.style import figure_bytes

LARGEST_SVG = 200_000
"""Bytes; larger figures become a PNG, which is smaller and faster to show."""
LEAST_SCALE = 0.65
"""A figure scrolls rather than shrink further, as its text would be too small."""


@dataclass(frozen=True)
class Drawing:
    """A figure ready for the page, or why there is none."""

    content: Markup
    problem: str = ""
    caption: str = ""
    panel: str = ""


def draw_figures(figures: Iterable[PageFigure], data: ReportData) -> dict[str, list[list[Drawing]]]:
    """Draw the figures whose condition holds; each is a list of panels, usually one.

    Returns:
        The figures of each section, in order.
    """
    sections: dict[str, list[list[Drawing]]] = {name: [] for name in get_args(Section)}
    for each in figures:
        if each.condition(data):
            panels = [""] if each.panels is None else each.panels(data)
            sections[each.section].append([_draw(each, data, panel, number) for number, panel in enumerate(panels)])
    return sections


def _draw(each: PageFigure, data: ReportData, panel: str, number: int) -> Drawing:
    """Draw a figure; a figure that cannot be drawn is replaced by the reason."""
    try:
        shown = each.draw(data, panel)
        if shown.hover:
            content = inline(shown.figure, shown.alt, f"{each.name}-{number}", shown.hover)
        else:
            content = image(shown.figure, shown.alt, points=shown.points)
        return Drawing(content, caption=each.caption or panel, panel=panel)
    except EvenhandError as error:
        return Drawing(Markup(), str(error), panel=panel)


def image(figure: Figure, alt: str, *, points: bool = False) -> Markup:
    """Return a figure as an `img`, SVG or PNG.

    Args:
        figure: any matplotlib figure.
        alt: text alternative.
        points: always PNG, because the figure has very many parts.
    """
    content, kind = (b"", "") if points else (figure_bytes(figure, ".svg"), "svg+xml")
    if points or len(content) > LARGEST_SVG:
        content, kind = figure_bytes(figure, ".png"), "png"
    address = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Markup('<img src="{}" alt="{}" style="{}">').format(address, visible(alt), _size(figure))


def inline(figure: Figure, alt: str, prefix: str, hover: Hover) -> Markup:
    """Return a figure as inline SVG.

    Args:
        figure: any matplotlib figure.
        alt: text alternative.
        prefix: of all ids in it, which must be unique on the page.
        hover: tooltips, see `Hover`.
    """
    for number, (artist, _) in enumerate(hover):
        artist.set_gid(f"hover-{number}")
    svg = figure_bytes(figure, ".svg").decode()
    if len(svg) > LARGEST_SVG:
        return image(figure, alt, points=True)
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for number, (_, texts) in enumerate(hover):
        svg = _with_titles(svg, f"{prefix}-hover-{number}", texts)
    start = Markup('<svg role="img" aria-label="{}" style="{}" ').format(visible(alt), _size(figure))
    # The size in points that matplotlib writes would override that of the page.
    return start + Markup(re.sub(r'^<svg|\b(width|height)="[\d.]+pt"', "", svg, count=3))


def _with_titles(svg: str, identity: str, texts: Sequence[str]) -> str:
    """Add `title` elements to a group: one text to the group itself, several to its points."""
    before, opening, after = svg.partition(f'<g id="{identity}">')
    if len(texts) == 1:
        return f"{before}{opening}<title>{escape(visible(texts[0]))}</title>{after}"
    # matplotlib writes few points as paths, many as uses of one path.
    part = "use" if after.lstrip().startswith("<defs>") else "path"
    titles = iter(texts)

    def titled(match: re.Match[str]) -> str:
        return f"<{part}{match[1]}><title>{escape(visible(next(titles)))}</title></{part}>"

    return f"{before}{opening}{re.sub(rf'<{part}([^>]*)/>', titled, after, count=len(texts))}"


def _size(figure: Figure) -> str:
    width = 96 * figure.get_figwidth()
    return f"width:{width:.0f}px;min-width:{LEAST_SCALE * width:.0f}px"
