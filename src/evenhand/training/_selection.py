"""Model selection: which epoch's weights a run keeps, from its history."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from evenhand.metrics.classification import Confusion
from evenhand.runs.schemas import EpochRow

Rule = Literal["best", "late", "last"]
ERROR = "val_balanced_accuracy_error"
"""The column of the history that `late` uses."""


def kept_row(history: Sequence[EpochRow], rule: Rule, first: int = 1) -> EpochRow:
    """Return the epoch whose weights are kept.

    With few validation images, the best epoch is often an early one by chance, before the learning rate has decayed.
    `late` selects the latest epoch within one standard error of the best.

    Args:
        history: one row per epoch, not empty.
        rule: `best` or `late` on validation, or `last`.
        first: the first epoch in which all parts of the objective have an effect: earlier ones are of another
            objective, and are considered only while there are no later ones.

    Example:
        >>> from evenhand.training._selection import kept_row
        >>> history = [
        ...     {"epoch": epoch, "val_balanced_accuracy": value, "val_balanced_accuracy_error": 0.02}
        ...     for epoch, value in enumerate((0.70, 0.91, 0.90, 0.85), start=1)
        ... ]
        >>> [kept_row(history, rule)["epoch"] for rule in ("best", "late", "last")]
        [2, 3, 4]
        >>> kept_row(history, "best", first=3)["epoch"]
        3
    """
    history = [row for row in history if row["epoch"] >= first] or history
    if rule == "last":
        return history[-1]
    best = max(history, key=lambda row: row["val_balanced_accuracy"])
    if rule == "best":
        return best
    least = best["val_balanced_accuracy"] - best[ERROR]
    return next(row for row in reversed(history) if row["val_balanced_accuracy"] >= least)


def selection(history: Sequence[EpochRow], rule: Rule, first: int = 1, weights: int | None = None) -> dict[str, Any]:
    """Return the selected epoch for a summary, and the one that plain accuracy would select.

    Args:
        history: one row per epoch, not empty.
        rule: as of :func:`kept_row`.
        first: as of :func:`kept_row`.
        weights: the epoch of the weights that were kept; None: by the rule over all epochs, as old runs kept them.
    """
    own = [row for row in history if row["epoch"] == weights and rule != "last"]
    kept = own[0] if own else kept_row(history, rule)
    selected: dict[str, Any] = {"rule": rule, "epoch": int(kept["epoch"])}
    if rule == "last":
        return selected
    counted = [row for row in history if row["epoch"] >= min(first, kept["epoch"])]
    by_accuracy = max(counted, key=lambda row: row["val_accuracy"])
    return {
        **selected,
        "val_balanced_accuracy": kept["val_balanced_accuracy"],
        "epoch_by_accuracy": int(by_accuracy["epoch"]),
    }


def balanced_accuracy_error(confusion: Confusion) -> float:
    r"""Return the standard error of balanced accuracy over images.

    .. math:: \frac1K \sqrt{\sum_k \frac{r_k (1 - r_k)}{n_k}}

    with :math:`r_k` the recall after adding one correct and one wrong image, so that a class of few images that are all
    correct or all wrong does not get an error of 0.
    """
    counts = confusion.sum(axis=1)
    tested = counts > 0
    hits, counts = confusion.diagonal()[tested], counts[tested]
    recall = (hits + 1) / (counts + 2)
    return float(np.sqrt((recall * (1 - recall) / counts).sum()) / len(counts))
