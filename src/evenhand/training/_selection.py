"""Which epoch's weights a run keeps, told from its history alone."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from evenhand.metrics.classification import Confusion
from evenhand.runs.schemas import EpochRow

Rule = Literal["best", "late", "last"]
ERROR = "val_balanced_accuracy_error"
"""The column of the history that `late` goes by."""


def kept_row(history: Sequence[EpochRow], rule: Rule) -> EpochRow:
    """Return the epoch whose weights are kept.

    A handful of validation images is noisy, and the best of many epochs by them is then an early one by chance, before
    the learning rate has come down. `late` takes the latest epoch that is within one standard error of the best one.

    Args:
        history: of one epoch or more.
        rule: `best` or `late` on validation, or `last`.

    Example:
        >>> from evenhand.training._selection import kept_row
        >>> history = [
        ...     {"epoch": epoch, "val_balanced_accuracy": share, "val_balanced_accuracy_error": 0.02}
        ...     for epoch, share in enumerate((0.70, 0.91, 0.90, 0.85), start=1)
        ... ]
        >>> [kept_row(history, rule)["epoch"] for rule in ("best", "late", "last")]
        [2, 3, 4]
    """
    if rule == "last":
        return history[-1]
    best = max(history, key=lambda row: row["val_balanced_accuracy"])
    if rule == "best":
        return best
    least = best["val_balanced_accuracy"] - best[ERROR]
    return next(row for row in reversed(history) if row["val_balanced_accuracy"] >= least)


def selection(history: Sequence[EpochRow], rule: Rule) -> dict[str, Any]:
    """Say which epoch was taken, for a summary, and which one plain accuracy would have picked."""
    kept = kept_row(history, rule)
    told: dict[str, Any] = {"rule": rule, "epoch": int(kept["epoch"])}
    if rule == "last":
        return told
    by_accuracy = max(history, key=lambda row: row["val_accuracy"])
    return {
        **told,
        "val_balanced_accuracy": kept["val_balanced_accuracy"],
        "epoch_by_accuracy": int(by_accuracy["epoch"]),
    }


def balanced_accuracy_error(confusion: Confusion) -> float:
    r"""Return the standard error of balanced accuracy over images.

    .. math:: \frac1K \sqrt{\sum_k \frac{r_k (1 - r_k)}{n_k}}

    with :math:`r_k` a recall in which one image is right and one wrong beyond those seen, so that a class of a few
    images that all fell alike is not taken for certain.
    """
    counts = confusion.sum(axis=1)
    tested = counts > 0
    hits, counts = confusion.diagonal()[tested], counts[tested]
    recall = (hits + 1) / (counts + 2)
    return float(np.sqrt((recall * (1 - recall) / counts).sum()) / len(counts))
