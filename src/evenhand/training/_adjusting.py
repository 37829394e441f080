"""Logits adjusted after training: from the logits as the network gives them, so never twice; without training again."""

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.files import read_bytes
from evenhand.core.text import some
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.priors import TAUS, class_prior
from evenhand.objectives.objective import Objective, build_objective
from evenhand.objectives.posthoc import Fitted, fit_tau
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise

KEPT = ("accuracy", "balanced_accuracy", "balanced_accuracy_interval", "macro_f1", "groups", "nll", "ece")
"""What is said of the unadjusted result."""


@dataclass(frozen=True, eq=False)
class Adjusted:
    """Adjusted predictions, and what was done to them."""

    predictions: Predictions
    adjustment: dict[str, Any]
    """As :class:`evenhand.runs.schemas.Adjustment` reads it."""


def adjust(run: Path | str, tau: float | Literal["auto"], predictions: Predictions | None = None) -> Adjusted:
    """Take tau times the log of the class shares off the logits of a finished run (Menon et al. 2021).

    Args:
        run: its folder.
        tau: how much of it, or `auto`: the tau with the best balanced accuracy on the run's validation images.
        predictions: to adjust; None: those of its test images.

    Raises:
        EvenhandError: its training made up for the class counts already, or `auto` without validation images.
    """
    folder = Run(Path(run))
    objective = refuse_twice(folder)
    validation = folder.validation_predictions if tau == "auto" else None
    fitted = fit_tau(tau, objective.stats.counts, validation)
    return _adjusted(predictions or folder.predictions, describe_fitted(fitted), fitted.values)


def refuse_twice(run: Run) -> Objective:
    """Return the objective that a run was trained with, unless it makes up for the class counts already."""
    objective = _objective(run)
    doing = _making_up(objective)
    if doing:
        raise EvenhandError(
            f"{run.path} was trained with {doing[0]}, which makes up for the class counts already; an adjustment would "
            "do so twice."
        )
    return objective


def _making_up(objective: Objective) -> list[str]:
    """Name the parts that make up for the class counts in training."""
    return [part.name for part in objective.parts if part.corrects_prior or part.name == "ldam"]


def change_prior_of(run: Path | str, prior: str, predictions: Predictions | None = None) -> Adjusted:
    """Make the probabilities of a finished run right for other class shares than its training implies.

    Args:
        run: its folder.
        prior: `train` (the shares of the images trained on), `balanced`, or a file with the share of each class where
            the model will be used: `.json`, an object, or `.csv`, lines of a class and a share.
        predictions: to adjust; None: those of its test images.

    Raises:
        EvenhandError: its training implies no class shares, or the file does not name those of all classes.
    """
    folder = Run(Path(run))
    objective = _objective(folder)
    implied = objective.prior()
    if implied is None:
        raise EvenhandError(
            f"{folder.path} was trained with {objective.spec}, whose probabilities hold for no known class shares, so "
            f"they cannot be changed to others{'' if _making_up(objective) else '; use --adjust'}."
        )
    judged = predictions or folder.predictions
    if prior == "train":
        shares = class_prior(objective.stats.counts)
    elif prior == "balanced":
        shares = np.full(judged.num_classes, 1 / judged.num_classes)
    else:
        shares = read_shares(Path(prior), judged.class_names)
    values = np.log(shares) - np.log(class_prior(implied))
    return _adjusted(judged, {"kind": "prior", "chosen": "given", "prior": prior}, values)


