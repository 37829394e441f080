"""Figures, each a function of tables; none needs a model."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from evenhand.core.errors import EvenhandError
from evenhand.core.files import replacing

# Okabe and Ito's palette, told apart by people with any kind of colour vision.
GROUP_COLOURS = {"many": "#0072B2", "medium": "#009E73", "few": "#D55E00"}
INK, FAINT = "#222222", "#BBBBBB"

FORMATS = (".png", ".svg", ".pdf")

# Up to so many classes are named and numbered one by one.
MOST_NAMED = 30


def class_distribution(
    counts: Sequence[int], class_names: Sequence[str], groups: Sequence[str], *, title: str = ""
) -> Figure:
    """Draw the training images of each class, the largest class first, coloured by shot group.

    Args:
        counts: training images of each class, (K,).
        class_names: (K,).
        groups: `many`, `medium` or `few` of each class, (K,).
        title: above the figure.

    Example:
        >>> from evenhand.report.figures import class_distribution
        >>> figure = class_distribution([500, 60, 5], ["cat", "dog", "owl"], ["many", "medium", "few"])
        >>> [text.get_text() for text in figure.axes[0].get_xticklabels()]
        ['cat', 'dog', 'owl']
    """
    order = np.argsort(-np.asarray(counts), kind="stable")
    ordered = np.asarray(counts)[order]
    colours = [GROUP_COLOURS[groups[k]] for k in order]
    named = len(order) <= MOST_NAMED
    figure = Figure(figsize=(max(5.0, min(11.0, 2.2 + 0.42 * len(order))) if named else 9.0, 3.8), layout="constrained")
    axes = figure.add_subplot()
    axes.bar(np.arange(len(order)), ordered, color=colours, width=0.82 if named else 1.0)
    axes.set_ylabel("training images")
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.set_ylim(0, ordered.max() * 1.1)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    if named:
        names = [_shorten(class_names[k]) for k in order]
        crowded = max(map(len, names)) * len(names) > 90
        axes.set_xticks(
            np.arange(len(order)), names, rotation=40 if crowded else 0, ha="right" if crowded else "center"
        )
        if crowded:
            for label in axes.get_xticklabels():
                label.set_rotation_mode("anchor")
        for position, count in enumerate(ordered):
            axes.annotate(
                f"{count:,}", (position, count), (0, 2), textcoords="offset points", ha="center", fontsize=8, color=INK
            )
    else:
        axes.set_xlabel(f"the {len(order)} classes, largest first")
    shown = [group for group in GROUP_COLOURS if group in groups]
    if len(shown) > 1:
        labels = [f"{group}-shot ({list(groups).count(group)})" for group in shown]
        axes.legend([Patch(color=GROUP_COLOURS[group]) for group in shown], labels, frameon=False, loc="upper right")
    if title:
        axes.set_title(title, loc="left", fontsize=11, color=INK)
    return figure


def save_figure(figure: Figure, path: Path | str) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the path.

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
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=160)


def _shorten(name: str, most: int = 40) -> str:
    """Return a name that fits below a bar, with `$` kept from being read as mathematics."""
    name = name if len(name) <= most else f"{name[: most - 1]}…"
    return name.replace("$", r"\$")
