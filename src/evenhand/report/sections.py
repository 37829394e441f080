"""The figures of a page, section by section."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.metrics.classification import class_recall
from evenhand.metrics.shots import shot_groups
from evenhand.report import figures
from evenhand.report.drawing import Drawing, Hover, drawn, inline, picture
from evenhand.report.figures.tables import Runs, joint_confusion
from evenhand.report.gallery import read_arrays
from evenhand.report.material import RunFiles

# Up to so many classes each has a row of its own in the figures, and values under the pointer.
MOST_NAMED = 30
# Up to so many the bars are worth an SVG.
MOST_DRAWN = 200


def distribution(runs: Runs) -> Drawing:
    """Draw how many training images the classes have."""
    first = next(iter(runs.values()))[0]
    groups = shot_groups(first.train_counts)
    names = [groups.of(k) for k in range(first.num_classes)]

    def make() -> Markup:
        figure = figures.class_distribution(first.train_counts.tolist(), first.class_names, names)
        order = np.argsort(-first.train_counts, kind="stable").tolist()
        texts = [f"{first.class_names[k]}: {first.train_counts[k]:,} training images" for k in order]
        alt = (
            f"Bar chart of the training images of {len(order)} classes, from {first.train_counts.max():,} of "
            f"{first.class_names[order[0]]} down to {first.train_counts.min():,} of {first.class_names[order[-1]]}."
        )
        return _hovering(figure, alt, "distribution", _bars(figure, texts), len(order))

    return drawn(make)


def recall(runs: Runs) -> Drawing:
    """Draw recall against training count."""
    first = next(iter(runs.values()))[0]

    def make() -> Markup:
        figure = figures.recall_by_count(runs)
        order = np.argsort(-first.train_counts, kind="stable").tolist()
        clouds = [each for each in figure.axes[0].collections if isinstance(each, PathCollection)]
        hover: list[tuple[PathCollection, list[str]]] = []
        for cloud, (name, seeds) in zip(clouds, runs.items(), strict=False):
            recalls = class_recall(joint_confusion(seeds))
            texts = [
                f"{first.class_names[k]}, {name}: {recalls[k]:.1%}, {first.train_counts[k]:,} training images"
                for k in order
                if not np.isnan(recalls[k])
            ]
            hover.append((cloud, texts))
        alt = f"Recall of the classes with {', '.join(runs)}, by training images; the table below has the numbers."
        return _hovering(figure, alt, "recall", hover, len(order))

    return drawn(make)


def differences(runs: Runs, baseline: str) -> dict[str, Drawing]:
    """Draw for each other objective how the recall of each class differs from the baseline's."""
    return {name: drawn(_difference, runs, name, baseline) for name in runs if name != baseline}


def _difference(runs: Runs, name: str, baseline: str) -> Markup:
    first = runs[name][0]
    figure = figures.recall_difference(runs[name], runs[baseline], names=(name, baseline))
    gains = 100 * (class_recall(joint_confusion(runs[name])) - class_recall(joint_confusion(runs[baseline])))
    order = np.argsort(-first.train_counts, kind="stable").tolist()
    said = ["no test image" if np.isnan(gain) else f"{gain:+.1f} points" for gain in gains]
    texts = [f"{first.class_names[k]}: {said[k]}" for k in order]
    won, paid = int((gains > 0).sum()), int((gains < 0).sum())
    alt = f"Difference in recall of each class, {name} against {baseline}: {won} classes won and {paid} paid."
    return _hovering(figure, alt, f"difference-{list(runs).index(name)}", _bars(figure, texts), len(order))


def confusions(runs: Runs) -> dict[str, Drawing]:
    """Draw the confusion matrix of each objective, for very many classes."""

    def make(name: str) -> Markup:
        figure = figures.confusion_matrices({name: runs[name]}, by_count=True)
        alt = f"Confusion matrix of {name}, classes with most training images first; the table names the largest."
        return picture(figure, alt, points=True)

    return {name: drawn(make, name) for name in runs}


def calibration(runs: Runs) -> Drawing:
    """Draw accuracy against confidence."""
    alt = f"Reliability diagrams of {', '.join(runs)}: accuracy against confidence, for all images and by shot group."
    return drawn(lambda: picture(figures.reliability(runs), alt))


