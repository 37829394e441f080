"""One image of a rare class, and the probabilities of several models."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.special import entr

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.report.figures.style import (
    INK,
    NAME_SIZE,
    PALETTE,
    clear_frame,
    from_most_to_fewest,
    heading,
    literal,
    new_figure,
    show_picture,
    widest,
    wrap,
)
from evenhand.report.figures.tables import first_of

MOST_BARS = 12
"""With more classes only the most probable have a bar; the others are summed."""
_TRUE, _OTHER = PALETTE[1], PALETTE[0]


def overview(runs: Mapping[str, Predictions], image: NDArray[np.uint8], image_id: str) -> Figure:
    """Draw a test image and the probabilities that several models give to its classes.

    The bar of the actual class has its own colour. The label below shows the complement entropy: how evenly the rest is
    spread over the wrong classes, at most ln(K - 1).

    Args:
        runs: the predictions of each model.
        image: (H, W, 1) or (H, W, 3).
        image_id: its id; :func:`overview_image` chooses an illustrative one.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import overview
        >>> names, ids, counts = ("cat", "dog", "owl"), np.array(["a"]), np.array([900, 70, 5])
        >>> ce = Predictions(np.array([[3, 0, 1]], np.float32), np.array([2]), ids, names, counts)
        >>> cce = Predictions(np.array([[1, 1, 3]], np.float32), np.array([2]), ids, names, counts)
        >>> figure = overview({"ce": ce, "cce": cce}, np.zeros((8, 8, 3), np.uint8), "a")
        >>> [text.get_text() for text in figure.axes[1].get_yticklabels()]
        ['cat', 'dog', 'owl']
    """
    first = first_of({name: [each] for name, each in runs.items()})
    rows = {name: _row_of(each, image_id) for name, each in runs.items()}
    truth = int(first.targets[rows[next(iter(runs))]])
    shares = {name: np.exp(each.log_probabilities()[rows[name]]) for name, each in runs.items()}
    shown, rest = _bars(np.stack(list(shares.values())), first.train_counts, truth)
    labels = [literal(first.class_names[k]) for k in shown] + [f"the other {len(rest)} classes"] * bool(len(rest))
    figure = new_figure(2.4 + widest(labels) + 2.6 * len(runs), max(2.6, 1.1 + 0.24 * len(labels)))
    picture, *panels = figure.subplots(1, 1 + len(runs), width_ratios=[0.8] + [1] * len(runs))
    show_picture(picture, image)
    count = int(first.train_counts[truth])
    name = wrap(first.class_names[truth], 2.0, 9, lines=3)
    picture.set_xlabel(f"{name}\n{count:,} training image{'s' * (count != 1)}", fontsize=9, color=_TRUE)
    for axes, (name, probabilities) in zip(panels, shares.items(), strict=True):
        values = [*probabilities[shown], *([probabilities[rest].sum()] if len(rest) else [])]
        _draw_bars(axes, values, [_TRUE if k == truth else _OTHER for k in shown] + [_OTHER] * bool(len(rest)))
        heading(axes, name, 2.3)
        note = "probability (%)"
        if first.num_classes > 2:  # it is 0 with a single wrong class
            wrong = np.delete(probabilities, truth)
            entropy = entr(wrong / wrong.sum()).sum() if wrong.sum() > 0 else 0.0
            note += f"\ncomplement entropy {entropy:.2f} of {np.log(first.num_classes - 1):.2f}"
        axes.set_xlabel(note, fontsize=NAME_SIZE)
    for axes in panels:
        axes.set_yticks(range(len(labels)), labels, fontsize=NAME_SIZE)
        axes.tick_params(labelleft=axes is panels[0])
    return figure


def overview_image(runs: Mapping[str, Predictions], ids: Sequence[str]) -> str:
    """Return the id of the image that best shows how the last model differs from the first.

    It is the image of the rarest class present whose actual class gains most probability. It is chosen as an
    illustration and is no evidence; means over all images are.

    Args:
        runs: the predictions of each model.
        ids: of the images to choose from.
    """
    first, *_, last = [*runs.values()] * 2  # a single model is both
    rows = [(_row_of(first, str(name)), _row_of(last, str(name))) for name in ids]
    if not rows:
        raise EvenhandError("There is no image to choose from.")
    targets = first.targets[[row for row, _ in rows]]
    rarest = targets[np.argmin(first.train_counts[targets])]
    before, after = first.log_probabilities(), last.log_probabilities()
    gains = [
        np.exp(after[second, rarest]) - np.exp(before[row, rarest]) if target == rarest else -np.inf
        for (row, second), target in zip(rows, targets, strict=True)
    ]
    return str(ids[int(np.argmax(gains))])


def _row_of(predictions: Predictions, image_id: str) -> int:
    rows = np.flatnonzero(predictions.ids == image_id)
    if not len(rows):
        raise EvenhandError(f"There is no prediction for the image {image_id!r}.")
    return int(rows[0])


def _bars(
    shares: NDArray[np.float64], counts: NDArray[np.int64], truth: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the classes to show, most training images first, and those to sum."""
    order = from_most_to_fewest(counts)
    if len(order) <= MOST_BARS:
        return order, order[:0]
    height = shares.max(axis=0)
    height[truth] = np.inf
    chosen = np.argsort(-height, kind="stable")[: MOST_BARS - 1]
    return order[np.isin(order, chosen)], order[~np.isin(order, chosen)]


def _draw_bars(axes: Axes, values: Sequence[float], colours: Sequence[str]) -> None:
    rows = np.arange(len(values))
    axes.barh(rows, [100 * value for value in values], color=colours, height=0.72)
    for row, value in zip(rows, values, strict=True):
        number = f"{100 * value:.0f}" if value >= 0.005 else "<0.5"
        axes.annotate(
            number, (100 * value, row), (3, 0), textcoords="offset points", va="center", fontsize=7.5, color=INK
        )
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_xlim(0, 115)
    axes.set_xticks([0, 50, 100])
    clear_frame(axes, "x")
    axes.tick_params(axis="y", length=0)