def read_shares(path: Path, class_names: Sequence[str]) -> NDArray[np.float64]:
    r"""Read the share of each class, in any unit; return them with a sum of 1.

    Columns are separated by commas, or by the semicolons or tabs that a spreadsheet writes.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from evenhand.training._adjusting import read_shares
        >>> path = Path(tempfile.mkdtemp()) / "shares.csv"
        >>> _ = path.write_text("cat,30\ndog,10\n")
        >>> read_shares(path, ["dog", "cat"])
        array([0.25, 0.75])
    """
    try:
        text = read_bytes(path, 2**24).decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            read = json.loads(text, object_pairs_hook=list)
            if not isinstance(read, list) or not all(isinstance(each, tuple) for each in read):
                raise ValueError("it must hold one object, of classes and their shares")
            pairs = [(str(name), float(share)) for name, share in read]
        else:
            tables = [[row for row in csv.reader(io.StringIO(text), delimiter=mark) if row[1:]] for mark in ",;\t"]
            rows = max(tables, key=lambda rows: sum(row[0].strip() in class_names for row in rows))
            if rows and not _is_number(rows[0][1]):
                rows = rows[1:]  # the names of the columns
            pairs = [(row[0].strip(), float(row[1])) for row in rows]
        content = dict(pairs)
        if len(content) < len(pairs):
            twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
            raise ValueError(f"{twice!r} comes twice")
    except EvenhandError as error:
        told = str(error).removeprefix(f"Cannot read {path}: ")
        raise EvenhandError(f"Cannot read class shares from {path}: {told}") from error
    except (ValueError, IndexError, AttributeError, TypeError, OverflowError, RecursionError, csv.Error) as error:
        raise EvenhandError(f"Cannot read class shares from {path}: {reason(error)}.") from error
    missing, unknown = set(class_names) - set(content), set(content) - set(class_names)
    if missing or unknown:
        what = f"lacks {some(sorted(missing))}" if missing else f"has unknown classes: {some(sorted(unknown))}"
        raise EvenhandError(f"{path} must give a share for every class of the model; it {what}.")
    shares = np.array([content[name] for name in class_names])
    for name, share in zip(class_names, shares, strict=True):
        if not 0 < share < np.inf:
            raise EvenhandError(f"The share of every class must be above 0, got {share:g} for {name!r} in {path}.")
    return np.asarray(shares / shares.sum())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def describe_fitted(fitted: Fitted) -> dict[str, Any]:
    """Say what post-hoc adjustment does, as :class:`evenhand.runs.schemas.Adjustment` reads it."""
    values = fitted.values.tolist()
    return {"kind": "post-hoc", "chosen": fitted.chosen, "tau": fitted.tau, "added_to_logits": values}


def beside(adjusted: Adjusted) -> dict[str, Any]:
    """Say for a summary what was done, and what the run reaches without it."""
    plain = summarise(replace(adjusted.predictions, adjustment=None))
    return {"adjustment": adjusted.adjustment, "unadjusted": {key: plain[key] for key in KEPT}}


def at_the_end(said: Mapping[str, Any], tried: NDArray[np.float64] = TAUS) -> tuple[str, ...]:
    """Say so where the best tau of an adjustment, as a summary holds it, is the largest that was tried."""
    done = said.get("adjustment")
    if done is None or done["chosen"] != "validation" or done["tau"] < tried[-1]:
        return ()
    return (
        f"The best tau on validation, {done['tau']:g}, is the largest that was tried; a larger one may be better, and "
        "can be given as a number.",
    )


def selected_with(
    selected: dict[str, Any], validation: Predictions | None, values: NDArray[np.float64]
) -> dict[str, Any]:
    """Say of the selected epoch what it reaches on validation with an adjustment, by which settings may be tuned."""
    if validation is None:
        return selected
    predicted = replace(validation, adjustment=np.asarray(values, np.float64)).predicted()
    confusion = confusion_matrix(validation.targets, predicted, validation.num_classes)
    return {**selected, "val_balanced_accuracy": float(balanced_accuracy(confusion))}


def _adjusted(predictions: Predictions, adjustment: dict[str, Any], values: NDArray[np.float64]) -> Adjusted:
    values = np.asarray(values, np.float64)
    return Adjusted(replace(predictions, adjustment=values), {**adjustment, "added_to_logits": values.tolist()})


def _objective(run: Run) -> Objective:
    """Return the objective that a run's weights were trained with, from the counts they were trained on."""
    config, predictions = run.config, run.predictions
    counts = predictions.train_counts if predictions.fitted_counts is None else predictions.fitted_counts
    selected = int(run.summary.selected.epoch)
    return build_objective(config.objective.training, counts=counts.tolist(), epochs=config.epochs, until=selected)
