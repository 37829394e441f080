"""What several seeds say about each test image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.predictions import Predictions


@dataclass(frozen=True, eq=False)
class JudgedImages:
    """The test images of several seeds together, by id."""

    ids: NDArray[np.str_]
    targets: NDArray[np.int64]
    right: NDArray[np.float64]
    """(N,): of the seeds that an image was tested with, the share that was right."""
    groups: NDArray[np.str_] | None


def correct_by_image(seeds: Sequence[Predictions]) -> JudgedImages:
    """Return how often each image was classified rightly; seeds may have test images of their own.

    Args:
        seeds: predictions of one objective, one for each seed.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.by_image import correct_by_image
        >>> from evenhand.metrics.predictions import Predictions
        >>> def seed(ids, logits):
        ...     names, counts = ("cat", "dog"), np.array([9, 9])
        ...     return Predictions(np.array(logits, np.float32), np.array([0, 1]), np.array(ids), names, counts)
        >>> judged = correct_by_image([seed(["a", "b"], [[1, 0], [0, 1]]), seed(["c", "b"], [[1, 0], [1, 0]])])
        >>> judged.ids.tolist(), judged.right.tolist()
        (['a', 'b', 'c'], [1.0, 0.5, 1.0])
    """
    ids, first, place = np.unique(np.concatenate([each.ids for each in seeds]), return_index=True, return_inverse=True)
    targets = np.concatenate([each.targets for each in seeds])
    right = np.concatenate([each.predicted() == each.targets for each in seeds])
    grouped = [each.groups for each in seeds if each.groups is not None]
    groups = np.concatenate(grouped)[first] if len(grouped) == len(seeds) else None
    return JudgedImages(ids, targets[first], np.bincount(place, right) / np.bincount(place), groups)
