"""Compare predictions of held-out images with what a run says elsewhere, to detect targets or counts that changed."""

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.metrics.classification import balanced_accuracy
from evenhand.metrics.predictions import Predictions
from evenhand.runs.filenames import PREDICTIONS, SUMMARY
from evenhand.runs.schemas import HeldOutCounts


def check_counts(predictions: Predictions, test: Predictions | None, *, fitted: bool = True) -> None:
    """Refuse predictions that are not finite, or have other training counts than those of the test images.

    Args:
        predictions: of validation or calibration images.
        test: predictions of the test images; None: they cannot be read.
        fitted: compare the counts of the images that the network was fitted to as well.
    """
    predictions.check_finite()
    for name in ("train_counts", "fitted_counts")[: 1 + fitted] if test is not None else ():
        own, other = getattr(predictions, name), getattr(test, name)
        if own is not None and other is not None and not np.array_equal(own, other):
            raise EvenhandError(f"its {name} differ from those of {PREDICTIONS}.")


def check_score(held_out: Predictions, stored: HeldOutCounts | None) -> None:
    """Refuse targets that contradict the counts in the summary."""
    if stored is None:
        return
    if list(stored.images) != held_out.confusion.sum(1).tolist():
        raise EvenhandError(f"its images by class differ from those in {SUMMARY}; it was changed.")
    if list(stored.correct) != held_out.confusion.diagonal().tolist():
        raise EvenhandError(f"its correct answers by class differ from those in {SUMMARY}; it was changed.")


def check_selected_score(validation: Predictions, stored: float | None) -> None:
    """Refuse targets that contradict the balanced accuracy of the selected epoch; rounding may move a few images."""
    found = balanced_accuracy(validation.confusion)
    if stored is not None and abs(stored - found) > 0.05:
        raise EvenhandError(
            f"its balanced accuracy is {found:.1%}, but {stored:.1%} in {SUMMARY}; its targets were changed."
        )
