"""Many-shot, medium-shot and few-shot classes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MANY, FEW = 100, 20
"""More is many-shot, fewer is few-shot, as is usual in the long-tail literature."""
NEARLY_BALANCED = 1.5
"""Classes whose largest has less than so many times the images of the smallest are nearly balanced."""


@dataclass(frozen=True)
class ShotGroups:
    """The classes grouped by training images."""

    many: tuple[int, ...]
    medium: tuple[int, ...]
    few: tuple[int, ...]
    rule: str
    """How they were grouped, in words."""

    def of(self, k: int) -> str:
        """Return the name of the group of class k."""
        return "many" if k in self.many else "few" if k in self.few else "medium"


def nearly_balanced(counts: NDArray[np.int64]) -> bool:
    """Return whether the largest class has less than 1.5 times the images of the smallest that has any.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.shot_groups import nearly_balanced
        >>> nearly_balanced(np.array([146, 139, 142])), nearly_balanced(np.array([150, 100, 120]))
        (True, False)
    """
    present = counts[counts > 0]
    return bool(present.max() < NEARLY_BALANCED * present.min())


def find_shot_groups(counts: NDArray[np.int64]) -> ShotGroups:
    """Group the classes into many-shot (> 100 training images), medium-shot (20-100) and few-shot (< 20).

    If one of the three would be empty, the classes are split into thirds by count instead, and equal counts stay
    together. If classes are nearly balanced, every class is medium.

    Example:
        >>> import numpy as np
        >>> from evenhand.metrics.shot_groups import find_shot_groups
        >>> find_shot_groups(np.array([500, 90, 12]))
        ShotGroups(many=(0,), medium=(1,), few=(2,), rule='more than 100, 20 to 100, fewer than 20 training images')
        >>> find_shot_groups(np.array([5000, 1500, 500])).rule
        'thirds of the classes by training images'
    """
    many, few = counts > MANY, counts < FEW
    rule = f"more than {MANY}, {FEW} to {MANY}, fewer than {FEW} training images"
    if not (many.any() and few.any() and (~many & ~few).any()):
        third = max(len(counts) // 3, 1)
        lower, upper = np.sort(counts)[[third - 1, -third]]
        rule = "thirds of the classes by training images"
        if lower == upper == counts.max():
            many, few = counts == lower, counts < lower
        else:
            few = counts <= lower
            many = (counts >= upper) & ~few
        if counts.min() == counts.max() or (counts.min() > 0 and nearly_balanced(counts)):
            rule = (
                f"all classes together: the largest has less than {NEARLY_BALANCED:g} times the images of the smallest"
            )
            many = few = np.zeros(len(counts), bool)
    many_shot, medium_shot, few_shot = (tuple(map(int, np.flatnonzero(group))) for group in (many, ~many & ~few, few))
    return ShotGroups(many_shot, medium_shot, few_shot, rule)
