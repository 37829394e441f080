"""The class shares where a model is used: what is added to its logits so that probabilities hold for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.core.class_tables import read_class_values, reading
from evenhand.core.errors import EvenhandError
from evenhand.metrics.priors import class_prior
from evenhand.objectives.objective import Objective, build_objective
from evenhand.runs.class_weights import weights_in_order
from evenhand.runs.model_folder import is_model_folder, read_decisions
from evenhand.runs.run import Run

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


def read_shares(path: Path, class_names: Sequence[str]) -> NDArray[np.float64]:
    r"""Read the share of each class, in any unit; return them with a sum of 1, (K,).

    Args:
        path: as `read_class_values` takes it, with numbers above 0.
        class_names: the K classes, in the order of the result.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.training.prior import read_shares
        >>> path = Path(tempfile.mkdtemp()) / "shares.csv"
        >>> _ = path.write_text("cat,30\ndog,10\n")
        >>> read_shares(path, ["dog", "cat"])
        array([0.25, 0.75])
    """
    with reading(path, "class shares"):
        shares = np.array(list(read_class_values(path, "share", class_names, positive=True).values()))
        relative = shares / shares.max()
        if not relative.all():
            raise ValueError(
                f"its shares, {shares.min():g} to {shares.max():g}, differ by too many orders of magnitude"
            )
        return np.asarray(relative / relative.sum())


def change_prior(run: Run, prior: str) -> PriorChange:
    """Return the change of a run's probabilities to other class shares.

    Args:
        run: a finished run, or a model folder.
        prior: `uniform`, `train` (the shares of the training images, with those of validation and calibration) or a
            file, as `read_shares` takes it.

    Raises:
        EvenhandError: the run's probabilities hold for no known class shares, or the file cannot be read.
    """
    if prior == "":
        raise EvenhandError("--prior takes train, uniform or a file of class shares, got ''.")
    known = known_shares(run)
    if known.logits is None:
        raise EvenhandError(
            f"{run.path} was trained with {known.objective}, whose probabilities hold for no known class shares, so "
            f"they cannot be changed to others{known.advice}."
        )
    if prior == "train":
        shares = known.train
    elif prior in UNIFORM:
        shares = np.full(len(known.class_names), 1 / len(known.class_names))
    else:
        shares = read_shares(Path(prior), known.class_names)
    return PriorChange(prior, shares, np.log(shares) - np.log(known.logits))


@dataclass(frozen=True, eq=False)
class KnownShares:
    """The class shares that are known of a trained model."""

    class_names: tuple[str, ...]
    train: NDArray[np.float64]
    """(K,): of the training images, with those set aside for validation and calibration."""
    logits: NDArray[np.float64] | None
    """(K,): those that the network's logits hold for; None: for none that are known."""
    objective: str
    advice: str = ""
    """What to do where none are known."""


def known_shares(run: Run) -> KnownShares:
    """Return the class shares that are known of a run, or of the model of a folder."""
    if is_model_folder(run):
        stored = read_decisions(run)
        logits = None if stored.logits_prior is None else np.array(stored.logits_prior)
        return KnownShares(stored.class_names, np.array(stored.train_prior), logits, stored.objective)
    objective = training_objective(run)
    implied, advice = objective.prior(), "" if corrections(objective) else "; use --adjust"
    # Validation and calibration images, of which rare classes give more, belong to the shares of the source.
    train, logits = class_prior(run.predictions.train_counts), None if implied is None else class_prior(implied)
    return KnownShares(run.predictions.class_names, train, logits, str(objective.spec), advice)


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
