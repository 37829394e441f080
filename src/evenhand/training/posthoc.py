"""A finished run judged with its logits adjusted, and the adjustment kept for those who use the model."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.priors import TAUS
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training._adjusting import KEPT, Adjusted, adjust, at_the_end, change_prior_of, refuse_twice
from evenhand.training.evaluate import Evaluation, predict_rows, rows_of
from evenhand.training.predict import TrainedModel, even_out, load, selected_weights

ROUNDING = 1e-9
EVENED = TAUS[TAUS <= 1.5]
"""What is tried for tau-normalised weights; 0 leaves out the bias alone, 1 makes all equally long."""


@dataclass(frozen=True)
class Wish:
    """What to do to the logits of a finished run: one of these.

    Attributes:
        adjust: tau of post-hoc logit adjustment, or `auto`.
        prior: `train`, `balanced` or a file of class shares.
        normalise: tau of tau-normalised weights, or `auto`; the bias is left out, even at 0.
    """

    adjust: str | None = None
    prior: str | None = None
    normalise: str | None = None

    def __post_init__(self) -> None:
        asked = [name for name in ("adjust", "prior", "normalise") if getattr(self, name) is not None]
        if self.prior == "":
            raise EvenhandError("--prior takes train, balanced or a file of class shares, got ''.")
        if len(asked) > 1:
            raise EvenhandError(f"--{asked[0]} and --{asked[1]} both change the logits; give one of them.")


def evaluate_adjusted(
    run: Path | str,
    wish: Wish,
    *,
    data_root: Path | str | None = None,
    skip_bad: bool = False,
    allow_outside: bool = False,
) -> Evaluation:
    """Judge a finished run with its logits adjusted; the adjustment is kept in the run, its own files stay as they are.

    From then on :func:`evenhand.load`, `predict` and `export` apply it. It is made from the logits as the network
    gives them, so that another one takes its place.

    Args:
        run: the folder of a finished run.
        wish: what to do to its logits. Only evened out weights read images, which the rest is about.
        data_root: where data sets lie; None: where the run found them.
        skip_bad: leave images out that cannot be read.
        allow_outside: let a folder or a manifest lead to files elsewhere, even if the run did not.

    Raises:
        EvenhandError: the run is not finished, or its training does not allow the adjustment.
    """
    folder = Run(Path(run))
    selected_weights(folder.path)  # says where there is nothing at all
    folder.require()  # a file of weights is none
    before = folder.summary.model_dump(mode="json", exclude_unset=True)
    if wish.normalise is not None:
        predict = partial(_predict_evened, data_root=data_root, skip_bad=skip_bad, allow_outside=allow_outside)
        adjusted = _evened(folder, _tau(wish.normalise, "normalise"), predict)
    elif wish.prior is not None:
        adjusted = change_prior_of(run, wish.prior)
    else:
        adjusted = adjust(run, _tau("auto" if wish.adjust is None else wish.adjust, "adjust"))
    judged = summarise(adjusted.predictions)
    plain = summarise(_same_images(replace(folder.predictions, adjustment=None), adjusted.predictions))
    content = {**adjusted.adjustment, **{key: judged[key] for key in KEPT}}
    folder.write_adjustment(content)
    said: dict[str, Any] = {"adjustment": adjusted.adjustment, "unadjusted": {key: plain[key] for key in KEPT}}
    remarks = at_the_end(said, TAUS if wish.normalise is None else EVENED)
    unread = len(folder.predictions) - len(adjusted.predictions)
    if unread:
        remarks += (f"Left out as unreadable: {unread} of {len(folder.predictions)} test images.",)
    return Evaluation(adjusted.predictions, {**before, **judged, **said}, remarks)


def _same_images(predictions: Predictions, others: Predictions) -> Predictions:
    """Leave out the images of which the others say nothing."""
    kept = np.isin(predictions.ids, others.ids)
    groups = None if predictions.groups is None else predictions.groups[kept]
    return replace(
        predictions,
        logits=predictions.logits[kept],
        targets=predictions.targets[kept],
        ids=predictions.ids[kept],
        groups=groups,
    )


def _tau(text: str, option: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 10:
        raise EvenhandError(f"--{option} takes auto or a number from 0 to 10, got {text!r}.")
    return value


def _evened(folder: Run, tau: float | Literal["auto"], predict: Callable[[Run, float, str], Predictions]) -> Adjusted:
    """Predict with tau-normalised weights; tau is chosen on validation where it is not given."""
    refuse_twice(folder)
    chosen = "given"
    if tau == "auto":
        if not folder.splits.val:
            raise EvenhandError("There are no validation images to choose tau by; give a number instead of auto.")
        reached = np.array([_reached(predict(folder, float(each), "val")) for each in EVENED])
        best, plain = EVENED[reached >= reached.max() - ROUNDING], folder.summary.selected.val_balanced_accuracy
        if plain is not None and reached.max() < plain - ROUNDING:
            raise EvenhandError(
                f"No tau evens out the weights of {folder.path} for the better: on validation the best reaches "
                f"{reached.max():.1%}, and the network as it is {plain:.1%}; give a number to have one all the same."
            )
        tau, chosen = float(round(best[np.argmin(np.abs(best - 1))], 3)), "validation"
    adjustment = {"kind": "tau-normalised", "chosen": chosen, "tau": tau}
    return Adjusted(predict(folder, tau, "test"), adjustment)


def _reached(predictions: Predictions) -> float:
    predicted, classes = predictions.predicted(), predictions.num_classes
    return float(balanced_accuracy(confusion_matrix(predictions.targets, predicted, classes)))


def _predict_evened(
    folder: Run, tau: float, split: str, *, data_root: Path | str | None, skip_bad: bool, allow_outside: bool
) -> Predictions:
    config = folder.config
    model: TrainedModel = load(selected_weights(folder.path))
    even_out(model.network, tau)
    table = load_source(
        config.data.source,
        data_root=data_root or config.data.root,
        allow_outside=allow_outside or config.data.allow_outside,
    )
    rows = rows_of(table, getattr(folder.splits, split), folder)
    return predict_rows(model, config, table, rows, folder.predictions.train_counts, skip_bad=skip_bad)[0]
