"""The misclassified test images with the highest confidence."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.metrics.predictions import Predictions
from evenhand.runs.run import Run

LARGEST_PNG = 40
"""Pixels; larger pictures are JPEG, a fifth of the bytes for photographs."""


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


def _error(
    image: NDArray[np.uint8], row: int, log_probabilities: NDArray[np.float64], of: Predictions
) -> ConfidentError:
    order = np.argsort(-log_probabilities, kind="stable")[:3]
    actual = int(of.targets[row])
    listed = [*order, *([] if actual in order else [actual])]
    count = int(of.train_counts[actual])
    lines = [
        f"actual: {of.class_names[actual]} ({count:,} training image{'s' * (count != 1)})",
        *(f"{np.exp(log_probabilities[k]):.1%} {of.class_names[k]}" for k in listed),
        str(of.ids[row]),
    ]
    return ConfidentError(
        address=picture_address(image),
        small=max(image.shape[:2]) <= LARGEST_PNG,
        actual=of.class_names[actual],
        predicted=of.class_names[int(order[0])],
        confidence=float(np.exp(log_probabilities[order[0]])),
        text="\n".join(" ".join(line.split()) for line in lines),
    )


def picture_address(image: NDArray[np.uint8]) -> str:
    """Return an image, (H, W, C), as a `data:` URL."""
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    if max(image.shape[:2]) <= LARGEST_PNG:
        picture.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        picture.save(file, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
