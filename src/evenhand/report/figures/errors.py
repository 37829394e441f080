"""The most confident errors, by their likely cause."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import Confusion
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.report.figures.given import Folder
from evenhand.report.figures.style import INK, QUIET, new_figure, show_picture, wrap
from evenhand.runs.run import Run

KINDS = {"few": "class has few training images", "similar": "visually similar class", "other": "neither"}
NEIGHBOURS = 3
"""The most similar classes of a class that count as similar."""
MOST_PER_PAIR = 2
"""Images shown of one confusion."""
TILE = 1.45


def error_study(
    predictions: Predictions | Folder,
    images: NDArray[np.uint8] | None = None,
    ids: Sequence[str] = (),
    *,
    most: int = 6,
) -> Figure:
    """Draw the most confident errors: those of rare classes, and those between similar classes.

    :func:`sort_errors` assigns the cause. At most two images show the same confusion.

    Args:
        predictions: of one model; or a run or its folder, whose images are drawn.
        images: for predictions, some of the images, (M, H, W, 1) or (M, H, W, 3), such as the `thumbnails` of a run.
        ids: their ids, (M,); some of them should be errors.
        most: images per row.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.predictions import Predictions
        >>> from evenhand.report.figures import error_study
        >>> logits = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 0]]
        >>> names, ids = ("cat", "dog", "owl"), np.array(list("abcde"))
        >>> mine = Predictions(logits, np.array([0, 0, 1, 1, 2]), ids, names, np.array([500, 90, 9]))
        >>> figure = error_study(mine, np.zeros((1, 8, 8, 3), np.uint8), ["e"])
        >>> figure.texts[0].get_text()
        '(a) class has few training images: 1 of 1 error'
    """
    if not isinstance(predictions, Predictions):
        run = Run(Path(predictions))
        predictions, images, ids = run.predictions, run.thumbnails.images, run.thumbnails.ids.tolist()
    if images is None:
        raise EvenhandError("Predictions hold no images; give images and their ids too, or a run.")
    kinds = sort_errors(predictions)
    errors = int((kinds != "").sum())
    row_of = {name: row for row, name in enumerate(predictions.ids.tolist())}
    unknown = [name for name in ids if str(name) not in row_of]
    if unknown:
        raise EvenhandError(f"There is no prediction for the image {str(unknown[0])!r}.")
    pictured = np.array([row_of[str(name)] for name in ids], np.int64)
    confidence = np.exp(predictions.log_probabilities().max(axis=1))[pictured]
    shown = {
        kind: _varied(predictions, pictured, confidence, kinds[pictured] == kind)[:most] for kind in ("few", "similar")
    }
    captions = {
        kind: [_caption(predictions, int(pictured[place]), confidence[place]) for place in places]
        for kind, places in shown.items()
    }
    heights = {kind: _height(texts) for kind, texts in captions.items()}
    figure = new_figure(0.2 + TILE * most, 0.4 + sum(heights.values()), layout=None)
    width, height = figure.get_size_inches()
    top = height
    for letter, (kind, places) in zip("ab", shown.items(), strict=True):
        number = int((kinds == kind).sum())
        title = f"({letter}) {KINDS[kind]}: {number:,} of {errors:,} error{'s' * (errors != 1)}"
        figure.text(0.1 / width, (top - 0.08) / height, title, va="top", fontsize=10, color=INK)
        for column, (place, caption) in enumerate(zip(places, captions[kind], strict=True)):
            left, bottom = 0.1 + TILE * column, top - 0.35 - TILE + 0.1
            size = (TILE - 0.1) / width, (TILE - 0.1) / height
            axes = figure.add_axes((left / width, bottom / height, *size), anchor="NW")
            show_picture(axes, images[place])
            figure.text(left / width, (bottom - 0.05) / height, caption, va="top", fontsize=7.5, color=INK)
        if not places:
            note = "no image of such an error" if number else "none"
            figure.text(0.1 / width, (top - 0.36) / height, note, va="top", fontsize=8, color=QUIET)
        top -= heights[kind]
    others = f"neither: {int((kinds == 'other').sum()):,} of {errors:,}"
    figure.text(0.1 / width, (top - 0.08) / height, others, va="top", fontsize=8, color=QUIET)
    return figure


def _height(captions: Sequence[str]) -> float:
    """Return the height of a row of images with these captions and a title, in inches."""
    lines = max((caption.count("\n") + 1 for caption in captions), default=0)
    return 0.4 + TILE + 0.13 * lines if lines else 0.65


def sort_errors(predictions: Predictions) -> NDArray[np.str_]:
    """Return the likely cause of each error: `similar`, `few`, `other`, or empty text for a correct prediction.

    - `similar`: its class and the predicted one are similar: each is among the three classes (at most half of the
      others) most similar to the other by :func:`class_similarity`, and each was predicted as the other at least once.
    - `few`: not that, and its class is few-shot (see :func:`evenhand.metrics.shot_groups.find_shot_groups`).
    - `other`: neither.

    `similar` is checked first: a class that is only rare loses images to larger classes, but gains none from them.

    Returns:
        (N,), text.
    """
    predicted, targets = predictions.predicted(), predictions.targets
    alike = _neighbours(predictions.confusion)[targets, predicted]
    few = np.isin(targets, find_shot_groups(predictions.train_counts).few)
    kinds: NDArray[np.str_] = np.where(alike, "similar", np.where(few, "few", "other"))
    kinds[predicted == targets] = ""
    return kinds


def class_similarity(confusion: Confusion) -> NDArray[np.float64]:
    r"""Return the similarity of classes to a model, (K, K), symmetric, independent of its bias to larger classes.

    .. math:: \eta_{ij} = \sqrt{\frac{N_{ij}\,N_{ji}}{N_{ii}\,N_{jj}}}

    This is the similarity of Luce's choice model (1963). If the odds of predicting i as j are a similarity times a bias
    to j, the biases cancel: a rare class that loses half of its images to a large class, and gains none from it, is not
    similar to it. 0.5 is added to every count to avoid division by 0.

    Example:
        >>> import numpy as np
        >>> from evenhand.report.figures import class_similarity
        >>> even, leaning = np.array([[80, 20], [20, 80]]), np.array([[94, 6], [50, 50]])
        >>> [float(class_similarity(counts)[0, 1].round(2)) for counts in (even, leaning)]
        [0.25, 0.26]
    """
    counts = confusion + 0.5
    diagonal = counts.diagonal()
    similarity: NDArray[np.float64] = np.sqrt(counts * counts.T / np.outer(diagonal, diagonal))
    return similarity


def _neighbours(confusion: Confusion) -> NDArray[np.bool_]:
    """Return which pairs of classes are similar, (K, K), symmetric; see :func:`sort_errors`."""
    most = min(NEIGHBOURS, (len(confusion) - 1) // 2)
    similarity = class_similarity(confusion)
    np.fill_diagonal(similarity, -1)
    nearest = np.argsort(-similarity, axis=1, kind="stable")[:, :most]
    near = np.zeros(confusion.shape, bool)
    np.put_along_axis(near, nearest, True, axis=1)
    mistaken = confusion > 0
    alike: NDArray[np.bool_] = near & near.T & mistaken & mistaken.T
    return alike


def _varied(
    predictions: Predictions,
    pictured: NDArray[np.int64],
    confidence: NDArray[np.float64],
    selected: NDArray[np.bool_],
) -> list[int]:
    """Return indices of images, the most confident error first, at most two per confusion."""
    predicted = predictions.predicted()[pictured]
    shown: Counter[tuple[int, int]] = Counter()
    places = []
    for place in np.argsort(-confidence, kind="stable").tolist():
        pair = int(predictions.targets[pictured[place]]), int(predicted[place])
        if selected[place] and shown[pair] < MOST_PER_PAIR:
            shown[pair] += 1
            places.append(place)
    return places


def _caption(predictions: Predictions, row: int, confidence: float) -> str:
    truth, predicted = int(predictions.targets[row]), int(predictions.predicted()[row])
    names, inches, size = predictions.class_names, TILE - 0.12, 7.5
    return "\n".join(
        [
            wrap(f"true: {names[truth]}", inches, size, lines=3),
            wrap(f"{predictions.train_counts[truth]:,} in training", inches, size),
            wrap(f"predicted: {names[predicted]}", inches, size, lines=3),
            f"confidence {confidence:.1%}",
        ]
    )
