"""How much of a model's errors is a shift of its classes against each other, which an offset of each logit would mend.

The offsets with the best balanced accuracy are searched on one half of the test images and evaluated on the other, both
ways round. This uses test labels: it explains a result and is no way to choose a model.

    python docs/results/long-tailed/offset.py RUN...
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.runs import Run

STEPS = np.linspace(-2, 2, 17)
ROUNDS = 6


def reached(logits: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """Return balanced accuracy."""
    return balanced_accuracy(confusion_matrix(targets, logits.argmax(1), logits.shape[1]))


def best_offset(logits: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Search what to add to the logits of each class, one class at a time; of equals the smallest step."""
    offset = np.zeros(logits.shape[1])
    for _ in range(ROUNDS):
        for k in range(len(offset)):
            one = np.eye(len(offset))[k]
            offset[k] += max(STEPS, key=lambda step: (reached(logits + offset + step * one, targets), -abs(step)))
    return offset


def main() -> None:
    """Print balanced accuracy on the other half, without and with offsets."""
    for folder in sys.argv[1:]:
        found = Run(Path(folder)).predictions
        logits, half = found.logits.astype(np.float64), np.random.default_rng(0).random(len(found)) < 0.5
        plain, moved = [], []
        for fitted, held_out in ((half, ~half), (~half, half)):
            offset = best_offset(logits[fitted], found.targets[fitted])
            plain.append(reached(logits[held_out], found.targets[held_out]))
            moved.append(reached(logits[held_out] + offset, found.targets[held_out]))
        print(f"{Path(folder).name}: {np.mean(plain):.1%}, with offsets {np.mean(moved):.1%}")


if __name__ == "__main__":
    main()
