"""Class distributions."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from evenhand.data.imbalance import Imbalance
from evenhand.data.road_marking import COUNTS as ROAD_MARKING
from evenhand.data.standard import CIFAR10, CIFAR100, FASHION_MNIST, SVHN, TINY_IMAGENET
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Drawn, predictions_of
from evenhand.report.figures.page_figure import PageFigure, Shown, bar_tooltips, by_class
from evenhand.report.figures.style import (
    GROUP_COLOURS,
    INK,
    MOST_NAMED,
    NAME_SIZE,
    clear_frame,
    from_most_to_fewest,
    heading,
    legend_below,
    literal,
    new_figure,
    thinned,
    widest,
    wrap,
)
from evenhand.report.figures.tables import first_of

# Lightest first: it is drawn behind, with the larger counts.
_OVERLAID = ("#8CC6E8", "#0072B2", "#003B5C")


def class_distribution(
    counts: Sequence[int] | NDArray[np.int64] | Drawn,
    class_names: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    *,
    title: str = "",
) -> Figure:
    """Draw the training images of each class, the largest class first, coloured by shot group.

    Args:
        counts: training images per class, (K,); or predictions, runs, a comparison, or folders of these, of which the
            first is drawn.
        class_names: (K,), for counts.
        groups: `many`, `medium` or `few` of each class, (K,); None: by the counts.
        title: above the figure.

    Example:
        >>> from evenhand.report.figures import class_distribution
        >>> figure = class_distribution([500, 60, 5], ["cat", "dog", "owl"], ["many", "medium", "few"])
        >>> [text.get_text() for text in figure.axes[0].get_xticklabels()]
        ['cat', 'dog', 'owl']
    """
    if class_names is None:
        first = first_of(predictions_of(counts))  # type: ignore[arg-type]
        counts, class_names = first.train_counts, first.class_names
    counts = np.asarray(counts)
    if groups is None:
        found = find_shot_groups(counts)
        groups = [found.of(k) for k in range(len(counts))]
    order = from_most_to_fewest(counts)
    ordered = counts[order]
    colours = [GROUP_COLOURS[groups[k]] for k in order]
    names = [literal(class_names[k]) for k in order]
    if len(order) > MOST_NAMED:
        figure = _numbered_bars(ordered, colours)
    elif (widest(names) + 0.12) * len(order) <= 6.5:
        figure = _vertical_bars(ordered, names, colours)
    else:
        figure = _horizontal_bars(ordered, names, colours)
    shown = [group for group in GROUP_COLOURS if group in groups]
    if len(shown) > 1:
        labels = [f"{group}-shot ({list(groups).count(group)})" for group in shown]
        legend_below(figure, [Patch(color=GROUP_COLOURS[group]) for group in shown], labels)
    if title:
        figure.suptitle(wrap(title, figure.get_figwidth() - 0.3, 11, lines=2), x=0.02, ha="left", fontsize=11)
    return figure


def _numbered_bars(ordered: NDArray[np.int64], colours: Sequence[str]) -> Figure:
    figure = new_figure(9.0, 3.6)
    axes = figure.add_subplot()
    axes.bar(np.arange(len(ordered)), ordered, color=colours, width=1.0)
    axes.set_xlim(-0.6, len(ordered) - 0.4)
    places = thinned(len(ordered))
    axes.set_xticks(places, [str(place + 1) for place in places])
    axes.set_xlabel(f"the {len(ordered)} classes, largest first")
    axes.set_ylabel("training images")
    clear_frame(axes)
    return figure


def _vertical_bars(ordered: NDArray[np.int64], names: Sequence[str], colours: Sequence[str]) -> Figure:
    numbers = [f"{count:,}" for count in ordered]
    figure = new_figure(max(5.0, 1.2 + (max(widest(names), widest(numbers)) + 0.12) * len(ordered)), 3.6)
    axes = figure.add_subplot()
    bars = axes.bar(np.arange(len(ordered)), ordered, color=colours, width=0.82)
    axes.bar_label(bars, numbers, padding=2, fontsize=NAME_SIZE, color=INK)
    axes.set_xticks(np.arange(len(ordered)), names)
    axes.set_xlim(-0.6, len(ordered) - 0.4)
    axes.set_ylim(0, max(ordered.max(), 1) * 1.1)
    axes.set_ylabel("training images")
    clear_frame(axes)
    return figure


def _horizontal_bars(ordered: NDArray[np.int64], names: Sequence[str], colours: Sequence[str]) -> Figure:
    numbers = [f"{count:,}" for count in ordered]
    figure = new_figure(5.4 + widest(names), 0.9 + 0.24 * len(ordered))
    axes = figure.add_subplot()
    bars = axes.barh(np.arange(len(ordered)), ordered, color=colours, height=0.78)
    axes.bar_label(bars, numbers, padding=3, fontsize=NAME_SIZE, color=INK)
    axes.set_yticks(np.arange(len(ordered)), names)
    axes.set_ylim(len(ordered) - 0.4, -0.6)
    axes.set_xlim(0, max(ordered.max(), 1) * (1 + (widest(numbers) + 0.1) / 4.5))
    axes.set_xlabel("training images")
    clear_frame(axes, "x")
    axes.tick_params(axis="y", length=0)
    return figure


def class_distributions(panels: Mapping[str, Mapping[str, Sequence[int]]]) -> Figure:
    """Draw the class distributions of several data sets, the variants of one overlaid, the largest class first.

    Args:
        panels: for each title the counts (K,) of its variants; the first variant is drawn behind the others, so it
            should be the larger one. :func:`paper_distributions` returns those of the complement cross entropy paper.

    Example:
        >>> from evenhand.report.figures import class_distributions, paper_distributions
        >>> figure = class_distributions(paper_distributions())
        >>> [axes.get_title(loc="left") for axes in figure.axes][4]
        '(e) Road Marking'
    """
    columns = min(5, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(2.7 * columns, 2.1 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    variants = list(dict.fromkeys(label for panel in panels.values() for label in panel if label))
    for axes, (title, panel) in zip(grid.flat, panels.items(), strict=False):
        for label, counts in panel.items():
            ordered = np.sort(np.asarray(counts))[::-1]
            colour = _OVERLAID[variants.index(label) % 3] if label else _OVERLAID[1]
            axes.stairs(ordered, np.arange(len(ordered) + 1) + 0.5, fill=True, color=colour)
        axes.set_xlim(0.5, len(ordered) + 0.5)
        axes.set_xticks([1, len(ordered)])
        clear_frame(axes)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.tick_params(labelsize=7)
        heading(axes, title, 2.2, size=9)
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("training images", fontsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("class, largest first", fontsize=8)
    if variants:
        legend_below(figure, [Patch(color=_OVERLAID[k % 3]) for k in range(len(variants))], variants)
    return figure


def paper_distributions() -> dict[str, dict[str, list[int]]]:
    """Return the counts of figure 2 of the paper, without any download.

    Road Marking has all 27 classes, as in the paper; the counts of SVHN are its training images.

    Example:
        >>> from evenhand.report.figures import paper_distributions
        >>> paper_distributions()["(a) CIFAR-10 LT"]["ratio 100"]
        [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    """
    artificial = {
        f"{standard.title} {shape}": {
            f"ratio {ratio}": Imbalance.parse(f"{kind}:{ratio}")
            .profile(standard.train_counts[0], len(standard.train_counts))
            .tolist()
            for ratio in (10, 100)
        }
        for standard in (CIFAR10, CIFAR100, FASHION_MNIST, TINY_IMAGENET)
        for shape, kind in (("LT", "exp"), ("Step", "step"))
    }
    panels = list(artificial.items())
    panels.insert(4, ("Road Marking", {"": list(ROAD_MARKING.values())}))
    panels.append(("SVHN", {"": list(SVHN.train_counts)}))
    return {f"({letter}) {title}": counts for letter, (title, counts) in zip("abcdefghij", panels, strict=True)}


def _on_page(data: ReportData, _: str) -> Shown:
    first = first_of(data.predictions())
    figure = class_distribution(first)
    order = from_most_to_fewest(first.train_counts).tolist()
    texts = [f"{first.class_names[k]}: {first.train_counts[k]:,} training images" for k in order]
    alt = (
        f"Bar chart of the training images of {len(order)} classes, from {first.train_counts.max():,} of "
        f"{first.class_names[order[0]]} down to {first.train_counts.min():,} of {first.class_names[order[-1]]}."
    )
    return by_class(figure, alt, bar_tooltips(figure, texts), len(order))


DISTRIBUTION = PageFigure("distribution", "data", _on_page)
