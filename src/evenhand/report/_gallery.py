"""The pictures that a run was most sure of and wrong about."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.metrics.predictions import Predictions
from evenhand.runs.run import Run

# Larger pictures are kept as JPEG, which photographs need a fifth of the bytes for.
LARGEST_PNG = 40


@dataclass(frozen=True)
class Mistake:
    """One picture, and what was said of it."""

    address: str
    """The picture itself, as a `data:` address."""
    small: bool
    """Whether it has so few pixels that they should be seen."""
    actual: str
    predicted: str
    confidence: float
    text: str
    """All that is known of it, in lines."""


def most_confident_errors(run: Run, most: int) -> list[Mistake]:
    """Return the errors of a run that have a picture, the most confident first; of each group the first alone.

    Raises:
        EvenhandError: there are no pictures, or they are damaged or not of these predictions.
    """
    predictions, kept = run.predictions, run.thumbnails
    images, rows = kept.images, kept.index
    shown = predictions.log_probabilities()[rows]
    predicted, confidence = shown.argmax(axis=1), np.exp(shown.max(axis=1))
    wrong = np.flatnonzero(predicted != predictions.targets[rows])
    chosen = wrong[np.argsort(-confidence[wrong], kind="stable")]
    if predictions.groups is not None:  # one picture a group: the frames of one video would fill everything
        _, firsts = np.unique(predictions.groups[rows[chosen]], return_index=True)
        chosen = chosen[np.sort(firsts)]
    chosen = chosen[:most]
    return [_mistake(images[place], int(rows[place]), shown[place], predictions) for place in chosen]


def _mistake(image: NDArray[np.uint8], row: int, log_probabilities: NDArray[np.float64], of: Predictions) -> Mistake:
    order = np.argsort(-log_probabilities, kind="stable")[:3]
    actual = int(of.targets[row])
    likely = [f"{np.exp(log_probabilities[k]):.1%} {of.class_names[k]}" for k in order]
    if actual not in order:
        likely.append(f"{np.exp(log_probabilities[actual]):.1%} {of.class_names[actual]}")
    count = int(of.train_counts[actual])
    lines = [
        f"is {of.class_names[actual]} ({count:,} training image{'s' * (count != 1)})",
        *likely,
        str(of.ids[row]),
    ]
    return Mistake(
        address=_address(image),
        small=max(image.shape[:2]) <= LARGEST_PNG,
        actual=of.class_names[actual],
        predicted=of.class_names[int(order[0])],
        confidence=float(np.exp(log_probabilities[order[0]])),
        text="\n".join(" ".join(line.split()) for line in lines),
    )


def _address(image: NDArray[np.uint8]) -> str:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    file = io.BytesIO()
    if max(image.shape[:2]) <= LARGEST_PNG:
        picture.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        picture.save(file, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