def curves(runs: dict[str, list[RunFiles]]) -> list[tuple[str, Drawing]]:
    """Draw how training went, as far as the histories tell: a caption and a figure each."""
    histories = {name: [run.history for run in seeds] for name, seeds in runs.items()}
    empty = [run.path.name for seeds in runs.values() for run in seeds if not run.history]
    if empty:
        return [("", Drawing(Markup(), f"There is no epoch in the history.csv of {some(empty)}."))]
    rows = [row for seeds in histories.values() for history in seeds for row in history]
    known = set.intersection(*(set(row) for row in rows))
    wanted = {
        "val_balanced_accuracy": "Balanced error in validation, by which the best epoch is chosen.",
        "test_balanced_accuracy": "Balanced error on the test set, which was only looked at.",
    }

    def error(column: str) -> Markup:
        alt = f"{wanted[column][:-1]}, after each epoch, for {', '.join(histories)}."
        return picture(figures.error_curves(histories, column=column), alt)

    shown = [(caption, drawn(error, column)) for column, caption in wanted.items() if column in known]
    if len(histories) == 1 and "train_loss" in known:  # the losses of different objectives are not on one scale
        figure = figures.history_curves(histories, "train_loss", label="training loss")
        shown.append(("Training loss.", drawn(picture, figure, "Training loss after each epoch.")))
    if "val_complement_entropy_right" in known:
        shown.append((_ENTROPY, _complement_entropy(runs)))
    return shown or [("", Drawing(Markup(), "The runs were not validated, so there are no curves to compare."))]


_ENTROPY = (
    "Complement entropy of validation images: how evenly the probability left to the wrong classes is spread. "
    "Complement cross entropy raises it, so that no wrong class comes close to winning."
)


def _complement_entropy(runs: dict[str, list[RunFiles]]) -> Drawing:
    histories = {name: [run.history for run in seeds] for name, seeds in runs.items()}
    classes = {len(run.predictions.class_names) for seeds in runs.values() for run in seeds if run.predictions}
    number = classes.pop() if len(classes) == 1 else None
    alt = f"Complement entropy of rightly and of wrongly classified images after each epoch, {', '.join(histories)}."
    return drawn(lambda: picture(figures.complement_entropy_curves(histories, num_classes=number), alt))


def embedding(runs: dict[str, list[RunFiles]]) -> Drawing:
    """Draw the features of the first seed of each objective by t-SNE."""
    return drawn(lambda: _embedding({name: seeds[0] for name, seeds in runs.items()}))


def _embedding(runs: dict[str, RunFiles]) -> Markup:
    found = {name: read_arrays(run.path / "features.npz", ("features", "targets", "ids")) for name, run in runs.items()}
    common = next(iter(found.values()))["ids"]
    for arrays in found.values():
        common = np.intersect1d(common, arrays["ids"])
    if len(common) < 2:
        raise EvenhandError("The features of the runs are of different images, so they cannot be drawn side by side.")
    features = {}
    for name, arrays in found.items():
        order = np.argsort(arrays["ids"])
        rows = order[np.searchsorted(arrays["ids"], common, sorter=order)]
        if arrays["features"].ndim != 2 or len(arrays["features"]) != len(arrays["ids"]):
            raise EvenhandError(f"{runs[name].path / 'features.npz'} is damaged: its arrays do not fit each other.")
        features[name] = arrays["features"][rows]
    targets = arrays["targets"][rows]
    first = next(iter(runs.values())).predictions
    if first is None or targets.min() < 0 or targets.max() >= first.num_classes:
        raise EvenhandError(f"{runs[name].path / 'features.npz'} does not belong to the predictions.npz beside it.")
    figure = figures.feature_embeddings(features, targets, first.class_names, first.train_counts.tolist())
    number = min(len(common), figures.embedding.MOST_POINTS)
    alt = f"t-SNE of the features of {number:,} test images with {', '.join(runs)}, coloured by class."
    return picture(figure, alt, points=True)


def _bars(figure: Figure, texts: Sequence[str]) -> Hover:
    return [(bar, [text]) for bar, text in zip(figure.axes[-1].patches, texts, strict=False)]


def _hovering(figure: Figure, alt: str, prefix: str, hover: Hover, classes: int) -> Markup:
    if classes > MOST_NAMED:
        return picture(figure, alt, points=classes > MOST_DRAWN)
    return inline(figure, alt, prefix, hover)
