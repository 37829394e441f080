"""Decisions of a trained model: the class of least expected cost, prediction sets, and answers that may be unsure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.core.errors import EvenhandError
from evenhand.metrics.costs import cost_of_decisions
from evenhand.metrics.predictions import Predictions
from evenhand.runs.comparison import is_comparison, read_recommended
from evenhand.runs.held_out import as_used
from evenhand.runs.model_folder import exported_with, is_model_folder
from evenhand.runs.run import Run
from evenhand.runs.unsure import (
    AnswerRule,
    SetRule,
    answer_rule,
    check_share,
    set_rule,
    set_rule_of_folds,
    summarise_answers,
    summarise_sets,
)
from evenhand.statistics.conformal import Sets
from evenhand.training._ensemble import Ensemble, Member
from evenhand.training.cost_files import read_costs
from evenhand.training.predict import Item, TrainedModel, load, refuse_bad
from evenhand.training.prior import change_prior


@dataclass(frozen=True, eq=False)
class UnsureBatch:
    """The answers for a batch of images."""

    items: list[Item]
    """The readable images, as they were given."""
    probabilities: NDArray[np.float32]
    """(B, K), one row per readable image."""
    sets: Sets | None
    """(B, K): whether each class is in the prediction set; None: no coverage was asked for."""
    answered: NDArray[np.bool_] | None
    """(B,): False where the answer is unsure; None: no precision was asked for."""
    bad: list[tuple[Item, str]]
    """The unreadable images, and why."""


@dataclass(frozen=True, eq=False)
class UnsureModel:
    """A trained model that answers with sets of classes, or is unsure; :func:`load_unsure` returns one.

    Attributes:
        model: the trained model; for sets that are calibrated on several folds, its network returns the logits of each.
        sets: the rule for prediction sets; None: no coverage was asked for.
        answers: the rule for answers; None: no precision was asked for.
    """

    model: TrainedModel
    sets: SetRule | None
    answers: AnswerRule | None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The K classes."""
        return self.model.class_names

    def describe(self) -> list[str]:
        """Return sentences about the guarantees, and the classes without them."""
        return [line for rule in (self.sets, self.answers) if rule is not None for line in rule.describe()]

    def stream(self, images: Iterable[Item], batch_size: int = 64, *, skip_bad: bool = False) -> Iterator[UnsureBatch]:
        """Answer any number of images, batch by batch; the arguments are those of `TrainedModel.stream`."""
        for part, logits, bad in self.model.forward(images, self.model.read, batch_size):
            refuse_bad(part, bad, skip_bad)
            read = [item for position, item in enumerate(part) if position not in bad]
            refused = [(part[position], error.reason) for position, error in bad.items()]
            folds = 1 if self.sets is None else self.sets.calibration.folds
            each = self._probabilities(logits.reshape(len(read), folds, len(self.class_names)))
            mean = np.asarray(each.mean(1), np.float32)
            yield UnsureBatch(
                read,
                mean,
                None if self.sets is None else self.sets.sets([each[:, fold] for fold in range(folds)]),
                None if self.answers is None else self.answers.answered(mean),
                refused,
            )

    def _probabilities(self, logits: Tensor) -> NDArray[np.float32]:
        """Return probabilities (B, folds, K) of logits; those of several folds are adjusted already."""
        adjustment = self.model.adjustment
        return np.asarray((logits if adjustment is None else logits + adjustment).softmax(2).numpy(), np.float32)


def load_unsure(
    run: Path | str,
    *,
    coverage: float | None = None,
    min_precision: float | None = None,
    device: torch.device | str | None = None,
) -> UnsureModel:
    """Load a trained model that answers with prediction sets, or only where it is precise enough.

    Args:
        run: a run with calibration images (`data.calibration_fraction`), or a comparison: its recommended run if that
            has calibration images. Otherwise, for a coverage, all recommended runs, each calibrated on its own test
            images if test sets rotate; see :meth:`evenhand.statistics.conformal.Calibration.guaranteed`. Or a model
            folder, which keeps what calibration images gave, and is used as it was exported if neither is given.
        coverage: of each class by the prediction sets, above 0 and below 1.
        min_precision: of the answers of each shot group, above 0 and below 1.
        device: as for :func:`evenhand.load`.

    Raises:
        EvenhandError: there are no calibration images, or the precision cannot be shown.
    """
    for value, option in ((coverage, "--coverage"), (min_precision, "--min-precision")):
        if value is not None:
            check_share(value, option)
    members = [Run(Path(run))]
    if is_comparison(run):
        members = list(read_recommended(run).runs)
    elif Path(run).is_file():
        raise EvenhandError(f"{run} is a file of weights, which has no calibration images; give the folder of a run.")
    first = members[0]
    if not is_model_folder(first):
        first.require()
    elif coverage is None and min_precision is None:
        coverage, min_precision = exported_with(first)
    if len(members) > 1 and first.calibration_predictions is None and min_precision is None and coverage is not None:
        rule, folds = set_rule_of_folds(members, coverage)
        models = [load(each.path, device=device) for each in folds]
        joined = Ensemble([Member(each.network, each.card, each.adjustment) for each in models])  # type: ignore[arg-type]
        network = _Members(joined).to(models[0].device).eval()
        return UnsureModel(TrainedModel(network, models[0].card, models[0].device), rule, None)  # type: ignore[arg-type]
    sets = None if coverage is None else set_rule(first, coverage)
    answers = None if min_precision is None else answer_rule(first, min_precision)
    return UnsureModel(load(first.path, device=device), sets, answers)


