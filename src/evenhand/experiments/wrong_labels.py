"""Wrong labels of a source, from the out-of-fold predictions of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.data.sources import load_source
from evenhand.data.table import SampleTable
from evenhand.metrics.label_errors import LabelErrors, find_label_errors
from evenhand.metrics.priors import change_prior, class_prior
from evenhand.metrics.shot_groups import ShotGroups, find_shot_groups
from evenhand.objectives.objective import build_objective
from evenhand.runs.comparison import read_recommended
from evenhand.runs.run import Run


@dataclass(frozen=True, eq=False)
class WrongLabels:
    """The images of a source that have out-of-fold predictions, ranked by how likely their label is wrong."""

    table: SampleTable
    objective: str
    rows: NDArray[np.int64]
    """(n,): rows of the table with predictions."""
    probabilities: NDArray[np.float64]
    """(n, K): means over the runs that tested the image."""
    errors: LabelErrors
    """Of these rows."""
    groups: ShotGroups
    """Of the classes, by the images of the table."""
    notes: tuple[str, ...]

    def ranked(self) -> list["RankedLabel"]:
        """Return all labels, the most likely wrong one first."""
        names, ids = self.table.class_names, self.table.ids
        return [
            RankedLabel(
                row=int(self.rows[place]),
                id=str(ids[self.rows[place]]),
                label=names[label],
                group=self.groups.of(label),
                suggested=names[other],
                label_probability=float(self.probabilities[place, label]),
                suggested_probability=float(self.probabilities[place, other]),
                score=float(self.errors.scores[place]),
                flagged=bool(self.errors.flagged[place]),
            )
            for place in self.errors.ranking().tolist()
            for label, other in [(int(self.table.labels[self.rows[place]]), int(self.errors.suggested[place]))]
        ]

    def flagged_by_group(self) -> dict[str, tuple[int, int]]:
        """Return the flagged and all images with predictions, by shot group."""
        of = np.array([self.groups.of(int(label)) for label in self.table.labels[self.rows]])
        return {
            name: (int(self.errors.flagged[of == name].sum()), int((of == name).sum()))
            for name in ("many", "medium", "few")
            if (of == name).any()
        }


@dataclass(frozen=True)
class RankedLabel:
    """One image whose label was checked."""

    row: int
    """Of the table."""
    id: str
    label: str
    group: str
    """The shot group of its label."""
    suggested: str
    """The most probable class other than the label."""
    label_probability: float
    suggested_probability: float
    score: float
    """Probability of the label divided by that of the suggested class."""
    flagged: bool


def find_wrong_labels(
    source: str | Path,
    comparison: Path | str,
    *,
    data_root: Path | str | None = None,
    allow_outside: bool = False,
) -> WrongLabels:
    """Rank the images of a source by how far the predictions of a comparison contradict their label.

    The runs of the recommended objective are used. With rotating test sets and five seeds, every image was tested by a
    model that was not trained on it; the mean is used where several were.

    Args:
        source: the source of the comparison, as it is now: labels that were corrected since are evaluated as they are.
        comparison: the folder of a comparison.
        data_root: folder of the data sets.
        allow_outside: follow links and paths that lead out of the source.

    Raises:
        EvenhandError: the comparison cannot be read, or is of other images or classes.
    """
    runs = read_recommended(comparison)
    table = load_source(source, data_root=data_root, allow_outside=allow_outside, strict=False)
    return rank_labels(table, runs.runs, runs.objective)


def rank_labels(table: SampleTable, runs: Sequence[Run], objective: str) -> WrongLabels:
    """Rank the labels of a table by the predictions of runs; see :func:`find_wrong_labels`.

    Raises:
        EvenhandError: the runs are of other images or classes.
    """
    names = runs[0].predictions.class_names
    unlike = next((run for run in runs if run.predictions.class_names != names), None)
    if unlike is not None:
        raise EvenhandError(f"{unlike.path} has other classes than {runs[0].path}; give one comparison.")
    number = {name: place for place, name in enumerate(names)}
    place_of = {name: place for place, name in enumerate(table.ids.tolist())}
    total, times = np.zeros((len(table), len(names))), np.zeros(len(table), np.int64)
    unknown: list[str] = []
    for run in runs:
        predictions = run.predictions
        inside = np.array([name in place_of for name in predictions.ids.tolist()])
        unknown += predictions.ids[~inside].tolist()
        rows = np.array([place_of[name] for name in predictions.ids[inside].tolist()], np.int64)
        np.add.at(total, rows, np.exp(_log_probabilities(run)[inside]))
        np.add.at(times, rows, 1)
    rows = np.flatnonzero(times)
    if not len(rows):
        raise EvenhandError(
            f"{table.name} has none of the images that {runs[0].path.parent} was tested on, such as "
            f"{some(unknown, 1)}; give the source of the comparison."
        )
    lost = sorted({table.class_names[k] for k in np.unique(table.labels[rows])} - set(names))
    if lost:
        raise EvenhandError(f"{table.name} has labels that the models do not know: {some(lost)}; compare again.")
    order = np.array([number.get(name, -1) for name in table.class_names])
    shown = tuple(names)
    labels = np.where(table.labels >= 0, order[table.labels], -1)
    probabilities = total[rows] / times[rows, None]
    notes = []
    if len(rows) < len(table):
        notes.append(
            f"{len(rows):,} of {len(table):,} images have out-of-fold predictions; more seeds of a comparison with "
            "rotating test sets cover more."
        )
    if unknown:
        notes.append(f"{len(set(unknown)):,} tested images are no longer in the source.")
    ordered = SampleTable(table.name, shown, labels, table.ids, table.pixels, table.splits, table.groups, table.info)
    return WrongLabels(
        table=ordered,
        objective=objective,
        rows=rows,
        probabilities=probabilities,
        errors=find_label_errors(probabilities, labels[rows]),
        groups=find_shot_groups(np.bincount(labels[rows], minlength=len(names))),
        notes=tuple(notes),
    )


def _log_probabilities(run: Run) -> NDArray[np.float64]:
    """Return log probabilities for the class shares of the training images, whatever shares the logits hold for."""
    predictions = run.predictions
    predictions.check_finite()
    counts = predictions.train_counts if predictions.fitted_counts is None else predictions.fitted_counts
    config, selected = run.config, int(run.summary.selected.epoch)
    trained = build_objective(config.objective.training, counts=counts.tolist(), epochs=config.epochs, until=selected)
    implied = trained.prior()
    logits = predictions.logits.astype(np.float64)
    if implied is not None:
        logits = change_prior(logits, class_prior(implied), class_prior(counts))
    return np.asarray(log_softmax(logits, axis=1))
