"""The class shares where a model is used: what is added to its logits so that probabilities hold for them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.metrics.priors import class_prior
from evenhand.objectives.objective import Objective, build_objective
from evenhand.runs.class_weights import weights_in_order
from evenhand.runs.run import Run
from evenhand.training.class_shares import read_shares

UNIFORM = ("uniform", "balanced")
"""Two names of equal class shares."""


@dataclass(frozen=True, eq=False)
class PriorChange:
    """A change of the class shares that probabilities hold for."""

    prior: str
    """As it was given: `uniform`, `train` or a file."""
    shares: NDArray[np.float64]
    """(K,): the new class shares."""
    added_to_logits: NDArray[np.float64]
    """(K,)."""


def change_prior(run: Run, prior: str) -> PriorChange:
    """Return the change of a run's probabilities to other class shares.

    Args:
        run: a finished run.
        prior: `uniform`, `train` (the shares of the training images) or a file, as `read_shares` takes it.

    Raises:
        EvenhandError: the run's probabilities hold for no known class shares, or the file cannot be read.
    """
    if prior == "":
        raise EvenhandError("--prior takes train, uniform or a file of class shares, got ''.")
    objective, predictions = training_objective(run), run.predictions
    implied = objective.prior()
    if implied is None:
        advice = "" if corrections(objective) else "; use --adjust"
        raise EvenhandError(
            f"{run.path} was trained with {objective.spec}, whose probabilities hold for no known class shares, so "
            f"they cannot be changed to others{advice}."
        )
    if prior == "train":
        shares = class_prior(objective.stats.counts)
    elif prior in UNIFORM:
        shares = np.full(predictions.num_classes, 1 / predictions.num_classes)
    else:
        shares = read_shares(Path(prior), predictions.class_names)
    return PriorChange(prior, shares, np.log(shares) - np.log(class_prior(implied)))


def training_objective(run: Run) -> Objective:
    """Return the objective of a run's training, up to the selected epoch, on the counts it was trained on."""
    config, predictions = run.config, run.predictions
    counts = predictions.train_counts if predictions.fitted_counts is None else predictions.fitted_counts
    selected = int(run.summary.selected.epoch)
    return build_objective(
        config.objective.training,
        counts=counts.tolist(),
        epochs=config.epochs,
        until=selected,
        class_weights=weights_in_order(config.class_weights, predictions.class_names),
    )


def corrections(objective: Objective) -> list[str]:
    """Return the names of the parts that correct for the class counts in training."""
    return [part.name for part in objective.parts if part.corrects_prior or part.has_margin]
