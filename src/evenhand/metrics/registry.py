"""Every metric, declared once: summaries, tables, files and pages iterate over this list.

To add one, write its function in :mod:`evenhand.metrics.classification` and add an entry here.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from evenhand.core.text import clipped
from evenhand.metrics import classification
from evenhand.metrics.classification import Confusion
from evenhand.metrics.predictions import Predictions

Place = Literal["compare", "report", "serve", "evaluate"]
"""Where a metric is shown; summaries and JSON hold all of them."""

BOUNDS = {"share": (0.0, 1.0), "coefficient": (-1.0, 1.0), "number": (0.0, math.inf)}
"""The range of each kind of metric."""


@dataclass(frozen=True)
class Metric:
    """A number that describes predictions.

    Example:
        >>> from evenhand.metrics.registry import METRICS
        >>> METRICS["macro_f1"].title, METRICS["macro_f1"].format(0.8125), METRICS["nll"].format(0.25)
        ('macro F1', '81.2', '0.250')
    """

    name: str
    """Its key in summaries, JSON and CSV."""
    title: str
    """Shown in sentences and as the heading of a column."""
    function: Callable[[Predictions], float]
    kind: Literal["share", "coefficient", "number"] = "share"
    """`share`: 0 to 1, shown in percent. `coefficient`: -1 to 1. `number`: 0 or more, without an upper bound."""
    shown: frozenset[Place] = frozenset(("report", "serve", "evaluate"))
    from_confusion: Callable[[Confusion], float] | None = None
    """The same metric, from the confusion matrix; None where the matrix is not enough."""

    @property
    def unit(self) -> str:
        """The sign that follows a formatted value."""
        return "%" if self.kind == "share" else ""

    def format(self, value: float | None) -> str:
        """Return a value as it is shown: percent without the sign for a share, nothing where there is none."""
        if value is None:
            return ""
        return f"{100 * value:.1f}" if self.kind == "share" else f"{value:.3f}"

    def check(self, value: object) -> float:
        """Return a stored value, which must be a finite number in the bounds of its kind.

        Raises:
            ValueError: it is not.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.name} must be a number, got {type(value).__name__}")
        low, high = BOUNDS[self.kind]
        # Compared, not converted: a whole number may be larger than any float.
        if not low - 1e-9 <= value <= min(high + 1e-9, sys.float_info.max):
            expected = f"{low:g} to {high:g}" if high < math.inf else f"{low:g} or more, and finite"
            raise ValueError(f"{self.name} must be {expected}, got {clipped(str(value))}")
        return float(value)


_EVERYWHERE: frozenset[Place] = frozenset(("compare", "report", "serve", "evaluate"))
_NOT_COMPARED = _EVERYWHERE - {"compare"}


def _of_confusion(
    name: str,
    title: str,
    function: Callable[[Confusion], float],
    kind: Literal["share", "coefficient", "number"] = "share",
    shown: frozenset[Place] = _EVERYWHERE,
) -> Metric:
    """Declare a metric that is a function of the confusion matrix."""
    return Metric(name, title, lambda predictions: function(predictions.confusion), kind, shown, function)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _of_confusion("balanced_accuracy", "balanced accuracy", classification.balanced_accuracy),
        _of_confusion("accuracy", "accuracy", classification.accuracy),
        _of_confusion("macro_f1", "macro F1", classification.macro_f1),
        _of_confusion("geometric_mean", "G-mean", classification.geometric_mean),
        _of_confusion("matthews_correlation", "MCC", classification.matthews_correlation, "coefficient", _NOT_COMPARED),
        _of_confusion("cohen_kappa", "Cohen's kappa", classification.cohen_kappa, "coefficient", _NOT_COMPARED),
        Metric(
            "nll",
            "NLL (nats)",
            lambda predictions: classification.negative_log_likelihood(
                predictions.log_probabilities(), predictions.targets
            ),
            kind="number",
        ),
        Metric(
            "ece",
            "ECE",
            lambda predictions: classification.expected_calibration_error(
                predictions.confidences(), predictions.correct()
            ),
            shown=_EVERYWHERE,
        ),
        Metric("mean_confidence", "mean confidence", lambda predictions: float(predictions.confidences().mean())),
    )
}
"""By name, in the order in which they are shown."""
