"""Unsure answers of a run: prediction sets that cover each class, and answers only where they are precise enough.

Both are calibrated on the run's calibration images, which are neither trained on nor used for selection or adjustment.
Prediction sets can also be calibrated on the test images of runs whose test sets rotate, each for its own model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.text import some
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.shot_groups import find_shot_groups
from evenhand.runs.calibration import HOW_TO_CALIBRATE, CalibrationScores, read_calibration, rounded, score
from evenhand.runs.held_out import as_used, one_per_group, take
from evenhand.runs.run import Run
from evenhand.statistics.conformal import Calibration, Sets, images_needed
from evenhand.statistics.intervals import class_recall_intervals, mean_recall_interval
from evenhand.statistics.selective import DELTA, Threshold, precision_thresholds

SHOTS = ("many", "medium", "few")


def check_share(value: float, option: str) -> float:
    """Return the value of an option that is a share above 0 and below 1."""
    if not 0 < value < 1:
        raise EvenhandError(f"{option} takes a number above 0 and below 1, such as 0.9, got {value:.10g}.")
    return value


@dataclass(frozen=True, eq=False)
class SetRule:
    """A rule for prediction sets.

    Attributes:
        calibration: the scores of calibration images: the probabilities of their classes.
        coverage: wanted for each class.
        class_names: the K classes.
    """

    calibration: Calibration
    coverage: float
    class_names: tuple[str, ...]

    def sets(self, probabilities: Sequence[NDArray[np.floating[Any]]]) -> Sets:
        """Return the prediction sets of images, (N, K), never empty: the most probable class is always in.

        Args:
            probabilities: of each model, (N, K); the models are those that were calibrated.
        """
        found = self.calibration.sets([rounded(each) for each in probabilities], self.coverage)
        found[np.arange(len(found)), np.mean(probabilities, axis=0).argmax(1)] = True
        return found

    @property
    def too_few(self) -> list[str]:
        """Classes with too few calibration images, which are in every set."""
        return [self.class_names[k] for k in self.calibration.too_few(self.coverage)]

    def describe(self) -> list[str]:
        """Return sentences about the guarantee, and the classes without it."""
        number, folds = int(self.calibration.counts.sum()), self.calibration.folds
        bounds = self.calibration.guaranteed(self.coverage)
        if folds == 1:
            lines = [
                f"For an image of any class, the prediction set contains this class with a probability of at least "
                f"{self.coverage:.10g}; calibrated on {number:,} calibration images."
            ]
        else:
            least, most = np.floor(100 * np.array([bounds.min(), bounds.max()]) + 1e-9) / 100  # never rounded up
            many = f"{max(2 * self.coverage - 1, 0):.10g}"
            lines = [
                f"For an image of any class, the prediction set contains this class with a probability of about "
                f"{self.coverage:.10g}, and of {least:.2f} to {most:.2f} at least, by class (1 - 2 alpha = {many} for "
                f"many images); calibrated on {number:,} test images of {folds} folds, by which the objective was "
                "recommended too."
            ]
        if self.too_few:
            counts = self.calibration.counts
            named = [f"{self.class_names[k]} ({counts[k]})" for k in self.calibration.too_few(self.coverage)]
            needed = images_needed(self.coverage)
            lines.append(
                f"In every set, with fewer than {needed} calibration image{'s' * (needed > 1)}: {some(named)}."
            )
        return lines


def set_rule(run: Run, coverage: float) -> SetRule:
    """Return the rule for prediction sets of a run.

    Raises:
        EvenhandError: the run has no calibration images, or the coverage is not above 0 and below 1.
    """
    check_share(coverage, "--coverage")
    return make_set_rule([read_calibration(run)], coverage)


def make_set_rule(folds: Sequence[CalibrationScores], coverage: float) -> SetRule:
    """Return the rule for prediction sets of models that are each calibrated on images of their own."""
    names = folds[0].class_names
    calibration = Calibration(tuple(fold.own for fold in folds), tuple(fold.targets for fold in folds), len(names))
    return SetRule(calibration, coverage, names)


def set_rule_of_folds(runs: Sequence[Run], coverage: float) -> tuple[SetRule, list[Run]]:
    """Return the rule for prediction sets of runs whose test sets rotate, each calibrated on its test images.

    Returns:
        The rule, and the runs that it is for: one per fold, most of whose test images no run before it tests.

    Raises:
        EvenhandError: the runs are tested on the same images, or the coverage is not above 0 and below 1.
    """
    check_share(coverage, "--coverage")
    found, members = new_test_folds(runs)
    if len(members) < 2:
        raise EvenhandError(
            f"{runs[0].path} has no calibration images, and its comparison no test sets that rotate over several "
            f"seeds; {HOW_TO_CALIBRATE}."
        )
    return make_set_rule([score(fold) for fold in found], coverage), members


def new_test_folds(runs: Sequence[Run]) -> tuple[list[Predictions], list[Run]]:
    """Return the predictions of test images that no earlier run tests, one per group, and the runs that made them."""
    found, members, seen = [], [], set[str]()
    for run in runs:
        own = as_used(run, run.predictions)
        new = np.array([name not in seen for name in own.ids.tolist()])
        if new.mean() > 0.5:  # later turns of the same folds add nothing but a few images at their ends
            found.append(one_per_group(take(own, np.flatnonzero(new))))
            members.append(run)
            seen |= set(own.ids.tolist())
    return found, members


@dataclass(frozen=True, eq=False)
class AnswerRule:
    """A rule that answers only where a precision is shown, for answers of each shot group apart.

    Attributes:
        precision: of the answers of a shot group.
        thresholds: for each shot group the classes that belong to it and the confidence that their answers need.
        class_names: the K classes.
    """

    precision: float
    thresholds: dict[str, tuple[tuple[int, ...], Threshold]]
    class_names: tuple[str, ...]

    def answered(self, probabilities: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
        """Return which images get an answer, (N,), from probabilities (N, K); the others are unsure."""
        confidences = rounded(probabilities)
        return np.asarray(confidences.max(1) >= self.needed()[confidences.argmax(1)])

    def needed(self) -> NDArray[np.float64]:
        """Return the confidence that an answer of each class needs, (K,); inf: it is always unsure."""
        needed = np.full(len(self.class_names), np.inf)
        for classes, threshold in self.thresholds.values():
            if threshold.value is not None:
                needed[list(classes)] = threshold.value
        return needed

    def describe(self) -> list[str]:
        """Return sentences about the guarantee, and the classes without it."""
        reached = [name for name, (_, threshold) in self.thresholds.items() if threshold.value is not None]
        lines = []
        if reached:
            levels = ", ".join(f"{name} from {self.thresholds[name][1].value:g}" for name in reached)
            lines.append(
                f"Answers have a precision of at least {self.precision:.10g} in each shot group, with {1 - DELTA:.0%} "
                f"confidence, for images with the class shares of the calibration images; confidence needed: {levels}."
            )
        for name, (classes, threshold) in self.thresholds.items():
            if threshold.value is None:
                why = (
                    f"{threshold.needed} calibration images would be needed, there are {threshold.images}"
                    if threshold.images < threshold.needed
                    else "too many of its calibration images are classified wrongly"
                )
                lines.append(f"Always unsure for {name}-shot classes ({some(self._names(classes))}): {why}.")
        return lines

    def _names(self, classes: Sequence[int]) -> list[str]:
        return [self.class_names[k] for k in classes]


def answer_rule(run: Run, precision: float) -> AnswerRule:
    """Return the rule that answers only where a precision is shown.

    Raises:
        EvenhandError: the run has no calibration images, the precision is not above 0 and below 1, or it is shown for
            no shot group.
    """
    check_share(precision, "--min-precision")
    return make_answer_rule(read_calibration(run), precision, run)


def make_answer_rule(scores: CalibrationScores, precision: float, run: Run) -> AnswerRule:
    """Return the rule for answers by the scores of calibration images of a run, see :func:`answer_rule`."""
    groups = find_shot_groups(scores.train_counts)
    named = {name: classes for name in SHOTS if (classes := getattr(groups, name))}
    correct = scores.predicted == scores.targets
    members = [np.isin(scores.predicted, classes) for classes in named.values()]
    thresholds = precision_thresholds([(scores.confidence[mine], correct[mine]) for mine in members], precision)
    found = {name: (named[name], threshold) for name, threshold in zip(named, thresholds, strict=True)}
    rule = AnswerRule(precision, found, scores.class_names)
    if all(threshold.value is None for _, threshold in found.values()):
        each = ", ".join(f"{threshold.images} of {name}-shot classes" for name, (_, threshold) in found.items())
        needed = min(threshold.needed for threshold in thresholds)
        raise EvenhandError(
            f"A precision of {precision:.10g} cannot be shown for any answer of {run.path}: it has calibration images "
            f"predicted as follows: {each}, of which {needed} or more must be right in a group; ask for less, or train "
            "with a larger data.calibration_fraction."
        )
    return rule


def summarise_sets(rule: SetRule, predictions: Predictions) -> dict[str, Any]:
    """Return coverage and sizes of the prediction sets of test images, for a summary.

    Args:
        rule: of a single model.
        predictions: of the test images, as `predict` computes them.

    Returns:
        Plain values: `coverage` (asked), `guaranteed` (in the class where it is lowest), `needed` (calibration images
        per class), `too_few` (classes with less), `mean_size`, `unsure` (the share of sets with several classes),
        `full` (with all classes), `groups` and `per_class`: coverage with its 95% interval and mean size.
    """
    sets = rule.sets([np.exp(predictions.log_probabilities())])
    return describe_sets(rule, sets, predictions)


def describe_sets(rule: SetRule, sets: Sets, predictions: Predictions) -> dict[str, Any]:
    """Return what :func:`summarise_sets` does, for sets that were computed already, (N, K)."""
    targets, names = predictions.targets, predictions.class_names
    covered, sizes = sets[np.arange(len(sets)), targets], sets.sum(1)
    low, high = class_recall_intervals(covered, targets, len(names), groups=predictions.groups)
    shots, counts = find_shot_groups(predictions.train_counts), rule.calibration.counts
    short = set(rule.calibration.too_few(rule.coverage).tolist())
    per_class = [
        {
            "name": name,
            "group": shots.of(k),
            "calibration_images": int(counts[k]),
            "images": int((targets == k).sum()),
            "coverage": _mean(covered[targets == k]),
            "interval": None if np.isnan(low[k]) else [float(low[k]), float(high[k])],
            "mean_size": _mean(sizes[targets == k]),
            "guaranteed": k not in short,
        }
        for k, name in enumerate(names)
    ]
    groups = {}
    for shot in SHOTS:
        classes = [k for k in getattr(shots, shot) if k not in short and per_class[k]["images"]]
        ends = mean_recall_interval(covered, targets, classes, groups=predictions.groups) if classes else None
        groups[shot] = {
            "classes": len(classes),
            "coverage": _mean([per_class[k]["coverage"] for k in classes]),
            "interval": None if ends is None else list(ends),
            "mean_size": _mean(sizes[np.isin(targets, classes)]),
        }
    return {
        "coverage": rule.coverage,
        "guaranteed": float(rule.calibration.guaranteed(rule.coverage).min()),
        "calibration_images": int(counts.sum()),
        "needed": images_needed(rule.coverage),
        "too_few": [{"name": names[k], "calibration_images": int(counts[k])} for k in sorted(short)],
        "mean_size": float(sizes.mean()),
        "unsure": float((sizes > 1).mean()),
        "full": float((sizes == len(names)).mean()),
        "groups": groups,
        "per_class": per_class,
        "notes": rule.describe(),
    }


def summarise_answers(rule: AnswerRule, predictions: Predictions) -> dict[str, Any]:
    """Return how many test images are answered, and how precisely, for a summary.

    Args:
        rule: of the run.
        predictions: of the test images, as `predict` computes them.
    """
    answered = rule.answered(np.exp(predictions.log_probabilities()))
    predicted, correct = predictions.predicted(), predictions.correct()
    groups = {
        name: {
            "threshold": threshold.value,
            "calibration_images": threshold.images,
            "needed": threshold.needed,
            **_precision(answered, correct, np.isin(predicted, classes), predictions.groups),
        }
        for name, (classes, threshold) in rule.thresholds.items()
    }
    return {
        "min_precision": rule.precision,
        "confidence": 1 - DELTA,
        **_precision(answered, correct, np.ones_like(answered), predictions.groups),
        "groups": groups,
        "notes": rule.describe(),
    }


def _precision(
    answered: NDArray[np.bool_], correct: NDArray[np.bool_], mine: NDArray[np.bool_], groups: NDArray[np.str_] | None
) -> dict[str, Any]:
    chosen = answered & mine
    number = int(chosen.sum())
    precision = float(correct[chosen].mean()) if number else None
    own = None if groups is None else groups[chosen]
    low, high = class_recall_intervals(correct[chosen], np.zeros(number, np.int64), 1, groups=own)
    return {
        "images": int(mine.sum()),
        "unsure": 1 - number / int(mine.sum()) if mine.any() else None,
        "precision": precision,
        "interval": None if np.isnan(low[0]) else [float(low[0]), float(high[0])],
    }


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
