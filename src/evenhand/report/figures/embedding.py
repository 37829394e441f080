"""Feature maps: t-SNE of a model's features."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report._report_data import ReportData
from evenhand.report.figures.given import Folder, runs_of
from evenhand.report.figures.page_figure import PageFigure, Shown
from evenhand.report.figures.style import (
    CLASS_COLOURS,
    COUNT_COLOURS,
    FAINT,
    INK,
    NAME_SIZE,
    from_most_to_fewest,
    heading,
    legend_below,
    new_figure,
    round_ticks,
    width_of,
    wrap,
)
from evenhand.runs.comparison import Comparison
from evenhand.runs.run import Run

MOST_POINTS = 2_000
FEWEST_POINTS = 10
MARKERS = {"many": ("o", "full"), "medium": ("s", "full"), "few": ("^", "none")}
"""Of each shot group, marker and fill."""
LABEL_SIZE = 7.5
MOST_LABELS = 60
"""Names tried in one map."""


def feature_embeddings(
    features: Mapping[str, Any] | Folder | Sequence[Folder] | Comparison,
    targets: NDArray[np.int64] | None = None,
    class_names: Sequence[str] = (),
    train_counts: Sequence[int] = (),
    *,
    seed: int = 0,
) -> Figure:
    """Draw t-SNE maps of the features of several models, for the same images and with the same seed.

    t-SNE shows which images are neighbours; distances between far points, sizes of clusters and the axes mean nothing.
    At most 2,000 images are drawn, chosen by the seed. Where a shot group has more classes than there are colours (9),
    the colour shows the training images of the class, and names are written where there is room.

    Args:
        features: runs, a comparison, or folders of these, of which the first seed of each objective is drawn; or the
            features of each model, (N, D), D may differ; rows are the same images.
        targets: for features, their classes, (N,).
        class_names: for features, (K,).
        train_counts: for features, training images per class, (K,).
        seed: of the choice of images and of t-SNE.

    Example:
        >>> import numpy as np
        >>> from evenhand.report.figures import feature_embeddings
        >>> targets = np.arange(20) % 2
        >>> features = np.random.default_rng(0).normal(size=(20, 8)) + 9 * targets[:, None]
        >>> figure = feature_embeddings({"ce": features, "cce": features**3}, targets, ["cat", "dog"], [90, 9])
        >>> [axes.get_title(loc="left") for axes in figure.axes]
        ['ce', 'cce']
    """
    if targets is None:
        features, first, targets = _features_of(runs_of(features))
        class_names, train_counts = first.class_names, first.train_counts.tolist()
    assert isinstance(features, Mapping)
    for name, rows in features.items():
        if len(rows) != len(targets):
            raise EvenhandError(
                f"The features of {name!r} must be {len(targets)} rows, one per target, got {len(rows)}."
            )
    chosen = choose_points(len(targets), seed=seed)
    points = {name: embed(rows[chosen], seed=seed) for name, rows in features.items()}
    return draw_embeddings(points, targets[chosen], class_names, train_counts)


def choose_points(number: int, *, seed: int) -> NDArray[np.int64]:
    """Return the rows to draw, in order: all, or 2,000 chosen by the seed."""
    return np.sort(stream(seed, "embedding").permutation(number)[:MOST_POINTS])


def embed(features: NDArray[np.floating], *, seed: int = 0) -> NDArray[np.float32]:
    """Return t-SNE coordinates of features.

    Args:
        features: (N, D), N of 10 or more.
        seed: of t-SNE; it starts from the principal components.

    Returns:
        (N, 2).

    Raises:
        EvenhandError: too few rows, NaN or infinite values, or equal rows.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    rows = np.asarray(features, np.float32)
    if rows.ndim != 2 or len(rows) < FEWEST_POINTS:
        raise EvenhandError(f"t-SNE needs {FEWEST_POINTS} or more rows of features, got shape {rows.shape}.")
    if not np.isfinite(rows).all():
        raise EvenhandError("The features have NaN or infinite values and cannot be drawn; train the model again.")
    rows = rows - rows.mean(axis=0)
    largest = np.abs(rows).max()
    if largest == 0:
        raise EvenhandError("All rows of the features are equal, so there is nothing to draw.")
    # Only relative distances matter; 50 components keep nearly all of them at less cost.
    if rows.shape[1] > 1:
        rows = PCA(min(50, *rows.shape), svd_solver="full").fit_transform(rows / largest)
    else:
        rows = np.hstack([rows / largest, np.zeros_like(rows)])
    perplexity = min(30.0, (len(rows) - 1) / 3)
    with threadpool_limits(1):  # more threads mostly wait for each other
        points: NDArray[np.float32] = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(rows)
    return points