def stored_thresholds(run: Run, coverage: float | None, min_precision: float | None) -> dict[str, Any]:
    """Return the thresholds of a run's classes, as an exported model keeps them.

    Returns:
        `set_thresholds` and `answer_thresholds`: the probability from which a class is in the prediction set (None: it
        always is), and from which the most probable class is the answer (None: never); None: not asked for.
    """
    sets = None if coverage is None else set_rule(run, coverage).calibration.thresholds(coverage)
    answers = None if min_precision is None else answer_rule(run, min_precision).needed()
    return {
        name: None if values is None else tuple(float(each) if np.isfinite(each) else None for each in values)
        for name, values in (("set_thresholds", sets), ("answer_thresholds", answers))
    }


def refuse_combined(coverage: float | None, min_precision: float | None, **others: object) -> None:
    """Refuse options that change probabilities next to those that are calibrated for the model's own."""
    for name, value in others.items():
        if value and not coverage is min_precision is None:
            raise EvenhandError(f"--{name} cannot be combined with --coverage or --min-precision; leave it out.")


class _Members(nn.Module):
    """The adjusted logits of each network of an ensemble, (N, members * K)."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.ensemble = ensemble

    def forward(self, images: Tensor) -> Tensor:
        return self.ensemble.member_logits(images).transpose(0, 1).flatten(1)


def evaluate_costs(run: Run, predictions: Predictions, costs: Path | str, prior: str | None) -> dict[str, Any]:
    """Return what decisions of least expected cost cost on test images, for a summary.

    Args:
        run: a finished run.
        predictions: of test images.
        costs: a file, as `read_costs` takes it.
        prior: the class shares where the model is used: `uniform` (None), `train` or a file.

    Returns:
        `prior`, `realised` and `error` (its standard error), `expected` by the model, `most_probable` (realised by
        deciding for the most probable class), and `per_class`.
    """
    matrix = read_costs(costs, predictions.class_names)
    change = change_prior(run, prior or "uniform")
    probabilities = np.exp(replace(predictions, adjustment=change.added_to_logits).log_probabilities())
    found = cost_of_decisions(probabilities, predictions.targets, matrix, change.shares, groups=predictions.groups)
    return {
        "prior": change.prior,
        "realised": found.realised,
        "error": found.error,
        "expected": found.expected,
        "most_probable": found.most_probable,
        "per_class": [
            {"name": name, "cost": cost} for name, cost in zip(predictions.class_names, found.per_class, strict=True)
        ],
    }


def evaluate_decisions(
    run: Run,
    predictions: Predictions,
    *,
    costs: Path | str | None = None,
    prior: str | None = None,
    coverage: float | None = None,
    min_precision: float | None = None,
) -> dict[str, Any]:
    """Return the entries of a summary for decisions on test images: `cost`, `sets` and `answers`, where asked for.

    Args:
        run: a finished run.
        predictions: of test images.
        costs: a file of costs.
        prior: the class shares where the model is used, for costs.
        coverage: of prediction sets.
        min_precision: of answers.
    """
    found: dict[str, Any] = {}
    if costs is not None:
        found["cost"] = evaluate_costs(run, predictions, costs, prior)
    if coverage is not None:
        found["sets"] = summarise_sets(set_rule(run, coverage), as_used(run, predictions))
    if min_precision is not None:
        found["answers"] = summarise_answers(answer_rule(run, min_precision), as_used(run, predictions))
    return found


def check_decisions(
    run: Run,
    *,
    costs: Path | str | None = None,
    prior: str | None = None,
    coverage: float | None = None,
    min_precision: float | None = None,
) -> None:
    """Refuse what :func:`evaluate_decisions` would refuse, before images are predicted."""
    run.require()
    if costs is not None:
        read_costs(costs, run.predictions.class_names)
        change_prior(run, prior or "uniform")
    if coverage is not None:
        set_rule(run, coverage)
    if min_precision is not None:
        answer_rule(run, min_precision)
