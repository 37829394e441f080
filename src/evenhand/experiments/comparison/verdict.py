"""What paired differences allow to say in plain words, and no more than that."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.metrics.paired import LEVEL, detectable_difference, holm, paired_bootstrap, paired_difference
from evenhand.metrics.predictions import Predictions

METRICS = {"balanced_accuracy": "balanced accuracy", "few": "few-shot classes"}
"""What a family of tests is about: each objective is compared with the baseline in both."""

Outcome = Literal["better", "worse", "cannot tell"]
Method = Literal["paired t over seeds", "paired bootstrap over test images"]


@dataclass(frozen=True)
class Difference:
    """One objective against the baseline in one metric; shares, 0 to 1."""

    objective: str
    baseline: str
    metric: str
    """A key of `METRICS`."""
    method: Method
    seeds: int
    mean: float
    low: float | None
    """Of the plain 95% interval, which no correction has widened; None where nothing spreads."""
    high: float | None
    spread: float | None = None
    """Standard deviation of the differences over seeds."""
    p: float | None = None
    """None where there is no test: with one seed, or where nothing spreads."""
    holm_p: float | None = None
    """Corrected for the family: all objectives times both metrics."""
    detectable: float | None = None
    """Found with 80% power by this test alone at 5%, at the spread that was seen."""
    detectable_in_family: float | None = None
    """The same at Holm's first step, 5% divided by the number of tests: what a verdict can be counted on to claim."""

    @property
    def outcome(self) -> Outcome:
        """What may be claimed: a difference only where Holm's p is below 5%."""
        if self.holm_p is None or self.holm_p >= LEVEL:
            return "cannot tell"
        return "better" if self.mean > 0 else "worse"

    def sentence(self) -> str:
        """Say it in plain words, in points.

        Example:
            >>> from evenhand.experiments.comparison.verdict import judge_differences
            >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
            >>> for difference in judge_differences({"balanced_accuracy": values}, "ce"):
            ...     print(difference.sentence())
            balanced accuracy: cce +2.0 [1.9, 2.2] over ce, 3 seeds
            balanced accuracy: cot +0.7 [-0.8, 2.1] against ce: cannot tell with 3 seeds; only differences above about
            2.7 points would show
        """
        start = f"{METRICS[self.metric]}: {self.objective}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        size = in_points(self.mean, self.low, self.high)
        if self.outcome == "better":
            return f"{start} {size} over {self.baseline}, {seeds}"
        if self.outcome == "worse":
            return f"{start} worse, {size} against {self.baseline}, {seeds}"
        return f"{start} {size} against {self.baseline}: {self._why(seeds)}"

    def _why(self, seeds: str) -> str:
        """Say why nothing is claimed."""
        if self.method == "paired bootstrap over test images":
            return f"cannot tell with {seeds}; the interval is over test images and says nothing about training noise"
        if self.seeds < 2:
            return f"cannot tell with {seeds}"
        if self.p is None:
            return (
                f"cannot tell, as all {seeds} differ by the same amount, to within one test image, and so show no "
                "spread to test with"
            )
        if self.spread == 0:
            return f"no difference in any of {seeds}"
        if self.p < LEVEL:
            return f"cannot tell with {seeds}; too little after Holm's correction (p = {self.holm_p:.2g})"
        if self.detectable_in_family is None or self.detectable_in_family > 1:
            return f"cannot tell with {seeds}; no difference can be counted on to show with so few"
        least = _rounded(self.detectable_in_family)
        return f"cannot tell with {seeds}; only differences above about {least} points would show"


def judge_differences(
    values: Mapping[str, Mapping[str, Sequence[float]]],
    baseline: str,
    *,
    resolutions: Mapping[str, float] | None = None,
) -> list[Difference]:
    """Compare every objective with the baseline over seeds: one family of tests, corrected by Holm.

    Args:
        values: for each metric, for each objective, a value a seed; the same seeds in the same order everywhere.
        baseline: the objective that the others are compared with.
        resolutions: for each metric what one test image changes; differences that vary by less are equal.

    Returns:
        A difference for each objective and metric.

    Example:
        >>> from evenhand.experiments.comparison.verdict import judge_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811]}
        >>> [difference] = judge_differences({"balanced_accuracy": values}, "ce")
        >>> difference.outcome, round(difference.holm_p, 4)
        ('better', 0.0003)
    """
    pairs = [(metric, name) for metric in values for name in values[metric] if name != baseline]
    steps = resolutions or {}
    found = [
        paired_difference(values[metric][name], values[metric][baseline], resolution=steps.get(metric, 0.0))
        for metric, name in pairs
    ]
    corrected = holm([each.p for each in found])
    tests = sum(each.p is not None for each in found)
    return [
        Difference(
            objective=name,
            baseline=baseline,
            metric=metric,
            method="paired t over seeds",
            seeds=each.n,
            mean=each.mean,
            low=each.low,
            high=each.high,
            spread=each.spread,
            p=each.p,
            holm_p=holm_p,
            detectable=each.detectable,
            detectable_in_family=(
                detectable_difference(each.spread, each.n, level=LEVEL / tests) if each.spread and tests else None
            ),
        )
        for (metric, name), each, holm_p in zip(pairs, found, corrected, strict=True)
    ]


