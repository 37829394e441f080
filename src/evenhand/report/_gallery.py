"""The misclassified test images with the highest confidence."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import Predictions
from evenhand.runs.run import Run

LARGEST_PNG = 40
"""Pixels; larger pictures are JPEG, a fifth of the bytes for photographs."""


@dataclass(frozen=True)
class Picture:
    """A test image of a class, and what it was predicted as."""

    address: str
    """The picture as a `data:` URL."""
    small: bool
    """Whether it is shown with visible pixels."""
    predicted: str
    correct: bool
    confidence: float


@dataclass(frozen=True)
class Gallery:
    """The misclassified images of one objective, or why there are none."""

    errors: "list[ConfidentError]"
    total: int
    """All its errors, with or without a picture."""
    problem: str = ""


@dataclass(frozen=True)
class ConfidentError:
    """A misclassified image."""

    address: str
    """The picture as a `data:` URL."""
    small: bool
    """Whether it is shown with visible pixels."""
    actual: str
    predicted: str
    confidence: float
    text: str
    """Its details, one per line."""


def most_confident_errors(run: Run, most: int) -> list[ConfidentError]:
    """Return the errors of a run that have a picture, the most confident first, and one per group.

    Raises:
        EvenhandError: there are no pictures, or they are damaged or not of these predictions.
    """
    predictions, kept = run.predictions, run.thumbnails
    rows = kept.index
    shown = predictions.log_probabilities()[rows]
    predicted, confidence = shown.argmax(axis=1), np.exp(shown.max(axis=1))
    wrong = np.flatnonzero(predicted != predictions.targets[rows])
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")]
    if predictions.groups is not None:  # or the frames of one video would fill the gallery
        _, firsts = np.unique(predictions.groups[rows[chosen]], return_index=True)
        chosen = chosen[np.sort(firsts)]
    return [_error(kept.images[place], int(rows[place]), shown[place], predictions) for place in chosen[:most]]


def error_gallery(run: Run, most: int) -> Gallery:
    """Return the most confident errors of a run, or why they cannot be shown."""
    total = int((~run.predictions.correct()).sum())
    try:
        return Gallery(most_confident_errors(run, most), total)
    except EvenhandError as error:
        return Gallery([], total, str(error))


def class_pictures(runs: Sequence[Run], classes: Sequence[int], most: int) -> dict[int, list[Picture]]:
    """Return pictures of classes: their most confident errors, an image once, then correctly classified ones.

    Args:
        runs: of one objective, all with thumbnails; those of later runs are used where the first has too few errors.
        classes: their indices.
        most: pictures per class.
    """
    found: dict[int, list[Picture]] = {k: [] for k in classes}
    shown: set[str] = set()
    for correct in (False, True):
        for run in runs:
            predictions, kept = run.predictions, run.thumbnails
            log_probabilities = predictions.log_probabilities()[kept.index]
            predicted, confidence = log_probabilities.argmax(axis=1), np.exp(log_probabilities.max(axis=1))
            targets, ids = predictions.targets[kept.index], kept.ids.tolist()
            for k in classes:
                own = np.flatnonzero((targets == k) & ((predicted == k) == correct))
                for place in own[np.argsort(-confidence[own], kind="stable")].tolist():
                    if len(found[k]) < most and ids[place] not in shown:
                        shown.add(ids[place])
                        image = kept.images[place]
                        name = predictions.class_names[int(predicted[place])]
                        found[k].append(
                            Picture(picture_address(image), _is_small(image), name, correct, float(confidence[place]))
                        )
    return found


def _is_small(image: NDArray[np.uint8]) -> bool:
    return bool(max(image.shape[:2]) <= LARGEST_PNG)


def _error(
    image: NDArray[np.uint8], row: int, log_probabilities: NDArray[np.float64], of: Predictions
) -> ConfidentError:
    order = np.argsort(-log_probabilities, kind="stable")[:3]
    actual = int(of.targets[row])
    listed = [*order, *([] if actual in order else [actual])]
    count = int(of.train_counts[actual])
    lines = [
        f"true: {of.class_names[actual]} ({count:,} training image{'s' * (count != 1)})",
        *(f"{np.exp(log_probabilities[k]):.1%} {of.class_names[k]}" for k in listed),
        str(of.ids[row]),
    ]
    return ConfidentError(
        address=picture_address(image),
        small=_is_small(image),
        actual=of.class_names[actual],
        predicted=of.class_names[int(order[0])],
        confidence=float(np.exp(log_probabilities[order[0]])),
        text="\n".join(" ".join(line.split()) for line in lines),
    )


def picture_address(image: NDArray[np.uint8]) -> str:
    """Return an image, (H, W, C), as a `data:` URL."""
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    if _is_small(image):
        picture.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        picture.save(file, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
