"""Style of all figures: colours, text that fits, legends, and saving."""

import io
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.files import write_bytes
from evenhand.core.text import visible

# Okabe and Ito's palette, safe for any kind of colour vision; without yellow, which is too pale on white.
# It means objectives, and nothing else on a page.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("solid", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "^", "s")
# The fewer training images, the darker; COUNT_COLOURS is the same scale without steps.
GROUP_COLOURS = {"many": "#BCA9D8", "medium": "#8C65B8", "few": "#4A1486"}
COUNT_COLOURS = LinearSegmentedColormap.from_list("training images", list(GROUP_COLOURS.values())[::-1])
# Paul Tol's "muted" palette, safe for any kind of colour vision, for classes.
CLASS_COLOURS = (
    "#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499",
)  # fmt: skip
INK, QUIET, FAINT = "#222222", "#666666", "#BBBBBB"

FORMATS = (".png", ".svg", ".pdf")

MOST_NAMED = 30
"""More classes are numbered rather than named."""
LONGEST_NAME = 40
NAME_SIZE = 8.0

# For scripts that matplotlib's own font lacks, if one of these is installed.
FALLBACK_FONTS = ("Noto Sans CJK JP", "Noto Sans", "WenQuanYi Zen Hei", "Droid Sans Fallback", "Arial Unicode MS")


def literal(text: str, most: int = LONGEST_NAME) -> str:
    r"""Return text escaped for matplotlib: on one line, not too long, and never parsed as mathematics.

    Example:
        >>> from evenhand.report.figures.style import literal
        >>> print(literal("$x_1$ " + "y" * 50, most=10))
        \$x_1\$ yyy…
    """
    # Line breaks, control characters and lone surrogates would break the layout or the XML of an SVG.
    text = visible(text)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.replace("$", r"\$")


def width_of(text: str, size: float = NAME_SIZE) -> float:
    """Return the width of a text in inches, at a size in points."""
    with _missing_glyphs_are_boxes():
        width, _, _ = text_to_path.get_text_width_height_descent(
            text.replace(r"\$", "$"), FontProperties(size=size), ismath=False
        )
    return float(width / 72)


def widest(texts: Sequence[str], size: float = NAME_SIZE) -> float:
    """Return the width of the widest of some texts in inches."""
    return max((width_of(text, size) for text in texts), default=0.0)


def wrap(text: str, inches: float, size: float = NAME_SIZE, *, lines: int = 1) -> str:
    r"""Break a text into lines of this width, at spaces if possible; what does not fit ends in an ellipsis.

    Example:
        >>> from evenhand.report.figures.style import wrap
        >>> wrap("a rather long class name", 1.0, lines=2)
        'a rather long\nclass name'
        >>> wrap("a rather long class name", 1.0)
        'a rather long cl…'
    """
    done: list[str] = []
    rest = visible(text)
    while rest and len(done) < lines:
        fits = _fitting(rest, inches, size)
        if fits == len(rest):
            done.append(rest)
            break
        if len(done) == lines - 1:
            done.append(f"{rest[: max(_fitting(rest, inches - width_of('…', size), size), 1)].rstrip()}…")
        else:
            space = rest.rfind(" ", 1, fits + 1)
            cut = space if space > 0 else fits
            done.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip()
    return "\n".join(done).replace("$", r"\$")


def _fitting(text: str, inches: float, size: float) -> int:
    """Return how many characters of a text fit, at least 1."""
    return 1 + bisect_right(range(2, len(text) + 1), inches, key=lambda number: width_of(text[:number], size))


class ShownFigure(Figure):
    """A figure that is displayed in notebooks."""

    def _repr_png_(self) -> bytes:
        return figure_bytes(self, ".png")


def new_figure(width: float, height: float, *, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return an empty figure, whose layout makes room for all labels unless it is None; sizes in inches."""
    return ShownFigure(figsize=(width, height), layout=layout)


def clear_frame(axes: Axes, grid: str = "y") -> None:
    """Keep only the left and bottom spines, and draw a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color=FAINT, linewidth=0.5)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=NAME_SIZE)


