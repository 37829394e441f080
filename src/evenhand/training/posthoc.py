"""Post-hoc adjustment of a finished run: its logits are changed without training, and the change is stored."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.metrics.classification import balanced_accuracy
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.priors import TAUS
from evenhand.objectives.objective import Objective
from evenhand.objectives.posthoc import fit_tau
from evenhand.runs.held_out import take
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training._predict_table import predict_rows, rows_of
from evenhand.training.predict import load, normalise_head, selected_weights
from evenhand.training.prior import change_prior, corrections, training_objective
from evenhand.training.results import COMPARED, Evaluation, describe_fitted, tau_notes

ROUNDING = 1e-9
NORMALISE_TAUS = TAUS[TAUS <= 1.5]
"""The grid of tau for normalised weights; 0 only removes the bias, 1 gives all classes the same norm."""


@dataclass(frozen=True)
class AdjustmentRequest:
    """How to adjust the logits of a finished run: at most one of these; `adjust="auto"` if none is given.

    Attributes:
        adjust: tau of post-hoc logit adjustment (Menon et al. 2021), or `auto`.
        prior: class shares that the probabilities should hold for: `train`, `uniform` or a file.
        normalise: tau of tau-normalised weights (Kang et al. 2020), or `auto`; the bias is removed, even at 0.
    """

    adjust: str | None = None
    prior: str | None = None
    normalise: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("adjust", "prior", "normalise") if getattr(self, name) is not None]
        if len(given) > 1:
            raise EvenhandError(f"--{given[0]} and --{given[1]} both change the logits; give one of them.")


_Adjusted = tuple[Predictions, dict[str, Any]]
"""Adjusted predictions, and the adjustment as :class:`evenhand.runs.schemas.Adjustment` reads it."""


def evaluate_adjusted(
    run: Path | str,
    request: AdjustmentRequest,
    *,
    data_root: Path | str | None = None,
    skip_bad: bool = False,
    allow_outside: bool = False,
) -> Evaluation:
    """Evaluate a finished run with its logits adjusted, and store the adjustment in the run.

    From then on :func:`evenhand.load`, `predict` and `export` apply it. The run's other files do not change. An
    adjustment starts from the network's own logits, so it replaces an earlier one. `adjust="auto"` changes nothing
    where the objective corrects for the class counts in training, as `balanced-softmax` does.

    Args:
        run: the folder of a finished run.
        request: how to adjust the logits. Only normalised weights read images; the other arguments are about these.
        data_root: folder of the data sets; None: as in the run.
        skip_bad: leave out unreadable images.
        allow_outside: follow links and paths that lead out of a folder or manifest, even if the run did not.

    Raises:
        EvenhandError: the run is not finished, or its objective does not allow the adjustment.
    """
    folder = Run(Path(run))
    selected_weights(folder.path)  # raises if the run is missing or not finished
    folder.require()  # refuses a file of weights
    before = folder.summary.model_dump(mode="json", exclude_unset=True)
    if request.normalise is not None:
        predict = partial(_predict_normalised, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        predictions, adjustment = _normalise(folder, _parse_tau(request.normalise, "normalise"), predict)
    elif request.prior is not None:
        predictions, adjustment = _change_prior(folder, request.prior)
    else:
        tau = _parse_tau("auto" if request.adjust is None else request.adjust, "adjust")
        if tau == "auto" and (named := corrections(training_objective(folder))):
            return Evaluation(folder.predictions, before, (_no_need(folder, named[0]),))
        counts = _require_uncorrected(folder).stats.counts
        fitted = fit_tau(tau, counts, folder.validation_predictions if tau == "auto" else None)
        predictions, adjustment = replace(folder.predictions, adjustment=fitted.values), describe_fitted(fitted)
    results = summarise(predictions)
    plain = summarise(_same_images(replace(folder.predictions, adjustment=None), predictions))
    folder.write_adjustment({**adjustment, **{key: results[key] for key in COMPARED}})
    compared = {"adjustment": adjustment, "unadjusted": {key: plain[key] for key in COMPARED}}
    remarks = tau_notes(adjustment, TAUS if request.normalise is None else NORMALISE_TAUS)
    unread = len(folder.predictions) - len(predictions)
    if unread:
        remarks += (f"Left out as unreadable: {unread} of {len(folder.predictions)} test images.",)
    return Evaluation(predictions, {**before, **results, **compared}, remarks)


def _change_prior(run: Run, prior: str) -> _Adjusted:
    """Change the class shares that the probabilities hold for: to `train`, `uniform`, or those of a file."""
    found = change_prior(run, prior)
    values = found.added_to_logits
    adjustment = {"kind": "prior", "chosen": "given", "prior": prior, "added_to_logits": values.tolist()}
    return replace(run.predictions, adjustment=values), adjustment


def _normalise(run: Run, tau: float | Literal["auto"], predict: Callable[[Run, float, str], Predictions]) -> _Adjusted:
    """Predict with tau-normalised weights; `auto`: the best tau on validation, of equal ones the nearest to 1."""
    _require_uncorrected(run)
    chosen = "given"
    if tau == "auto":
        if not run.splits.val:
            raise EvenhandError("There are no validation images to choose tau by; give a number instead of auto.")
        reached = np.array([balanced_accuracy(predict(run, float(each), "val").confusion) for each in NORMALISE_TAUS])
        best, plain = NORMALISE_TAUS[reached >= reached.max() - ROUNDING], run.summary.selected.val_balanced_accuracy
        if plain is not None and reached.max() < plain - ROUNDING:
            raise EvenhandError(
                f"No tau of normalised weights improves {run.path}: the best reaches {reached.max():.1%} on "
                f"validation, the network as it is {plain:.1%}; give a number to use one anyway."
            )
        tau, chosen = float(round(best[np.argmin(np.abs(best - 1))], 3)), "validation"
    return predict(run, tau, "test"), {"kind": "tau-normalised", "chosen": chosen, "tau": tau}


def _predict_normalised(
    run: Run, tau: float, split: str, *, data_root: Path | str | None, skip_bad: bool, allow_outside: bool
) -> Predictions:
    config = run.config
    unseen = run.refitted and split == "val"  # validation images were trained on in the end
    model = load(run.validated_weights if unseen else run.path, adjust=False)
    normalise_head(model.network, tau)
    table = load_source(
        config.data.source,
        data_root=data_root or config.data.root,
        allow_outside=allow_outside or config.data.allow_outside,
    )
    rows = rows_of(table, getattr(run.splits, split), run)
    return predict_rows(model, config, table, rows, run.predictions.train_counts, skip_bad=skip_bad)[0]


def _require_uncorrected(run: Run) -> Objective:
    """Return the objective that a run was trained with; refuse one that corrects for the class counts already."""
    objective = training_objective(run)
    named = corrections(objective)
    if named:
        raise EvenhandError(
            f"{run.path} was trained with {named[0]}, which corrects for the class counts already; an adjustment "
            "would do so twice."
        )
    return objective


def _no_need(run: Run, correction: str) -> str:
    kept = "" if run.adjustment is None else f"; it keeps its adjustment ({run.adjustment.describe()})"
    return (
        f"{run.path} was trained with {correction}, which corrects for the class counts already, so --adjust auto "
        f"changes nothing{kept}."
    )


def _same_images(predictions: Predictions, others: Predictions) -> Predictions:
    """Leave out the images that the others do not have."""
    return take(predictions, np.flatnonzero(np.isin(predictions.ids, others.ids)))


def _parse_tau(text: str, option: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 10:
        raise EvenhandError(f"--{option} takes auto or a number from 0 to 10, got {text!r}.")
    return value
