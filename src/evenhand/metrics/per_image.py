"""Results of each test image over several seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.predictions import Predictions


@dataclass(frozen=True, eq=False)
class PerImageResults:
    """The test images of several seeds, by id."""

    ids: NDArray[np.str_]
    targets: NDArray[np.int64]
    correct: NDArray[np.float64]
    """(N,): the fraction of seeds that classified each image correctly, among those that tested it."""
    groups: NDArray[np.str_] | None


def correct_per_image(seeds: Sequence[Predictions]) -> PerImageResults:
    """Return how often each image was classified correctly; seeds may have different test images.

    Args:
        seeds: predictions of one objective, one per seed.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.per_image import correct_per_image
        >>> from evenhand.metrics.predictions import Predictions
        >>> def seed(ids, logits):
        ...     names, counts = ("cat", "dog"), np.array([9, 9])
        ...     return Predictions(np.array(logits, np.float32), np.array([0, 1]), np.array(ids), names, counts)
        >>> results = correct_per_image([seed(["a", "b"], [[1, 0], [0, 1]]), seed(["c", "b"], [[1, 0], [1, 0]])])
        >>> results.ids.tolist(), results.correct.tolist()
        (['a', 'b', 'c'], [1.0, 0.5, 1.0])
    """
    ids, first, place = np.unique(np.concatenate([each.ids for each in seeds]), return_index=True, return_inverse=True)
    targets = np.concatenate([each.targets for each in seeds])
    correct = np.concatenate([each.correct() for each in seeds])
    grouped = [each.groups for each in seeds if each.groups is not None]
    groups = np.concatenate(grouped)[first] if len(grouped) == len(seeds) else None
    return PerImageResults(ids, targets[first], np.bincount(place, correct) / np.bincount(place), groups)