def heading(axes: Axes, text: str, inches: float, *, size: float = 10.0) -> None:
    """Write a title above an axes, in two lines at most."""
    axes.set_title(wrap(text, inches, size, lines=2), loc="left", fontsize=size, color=INK)


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Put a legend below the figure, and increase the height as needed."""
    size = 8.5
    room = figure.get_figwidth() - 0.2
    shown = [wrap(label, room - 0.7, size) for label in labels]
    columns = max(1, min(len(shown), int(room / (widest(shown, size) + 0.65))))
    rows = -(-len(shown) // columns)
    figure.set_figheight(figure.get_figheight() + 0.1 + 0.19 * rows)
    figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=size)


def line_style(position: int) -> dict[str, Any]:
    """Return colour and dashes of the position-th of several lines; they differ in both."""
    return {"color": PALETTE[position % len(PALETTE)], "linestyle": DASHES[position % len(DASHES)], "linewidth": 1.6}


def marker_style(position: int) -> dict[str, Any]:
    """Return colour and marker of the position-th of several kinds of points; 21 different ones."""
    return {"color": PALETTE[position % len(PALETTE)], "marker": MARKERS[position % len(MARKERS)]}


def thinned(number: int) -> list[int]:
    """Return at most 11 round indices: the first, then in equal steps.

    Example:
        >>> from evenhand.report.figures.style import thinned
        >>> thinned(100)
        [0, 9, 19, 29, 39, 49, 59, 69, 79, 89, 99]
    """
    steps = [lead * 10**power for power in range(9) for lead in (1, 2, 5)]
    step = next(step for step in steps if number / step <= 10)
    return sorted({0, *range(step - 1, number, step)})


def round_ticks(low: float, high: float) -> list[float]:
    """Return round ticks of a logarithmic axis, at least two.

    Example:
        >>> from evenhand.report.figures.style import round_ticks
        >>> round_ticks(6, 500), round_ticks(30, 40)
        ([10, 20, 50, 100, 200, 500], [30, 40])
    """
    leads = (1, 2, 5) if high < 2_000 * low else (1,)
    ticks: list[float] = [lead * 10**power for power in range(9) for lead in leads if low <= lead * 10**power <= high]
    return ticks if len(ticks) > 1 else [low, high]


def from_most_to_fewest(counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the classes by training images, the largest first; equal ones in their order."""
    return np.argsort(-counts, kind="stable")


def show_picture(axes: Axes, image: NDArray[np.uint8]) -> None:
    """Draw an image, (H, W, 1) or (H, W, 3), without interpolation."""
    grey = image.ndim == 2 or image.shape[2] == 1
    axes.imshow(image.reshape(image.shape[:2]) if grey else image, cmap="gray", vmin=0, vmax=255, interpolation="none")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(FAINT)


def figure_bytes(figure: Figure, ending: str) -> bytes:
    """Return a figure as the content of a PNG, SVG or PDF file; equal figures give equal bytes.

    Args:
        figure: any matplotlib figure.
        ending: `.png`, `.svg` or `.pdf`.

    Example:
        >>> from evenhand.report.figures import class_distribution, figure_bytes
        >>> figure = class_distribution([3, 1], ["a", "b"], ["many", "few"])
        >>> b"<svg" in figure_bytes(figure, ".svg")
        True
    """
    if ending.lower() not in FORMATS:
        raise EvenhandError(f"A figure is saved as .png, .svg or .pdf, got {ending!r}.")
    kind = ending[1:].lower()
    foreign = [text for text in figure.findobj(Text) if isinstance(text, Text) and not text.get_text().isascii()]
    installed = set(font_manager.fontManager.get_font_names()) if foreign else set()
    for text in foreign:
        text.set_fontfamily(["sans-serif", *(font for font in FALLBACK_FONTS if font in installed)])
    file = io.BytesIO()
    # Without dates and random ids, equal figures give equal files.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context({"svg.hashsalt": "evenhand"}), _missing_glyphs_are_boxes():
        figure.savefig(file, format=kind, dpi=160, metadata=undated)
    return file.getvalue()


def save_figure(figure: Figure, path: Path | str, *, within: Path | None = None) -> None:
    """Write a figure as PNG, SVG or PDF, by the suffix of the path.

    Args:
        figure: any matplotlib figure.
        path: the file.
        within: a folder above it, below which links are replaced rather than followed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.report.figures import class_distribution, save_figure
        >>> target = Path(tempfile.mkdtemp()) / "classes.png"
        >>> save_figure(class_distribution([3, 1], ["a", "b"], ["many", "few"]), target)
        >>> target.read_bytes()[1:4]
        b'PNG'
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise EvenhandError(f"A figure is saved as .png, .svg or .pdf, got {path.name!r}.")
    content = figure_bytes(figure, path.suffix)
    write_bytes(path, content, within=within)


@contextmanager
def _missing_glyphs_are_boxes() -> Iterator[None]:
    """Do not warn of characters that no installed font has; they are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        yield
