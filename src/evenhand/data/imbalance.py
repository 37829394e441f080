"""Imbalance profiles of a training set, as in the paper, and measures of imbalance.

The profiles are those of Cao et al., *Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss* (2019).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.seeds import stream
from evenhand.core.spec import parse
from evenhand.core.text import some
from evenhand.metrics.shot_groups import nearly_balanced

Counts = NDArray[np.int64]
Kind = Literal["none", "exp", "step"]


def describe_imbalance(spec: str) -> str:
    """Return a spec in words.

    Example:
        >>> from evenhand.data.imbalance import describe_imbalance
        >>> describe_imbalance("exp:50"), describe_imbalance("none")
        ('imbalance exp:50', 'classes as they are')
    """
    return "classes as they are" if spec == "none" else f"imbalance {spec}"


@dataclass(frozen=True)
class Imbalance:
    """How many training images the classes keep: `exp:RATIO` (long-tailed), `step:RATIO` or `none`."""

    kind: Kind = "none"
    ratio: float = 1.0

    @classmethod
    def parse(cls, text: str) -> "Imbalance":
        """Read a spec.

        Example:
            >>> from evenhand.data.imbalance import Imbalance
            >>> Imbalance.parse("exp:100")
            Imbalance(kind='exp', ratio=100.0)
        """
        expected = f"expected exp:RATIO, step:RATIO or none, got {text!r}"
        parts = parse(text)
        if len(parts) != 1 or parts[0].options or parts[0].name not in ("exp", "step", "none"):
            raise EvenhandError(f"Unknown imbalance: {expected}.")
        name, value = parts[0].name, parts[0].value
        if name == "none":
            if value is not None:
                raise EvenhandError(f"'none' takes no ratio: {expected}.")
            return cls()
        try:
            ratio = float(value or "")
        except ValueError:
            raise EvenhandError(f"The imbalance ratio must be a number: {expected}.") from None
        if not 1 <= ratio < math.inf:
            raise EvenhandError(f"The imbalance ratio must be 1 or more: {expected}.")
        return cls("exp" if name == "exp" else "step", ratio)

    def __str__(self) -> str:
        return "none" if self.kind == "none" else f"{self.kind}:{self.ratio:g}"

    def profile(self, most: int, num_classes: int) -> Counts:
        """Return the counts from the largest class to the smallest, (K,), if the largest keeps `most` images.

        Example:
            >>> from evenhand.data.imbalance import Imbalance
            >>> Imbalance("exp", 100).profile(5000, 10)
            array([5000, 2997, 1796, 1077,  645,  387,  232,  139,   83,   50])
            >>> Imbalance("step", 10).profile(5000, 4)
            array([5000, 5000,  500,  500])
        """
        if self.kind == "exp":
            last = max(num_classes - 1, 1)
            return np.array([int(most * (1 / self.ratio) ** (k / last)) for k in range(num_classes)])
        kept = num_classes // 2 if self.kind == "step" else num_classes
        return np.array([most] * kept + [int(most / self.ratio)] * (num_classes - kept))

    def counts(self, available: Counts, order: Counts, class_names: Sequence[str], *, fraction: float = 1.0) -> Counts:
        """Return how many of the available images each class keeps, (K,).

        The largest class keeps as many as the profile allows given the images of every other class. A profile that
        would leave a class empty is an error.

        Args:
            available: training images of each class, (K,).
            order: the classes from the largest to the smallest of the profile, (K,).
            class_names: to name the class that would be left empty.
            fraction: of what the largest class could keep; the ratio is unchanged. With `none`: of every class.

        Example:
            >>> import numpy as np
            >>> from evenhand.data.imbalance import Imbalance
            >>> Imbalance("exp", 100).counts(np.array([6000] * 3), np.arange(3), "abc", fraction=0.25)
            array([1500,  150,   15])
        """
        if self.kind == "none":
            return available if fraction == 1 else np.maximum((available * fraction).astype(np.int64), 1)
        low, high = 0, int(available[order[0]])
        while low < high:
            middle = (low + high + 1) // 2
            fits = (self.profile(middle, len(order)) <= available[order]).all()
            low, high = (middle, high) if fits else (low, middle - 1)
        low = int(low * fraction)
        kept = np.empty_like(available)
        kept[order] = self.profile(low, len(order))
        if (kept == 0).any():
            empty = [name for name, count in zip(class_names, kept, strict=True) if count == 0]
            raise EvenhandError(
                f"{self} would leave {some(empty)} without training images "
                f"(the largest class can keep {low}); choose a smaller ratio."
            )
        return kept


def class_order(order: str, class_names: Sequence[str], seed: int) -> Counts:
    """Return the classes from most to fewest images kept, (K,).

    Args:
        order: `"identity"` (as the source lists them), `"shuffle"` (by the seed), or all class names joined by `,`.
        class_names: (K,).
        seed: of the shuffle.
    """
    if order == "identity":
        return np.arange(len(class_names))
    if order == "shuffle":
        return stream(seed, "class-order").permutation(len(class_names))
    wanted = [name.strip() for name in order.split(",")]
    unknown = [name for name in wanted if name not in class_names]
    if unknown or len(wanted) != len(class_names) or len(set(wanted)) != len(wanted):
        problem = f"{some(unknown)} is not one of them" if unknown else f"it names {len(set(wanted))}"
        raise EvenhandError(
            f"The class order must be 'identity', 'shuffle' or all {len(class_names)} class names once: {problem}."
        )
    return np.array([list(class_names).index(name) for name in wanted])


def subset(labels: NDArray[np.int64], rows: NDArray[np.int64], keep: Counts, seed: int) -> NDArray[np.int64]:
    """Select training rows at random, as many of each class as it keeps.

    With one seed a smaller subset is contained in a larger one, so two ratios differ only by the removed rows.

    Args:
        labels: of all samples, (N,).
        rows: the training rows.
        keep: images to keep of each class, (K,).
        seed: of the stream `subset`.

    Returns:
        The selected rows, in order.
    """
    kept = [stream(seed, "subset", k).permutation(rows[labels[rows] == k])[:count] for k, count in enumerate(keep)]
    return np.sort(np.concatenate(kept))


def imbalance_ratio(counts: Counts) -> float:
    """Return the largest count divided by the smallest, over classes with images.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.imbalance import imbalance_ratio
        >>> imbalance_ratio(np.array([500, 0, 20]))
        25.0
    """
    present = counts[counts > 0]
    return float(present.max() / present.min())


def effective_number(counts: Counts, beta: float = 0.999) -> NDArray[np.float64]:
    """Return the effective number of samples of each class, (K,): (1 - beta^n) / (1 - beta).

    From Cui et al., *Class-Balanced Loss Based on Effective Number of Samples* (2019): each further image of a
    class adds less information.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.imbalance import effective_number
        >>> effective_number(np.array([1, 100, 10_000])).round(1)
        array([   1. ,   95.2, 1000. ])
    """
    return np.asarray(-np.expm1(counts * np.log(beta)) / (1 - beta))


def resembles(counts: Counts) -> Imbalance | None:
    """Return the profile closest to the counts, or None if they are far from both.

    The distance is the mean absolute difference of the logarithms; far is more than a factor of 1.5 on average. The
    ratio has two digits.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.imbalance import resembles
        >>> str(resembles(np.array([970, 31, 308, 99, 10])))
        'exp:97'
        >>> str(resembles(np.array([100, 98, 11, 10])))
        'step:10'
    """
    ordered = np.sort(counts[counts > 0])[::-1]
    ratio = imbalance_ratio(counts)
    if nearly_balanced(counts) or len(ordered) < 3:
        return Imbalance()
    kinds: tuple[Kind, ...] = ("exp", "step")
    profiles = [Imbalance(kind, float(f"{ratio:.2g}")) for kind in kinds]
    distances = [
        np.abs(np.log(ordered / np.maximum(each.profile(int(ordered[0]), len(ordered)), 1))).mean() for each in profiles
    ]
    best = int(np.argmin(distances))
    return profiles[best] if distances[best] <= math.log(1.5) else None
