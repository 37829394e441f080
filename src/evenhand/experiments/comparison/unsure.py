"""How often the recommended objective of a comparison would be unsure."""

import shlex
import textwrap
from pathlib import Path

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.runs.comparison import Comparison
from evenhand.runs.run import Run
from evenhand.runs.unsure import new_test_folds
from evenhand.statistics.conformal import images_needed, leave_one_out_sets

COVERAGE = 0.9
WIDTH = 100
"""Characters of a line."""


def unsure_sentence(comparison: Comparison, folder: Path | str, coverage: float = COVERAGE) -> str:
    """Return how often the prediction sets of the recommended objective hold more than one class, in lines.

    Each test image is predicted by its own run, and calibrated on the other test images of all folds, which `predict`
    pools too. Without rotating test sets, the text is empty.

    Args:
        comparison: of finished runs.
        folder: of the comparison.
        coverage: of each class.
    """
    runs = [Run(run.folder) for run in comparison.runs if run.objective == comparison.recommended]
    try:
        folds, _ = new_test_folds(runs)
        if len(folds) < 2:
            return ""  # no folds to calibrate on
        p = np.concatenate([np.exp(own.log_probabilities()).astype(np.float32).astype(np.float64) for own in folds])
    except EvenhandError:  # predictions of a run that failed, which is reported first
        return ""
    targets, names = np.concatenate([own.targets for own in folds]), folds[0].class_names
    counts, needed = np.bincount(targets, minlength=len(names)), images_needed(coverage)
    covering = f"Unsure: to cover each class in {coverage:.0%} of its images"
    if (counts < needed).any():
        few = some([f"{name} ({n})" for name, n in zip(names, counts, strict=True) if n < needed])
        return _filled(f"{covering}, {needed} test images of each are needed; there are too few of {few}.")
    sets = leave_one_out_sets(p, targets, coverage)
    sets[np.arange(len(sets)), p.argmax(1)] = True  # as in predict
    sizes = sets.sum(1)
    command = shlex.join(["evenhand", "predict", str(folder), "IMAGES", "--coverage", f"{coverage:g}"])
    sentence = (
        f"{covering}, {comparison.recommended} would name more than one class for {np.mean(sizes > 1):.1%} of images "
        f"(all classes: {np.mean(sizes == len(names)):.1%}):"
    )
    return f"{_filled(sentence)}\n  {command}"


def _filled(sentence: str) -> str:
    """Wrap a sentence as wide as the tables of a comparison, never inside the name of an objective."""
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
