"""Logits adjusted after training, kept beside the unadjusted result."""

from typing import Any

from evenhand.metrics.predictions import Predictions
from evenhand.metrics.summary import summarise
from evenhand.training.objectives.after import Fitted


def describe_adjustment(fitted: Fitted, unadjusted: Predictions) -> dict[str, Any]:
    """Say what was added to the logits and what they reach without it, for a summary."""
    plain = summarise(unadjusted)
    kept = ("accuracy", "balanced_accuracy", "balanced_accuracy_interval", "macro_f1", "groups", "nll", "ece")
    return {
        "adjustment": {"tau": fitted.tau, "chosen": fitted.chosen, "added_to_logits": fitted.values.tolist()},
        "unadjusted": {key: plain[key] for key in kept},
    }
