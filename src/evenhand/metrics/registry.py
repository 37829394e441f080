"""Every metric of predictions, declared once: summaries, tables, files and pages iterate over this list."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from evenhand.metrics import classification
from evenhand.metrics.predictions import Predictions

Place = Literal["compare", "report", "serve", "evaluate"]
"""Where a metric is shown; summaries and JSON hold all of them."""


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
    """For people, in a sentence or as the head of a column."""
    function: Callable[[Predictions], float]
    kind: Literal["share", "number"] = "share"
    """A share, 0 to 1 and shown in percent, or any number."""
    shown: frozenset[Place] = frozenset(("report", "serve", "evaluate"))

    def format(self, value: float | None) -> str:
        """Return a value as it is shown: percent without the sign for a share, nothing where there is none."""
        if value is None:
            return ""
        return f"{100 * value:.1f}" if self.kind == "share" else f"{value:.3f}"


_EVERYWHERE: frozenset[Place] = frozenset(("compare", "report", "serve", "evaluate"))

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            "balanced_accuracy",
            "balanced accuracy",
            lambda predictions: classification.balanced_accuracy(predictions.confusion),
            shown=_EVERYWHERE,
        ),
        Metric(
            "accuracy",
            "accuracy",
            lambda predictions: classification.accuracy(predictions.confusion),
            shown=_EVERYWHERE,
        ),
        Metric(
            "macro_f1",
            "macro F1",
            lambda predictions: classification.macro_f1(predictions.confusion),
            shown=_EVERYWHERE,
        ),
        Metric(
            "geometric_mean",
            "G-mean of recalls",
            lambda predictions: classification.geometric_mean(predictions.confusion),
            shown=_EVERYWHERE,
        ),
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
