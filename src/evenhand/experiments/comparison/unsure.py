"""How often the recommended objective of a comparison would be unsure."""

import shlex
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.runs.comparison import Comparison
from evenhand.runs.held_out import as_used, one_per_group
from evenhand.runs.run import Run
from evenhand.statistics.conformal import images_needed, leave_one_out_sets

COVERAGE = 0.9


def unsure_sentence(comparison: Comparison, folder: Path | str, coverage: float = COVERAGE) -> str:
    """Return how often the prediction sets of the recommended objective hold more than one class.

    Each test image is predicted by its own run, and calibrated on the other test images of that run. Without
    rotating test sets, or where no class has enough images, the text is empty.

    Args:
        comparison: of finished runs.
        folder: of the comparison.
        coverage: of each class.
    """
    runs = [Run(run.folder) for run in comparison.runs if run.objective == comparison.recommended]
    unsure, full = [], []
    try:
        if len({run.predictions.ids.tobytes() for run in runs}) < 2:
            return ""  # no folds to calibrate on
        for run in runs:
            own = one_per_group(as_used(run, run.predictions))
            if np.bincount(own.targets).max() <= images_needed(coverage):
                return ""
            p = np.exp(own.log_probabilities()).astype(np.float32).astype(np.float64)
            sizes = leave_one_out_sets(p, own.targets, coverage).sum(1)
            unsure.append(float((sizes > 1).mean()))
            full.append(float((sizes == own.num_classes).mean()))
    except EvenhandError:  # predictions of a run that failed, which is reported first
        return ""
    command = shlex.join(["evenhand", "predict", str(folder), "IMAGES", "--coverage", f"{coverage:g}"])
    return (
        f"Unsure: to cover each class in {coverage:.0%} of its images, {comparison.recommended} would name more than "
        f"one class for {np.mean(unsure):.1%} of images (all classes: {np.mean(full):.1%}): {command}"
    )
