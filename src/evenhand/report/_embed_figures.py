"""Figures put into a page: as inline SVG that tells values under the pointer, or as a picture."""

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from evenhand.core.errors import EvenhandError
from evenhand.core.text import visible
from evenhand.report._report_data import Material
from evenhand.report.figures.page_figure import Hover, PageFigure, Section
from evenhand.report.figures.style import figure_bytes

# An SVG of very many points is larger than a picture of them, and slower to show.
LARGEST_SVG = 200_000
# Below so much of its own width the letters of a figure are too small; it scrolls instead.
LEAST_SCALE = 0.65


@dataclass(frozen=True)
class Drawing:
    """A figure ready for the page, or why there is none."""

    content: Markup
    trouble: str = ""
    caption: str = ""
    panel: str = ""


def draw_figures(figures: Iterable[PageFigure], material: Material) -> dict[str, list[list[Drawing]]]:
    """Draw those figures that the material is enough for; each is a list of panels, mostly of one.

    Returns:
        The figures of each section, in order.
    """
    sections: dict[str, list[list[Drawing]]] = {name: [] for name in get_args(Section)}
    for each in figures:
        if each.condition(material):
            panels = [""] if each.panels is None else each.panels(material)
            drawn = [_drawn(each, material, panel, number) for number, panel in enumerate(panels)]
            sections[each.section].append(drawn)
    return sections


def _drawn(each: PageFigure, material: Material, panel: str, number: int) -> Drawing:
    """Make a figure; what cannot be drawn is said where it would stand."""
    try:
        shown = each.draw(material, panel)
        if shown.hover:
            content = inline(shown.figure, shown.alt, f"{each.name}-{number}", shown.hover)
        else:
            content = picture(shown.figure, shown.alt, points=shown.points)
        return Drawing(content, caption=each.caption or panel, panel=panel)
    except EvenhandError as error:
        return Drawing(Markup(), str(error), panel=panel)


def picture(figure: Figure, alt: str, *, points: bool = False) -> Markup:
    """Return a figure as an `img`: an SVG of its own, or a PNG where that is smaller.

    Args:
        figure: any matplotlib figure.
        alt: what it shows, for those who cannot see it.
        points: it has so many parts that only a PNG makes sense.
    """
    content, kind = (b"", "") if points else (figure_bytes(figure, ".svg"), "svg+xml")
    if points or len(content) > LARGEST_SVG:
        content, kind = figure_bytes(figure, ".png"), "png"
    address = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return Markup('<img src="{}" alt="{}" style="{}">').format(address, visible(alt), _size(figure))


def inline(figure: Figure, alt: str, prefix: str, hover: Hover) -> Markup:
    """Return a figure as SVG within the page.

    Args:
        figure: any matplotlib figure.
        alt: what it shows, for those who cannot see it.
        prefix: of all ids in it, as they must differ from those of other figures of the page.
        hover: see `Hover`.
    """
    for number, (artist, _) in enumerate(hover):
        artist.set_gid(f"hover-{number}")
    svg = figure_bytes(figure, ".svg").decode()
    if len(svg) > LARGEST_SVG:
        return picture(figure, alt, points=True)
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for number, (_, texts) in enumerate(hover):
        svg = _with_titles(svg, f"{prefix}-hover-{number}", texts)
    start = Markup('<svg role="img" aria-label="{}" style="{}" ').format(visible(alt), _size(figure))
    # The size in points that matplotlib writes would win over that of the page.
    return start + Markup(re.sub(r'^<svg|\b(width|height)="[\d.]+pt"', "", svg, count=3))


def _with_titles(svg: str, identity: str, texts: Sequence[str]) -> str:
    """Put a `title` into the parts of a group: into the group itself for one text, else into each of its points."""
    before, opening, after = svg.partition(f'<g id="{identity}">')
    if len(texts) == 1:
        return f"{before}{opening}<title>{escape(visible(texts[0]))}</title>{after}"
    # A cloud of few points is written as paths, a larger one as uses of one path.
    part = "use" if after.lstrip().startswith("<defs>") else "path"
    said = iter(texts)

    def titled(match: re.Match[str]) -> str:
        return f"<{part}{match[1]}><title>{escape(visible(next(said)))}</title></{part}>"

    return f"{before}{opening}{re.sub(rf'<{part}([^>]*)/>', titled, after, count=len(texts))}"


def _size(figure: Figure) -> str:
    width = 96 * figure.get_figwidth()
    return f"width:{width:.0f}px;min-width:{LEAST_SCALE * width:.0f}px"