def differences_on_images(
    predictions: Mapping[str, Predictions], baseline: str, classes: Mapping[str, Iterable[int] | None], *, seed: int
) -> list[Difference]:
    """Compare models of one seed over test images; nothing can be claimed about their objectives from that.

    Args:
        predictions: of each objective's one model, on the same test images.
        baseline: the objective that the others are compared with.
        classes: for each metric the classes to average over; None: all.
        seed: of the bootstrap.
    """
    differences = []
    for metric, chosen in classes.items():
        members = None if chosen is None else tuple(chosen)
        for name in predictions:
            if name == baseline:
                continue
            drawn = paired_bootstrap(predictions[name], predictions[baseline], members, seed=seed)
            if drawn is not None:
                mean, low, high = drawn
                differences.append(
                    Difference(name, baseline, metric, "paired bootstrap over test images", 1, mean, low, high)
                )
    return differences


def conclusion(differences: Sequence[Difference], baseline: str) -> str:
    """Say in one sentence which objective to use, if these differences show one.

    Example:
        >>> from evenhand.experiments.comparison.verdict import conclusion, judge_differences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80]}
        >>> conclusion(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        'No winner: nothing here is shown to be better than ce; stay with ce, or add seeds.'
    """
    if not differences:
        return f"No winner: there is nothing to compare {baseline} with."
    if differences[0].seeds < 2:
        return "No winner: one seed cannot tell a better objective from training noise; run 3 seeds or more."
    better, worse = (
        _names(differences, "balanced_accuracy", "better"),
        _names(differences, "balanced_accuracy", "worse"),
    )
    gains, losses = _names(differences, "few", "better"), _names(differences, "few", "worse")
    if len(better) == 1:
        [winner] = better
        few = (
            ", for few-shot classes too"
            if winner in gains
            else "; its few-shot classes pay"
            if winner in losses
            else ""
        )
        return f"Use {winner}: better than {baseline} in balanced accuracy{few}."
    if better:
        price = [name for name in better if name in losses]
        paid = f" ({_listed(price)} at the price of few-shot classes)" if price else ""
        return (
            f"Use {_listed(better, 'or')}: each is better than {baseline} in balanced accuracy{paid}; which of them is "
            "best was not tested."
        )
    if gains:
        price = [name for name in gains if name in worse]
        paid = f" ({_listed(price)} at the price of balanced accuracy)" if price else ""
        return (
            f"No winner in balanced accuracy; where only few-shot classes matter, {_listed(gains)} "
            f"{'is' if len(gains) == 1 else 'are'} better than {baseline}{paid}."
        )
    if set(worse) == {each.objective for each in differences}:
        return f"Use {baseline}: {_listed(worse)} {'is' if len(worse) == 1 else 'are'} worse in balanced accuracy."
    return f"No winner: nothing here is shown to be better than {baseline}; stay with {baseline}, or add seeds."


def in_points(mean: float, low: float | None, high: float | None) -> str:
    """Write a difference of shares in points, with its interval.

    Example:
        >>> from evenhand.experiments.comparison.verdict import in_points
        >>> in_points(0.008, 0.002, 0.014), in_points(-0.012, None, None), in_points(0.0005, 0.0001, 0.0009)
        ('+0.8 [0.2, 1.4]', '-1.2', '+0.05 [0.01, 0.09]')
    """
    numbers = [100 * each for each in (mean, low, high) if each is not None]
    # More digits only where fewer would show as 0 what is not.
    digits = next((d for d in (1, 2) if all(each == 0 or round(each, d) for each in numbers)), 3)
    rounded = [round(each, digits) + 0.0 for each in numbers]  # + 0.0 turns -0.0 into 0.0
    middle, *ends = (f"{each:.{digits}f}" for each in rounded)
    sign = "+" * (rounded[0] > 0)
    return f"{sign}{middle} [{', '.join(ends)}]" if len(ends) == 2 else f"{sign}{middle}"


def _names(differences: Sequence[Difference], metric: str, outcome: Outcome) -> list[str]:
    return [each.objective for each in differences if each.metric == metric and each.outcome == outcome]


def _listed(names: Sequence[str], joined: str = "and") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def _rounded(share: float) -> str:
    points = 100 * share
    return f"{points:.1f}" if points >= 0.1 else f"{points:.2g}"