def draw_embeddings(
    points: Mapping[str, NDArray[np.floating]],
    targets: NDArray[np.int64],
    class_names: Sequence[str],
    train_counts: Sequence[int],
) -> Figure:
    """Draw points, (N, 2) for each model, coloured by class; see :func:`feature_embeddings`."""
    columns = min(2, len(points))
    rows = -(-len(points) // columns)
    counts = np.maximum(np.asarray(train_counts), 1)
    marks = _marks(np.asarray(train_counts))
    size = 4.6 if marks or len(points) > 1 else 7.6
    figure = new_figure(size * columns, (size - 0.1) * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    order = np.argsort(-counts[targets], kind="stable")  # rare classes last, on top
    for axes, (name, places) in zip(grid.flat, points.items(), strict=False):
        if marks:
            for k in dict.fromkeys(targets[order].tolist()):
                own = places[targets == k]
                axes.plot(own[:, 0], own[:, 1], markersize=3, alpha=0.75, **marks[k])
        else:
            scale = LogNorm(counts.min(), max(counts.max(), counts.min() + 1))
            cloud = axes.scatter(
                *places[order].T, s=9, linewidths=0, c=counts[targets[order]], cmap=COUNT_COLOURS, norm=scale
            )
            _write_names(axes, places, targets, class_names, size - 0.4)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color(FAINT)
        heading(axes, name, size - 0.4)
    for axes in list(grid.flat)[len(points) :]:
        axes.set_visible(False)
    if marks:
        shown = [k for k in np.argsort(-counts, kind="stable").tolist() if (targets == k).any()]
        handles = [Line2D([], [], markersize=5, **marks[k]) for k in shown]
        legend_below(figure, handles, [class_names[k] for k in shown])
    else:
        bar = figure.colorbar(cloud, ax=list(grid.flat), shrink=0.7, aspect=30, pad=0.02)
        ticks = round_ticks(float(counts.min()), float(counts.max()))
        bar.set_ticks(ticks, labels=[f"{tick:,.0f}" for tick in ticks])
        bar.minorticks_off()
        bar.set_label("training images of the class", fontsize=9)
        bar.ax.tick_params(labelsize=NAME_SIZE)
    return figure


def _write_names(
    axes: Axes, places: NDArray[np.floating], targets: NDArray[np.int64], class_names: Sequence[str], inches: float
) -> None:
    """Write names of classes at the middle of their points, those of the tightest first, where none covers another."""
    low, high = places.min(axis=0), places.max(axis=0)
    pitch = np.maximum(high - low, 1e-9) / (0.88 * inches)  # units per inch
    present = np.unique(targets)
    middles = {k: np.median(places[targets == k], axis=0) for k in present.tolist()}
    spread = {k: np.abs(places[targets == k] - middles[k]).mean() for k in middles}
    taken: list[NDArray[np.floating]] = []
    for k in sorted(middles, key=lambda k: spread[k])[:MOST_LABELS]:
        name = wrap(class_names[k], 1.2, LABEL_SIZE)
        half = pitch * (width_of(name, LABEL_SIZE) / 2 + 0.04, 0.08)
        middle = np.clip(middles[k], low + half, high - half)
        box = np.stack([middle - half, middle + half])
        if all((box[1] < other[0]).any() or (other[1] < box[0]).any() for other in taken):
            taken.append(box)
            x, y = map(float, middle)
            text = axes.text(x, y, name, ha="center", va="center", fontsize=LABEL_SIZE, color=INK)
            text.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.85)])


def _marks(counts: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return a marker per class: its shape is that of the shot group, its colour its own; none for too many classes."""
    groups = find_shot_groups(counts)
    if max(len(groups.many), len(groups.medium), len(groups.few)) > len(CLASS_COLOURS):
        return []
    found: list[dict[str, Any]] = [{} for _ in counts]
    for rank, k in enumerate(from_most_to_fewest(counts).tolist()):
        marker, fill = MARKERS[groups.of(k)]
        colour = CLASS_COLOURS[rank % len(CLASS_COLOURS)]  # differs within a group, whose ranks follow each other
        style = {"color": colour, "marker": marker, "fillstyle": fill, "linestyle": "none"}
        found[k] = {**style, "markeredgewidth": 0.9}
    return found


def _features_of(
    runs: Mapping[str, Sequence[Run]],
) -> tuple[dict[str, NDArray[np.floating]], Predictions, NDArray[np.int64]]:
    """Return the features of the first seed of each objective for the same images, its predictions, and targets."""
    found = {name: seeds[0].features for name, seeds in runs.items()}
    common = next(iter(found.values())).ids
    for kept in found.values():
        common = np.intersect1d(common, kept.ids)
    if len(common) < 2:
        raise EvenhandError("The features of the runs are of different images, so they cannot be compared.")
    features = {}
    for name, kept in found.items():
        order = np.argsort(kept.ids)
        rows = order[np.searchsorted(kept.ids, common, sorter=order)]
        features[name] = kept.features[rows]
    return _merge_equal(features), next(iter(runs.values()))[0].predictions, kept.targets[rows]


def _on_page(data: ReportData, _: str) -> Shown:
    """Draw the features of the first seed of each objective."""
    features, first, targets = _features_of(data.finished)
    figure = feature_embeddings(features, targets, first.class_names, first.train_counts.tolist())
    number, names = min(len(targets), MOST_POINTS), ", ".join(data.finished)
    alt = f"t-SNE of the features of {number:,} test images with {names}, coloured by class."
    return Shown(figure, alt, points=True)


def _merge_equal(features: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.floating]]:
    """Merge models with equal features, as those of a frozen backbone."""
    found: dict[bytes, list[str]] = {}
    for name, rows in features.items():
        found.setdefault(sha256(rows.tobytes()).digest(), []).append(name)
    if len(found) == 1 < len(features):
        return {"all objectives (equal features)": next(iter(features.values()))}
    return {", ".join(names): features[names[0]] for names in found.values()}


EMBEDDING = PageFigure(
    "embedding",
    "features",
    _on_page,
    caption="Each class has a colour, and each shot group a marker: circles many-shot, squares medium-shot, triangles "
    "few-shot. Where there are too many classes for that, darker points are of classes with fewer training images, and "
    "names are written where there is room.",
)
