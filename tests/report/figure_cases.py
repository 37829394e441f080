"""Predictions, histories and a check of labels for the tests of the figures."""

import itertools
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from evenhand.metrics.predictions import Predictions

LONG = ("sulphur-crested cockatoo, Kakatoe ga", "W" * 36, "i", "a wide wing, seen from above")
HOSTILE = ("$\\frac$ _x^2 {", "<script>alert(1)</script>", 'a & b "c" -->', "tab\tbreak\nbell\a", "猫 Löwe \udc80")


def long_names(number: int) -> tuple[str, ...]:
    """Return different names of up to 40 characters, some of them very wide."""
    return tuple(f"{k:03d} {LONG[k % len(LONG)]}"[:40] for k in range(number))


def predictions(
    num_classes: int, *, seed: int = 0, each: int = 6, skill: float = 2.0, names: Iterable[str] | None = None
) -> Predictions:
    """Return a model that is often right, and that prefers the classes with many training images."""
    rng = np.random.default_rng(seed)
    counts = np.geomspace(500, 5, num_classes).astype(np.int64)
    targets = np.repeat(np.arange(num_classes), each)
    logits = rng.normal(size=(len(targets), num_classes)) + 0.3 * np.log(counts)
    logits[np.arange(len(targets)), targets] += skill
    ids = np.array([f"test/{row:05d}" for row in range(len(targets))])
    names = tuple(names) if names is not None else long_names(num_classes)
    return Predictions(logits.astype(np.float32), targets, ids, names, counts)


def runs(num_classes: int, *, objectives: int = 2, seeds: int = 2) -> dict[str, list[Predictions]]:
    """Return the predictions of several objectives with long names."""
    names = ("ce", "balanced-softmax+cce:gamma=released", "focal:gamma=2:alpha=0.25", "cce")[:objectives]
    return {
        name: [predictions(num_classes, seed=10 * place + seed, skill=2 + place) for seed in range(seeds)]
        for place, name in enumerate(names)
    }


def history(epochs: int, *, seed: int = 0) -> list[dict[str, float]]:
    """Return the rows of a history."""
    rng = np.random.default_rng(seed)
    columns = ("test_accuracy", "val_accuracy", "val_complement_entropy_right", "val_complement_entropy_wrong")
    return [
        {"epoch": epoch, **dict(zip(columns, rng.random(4).tolist(), strict=True))} for epoch in range(1, epochs + 1)
    ]


def texts(figure: Figure) -> dict[str, Bbox]:
    """Return the boxes of all visible texts, by what they say (numbered where several say the same)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    hidden = {id(label) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in _undrawn(axes, axis)}
    shown = [
        text
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip() and id(text) not in hidden
    ]
    renderer = canvas.get_renderer()
    return {f"{place}: {text.get_text()}": text.get_window_extent(renderer) for place, text in enumerate(shown)}


def _undrawn(axes: Axes, axis: Axis) -> Iterable[Text]:
    """Return tick labels that are never drawn: those of ticks outside the limits, or all, of a hidden axis."""
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    drawn = set(map(id, axis._update_ticks())) if axes.get_visible() and axis.get_visible() else set()
    for tick in ticks:
        if id(tick) not in drawn:
            yield from (tick.label1, tick.label2)


def overlapping(boxes: dict[str, Bbox]) -> list[tuple[str, str]]:
    """Return pairs of texts that cover each other by more than a pixel."""
    smaller = {name: box.padded(-0.5) for name, box in boxes.items()}
    return [
        (one, other)
        for (one, first), (other, second) in itertools.combinations(smaller.items(), 2)
        if first.x0 < second.x1 and second.x0 < first.x1 and first.y0 < second.y1 and second.y0 < first.y1
    ]


def cut_off(boxes: dict[str, Bbox], figure: Figure) -> list[str]:
    """Return texts that reach beyond the edge of the figure by more than a pixel."""
    width, height = figure.get_size_inches() * figure.dpi
    return [
        name for name, box in boxes.items() if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
