"""The paper's figures, drawn from the runs of a study."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.report import figures
from evenhand.runs.run import Run

Members = dict[str, list[Run]]
"""Runs by objective, one per seed."""


def draw_paper_figure(name: str, runs: Sequence[Path], folder: Path) -> list[Path]:
    """Draw a figure of the paper, one file for each source, imbalance and network of the runs.

    Args:
        name: `figure-overview`, `figure-distributions`, `figure-confusion`, `figure-tsne`, `figure-convergence` or
            `figure-errors`.
        runs: folders of finished runs; `figure-distributions` needs none.
        folder: of the files, each as PNG, SVG and PDF.

    Returns:
        The paths of the files.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.paper import draw_paper_figure
        >>> [path.name for path in draw_paper_figure("figure-distributions", [], Path(tempfile.mkdtemp()))]
        ['figure-distributions.png', 'figure-distributions.svg', 'figure-distributions.pdf']
    """
    if name == "figure-distributions":
        return _save(figures.class_distributions(figures.paper_distributions()), folder / name)
    if not runs:
        raise EvenhandError(f"There is no finished run to draw {name} from.")
    found: dict[tuple[str, str, str], Members] = {}
    for run in map(Run, runs):
        config = run.config
        conditions = (config.data.source, config.data.imbalance, config.model.name)
        found.setdefault(conditions, {}).setdefault(config.objective, []).append(run)
    written = []
    for conditions, members in found.items():
        source, imbalance, network = (part.replace(":", "-").replace("=", "-") for part in conditions)
        stem = "_".join([name, Path(source).name, *([] if imbalance == "none" else [imbalance]), network])
        written += _save(DRAWN[name](members), folder / stem)
    return written


def _save(figure: Figure, stem: Path) -> list[Path]:
    # A name with a dot: with_suffix would cut it.
    paths = [stem.with_name(stem.name + ending) for ending in figures.FORMATS]
    for path in paths:
        figures.save_figure(figure, path, within=path.parent)
    return paths


def _overview(members: Members) -> Figure:
    predictions = {name: runs[0].predictions for name, runs in members.items()}
    pictures: dict[str, NDArray[np.uint8]] = {}
    for runs in members.values():
        images, ids = _thumbnails(runs[0])
        pictures |= dict(zip(ids, images, strict=True))
    chosen = figures.overview_image(predictions, list(pictures))
    return figures.overview(predictions, pictures[chosen], chosen)


def _confusion(members: Members) -> Figure:
    runs = {name: [run.predictions for run in own] for name, own in members.items()}
    return figures.confusion_matrices(runs, by_count=True)


def _tsne(members: Members) -> Figure:
    """Draw the first seed of each objective; only images whose features every one of them kept."""
    found = {name: runs[0].features for name, runs in members.items()}
    rows = {name: {each: row for row, each in enumerate(own.ids.tolist())} for name, own in found.items()}
    first = next(iter(found.values()))
    shared = [each for each in first.ids.tolist() if all(each in own for own in rows.values())]
    # A run may keep its images in another order.
    features = {name: own.features[[rows[name][each] for each in shared]] for name, own in found.items()}
    places = next(iter(rows.values()))
    targets = first.targets[[places[each] for each in shared]]
    predictions = next(iter(members.values()))[0].predictions
    return figures.feature_embeddings(features, targets, predictions.class_names, predictions.train_counts.tolist())


def _convergence(members: Members) -> Figure:
    return figures.error_curves({name: [run.history for run in runs] for name, runs in members.items()})


def _errors(members: Members) -> Figure:
    run = next(iter(members.values()))[0]
    return figures.error_study(run.predictions, *_thumbnails(run))


DRAWN: Mapping[str, Callable[[Members], Figure]] = {
    "figure-overview": _overview,
    "figure-confusion": _confusion,
    "figure-tsne": _tsne,
    "figure-convergence": _convergence,
    "figure-errors": _errors,
}


def _thumbnails(run: Run) -> tuple[NDArray[np.uint8], list[str]]:
    return run.thumbnails.images, run.thumbnails.ids.tolist()
