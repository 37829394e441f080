"""What differences allow to say in plain words, and no more than that."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.paired import LEVEL

METRICS = {"balanced_accuracy": "balanced accuracy", "few": "few-shot classes"}
"""What is compared: balanced accuracy first, and few-shot classes where it shows a difference."""

Outcome = Literal[
    "better",
    "better by less than matters",
    "better on these test images only",
    "worse",
    "worse by less than matters",
    "worse on these test images only",
    "no difference that matters",
    "cannot tell yet",
]


@dataclass(frozen=True)
class Difference:
    """One objective against the baseline in one metric; shares, 0 to 1."""

    objective: str
    baseline: str
    metric: str
    """A key of `METRICS`."""
    seeds: int
    mean: float
    low: float | None
    """Of the interval that the verdict is read from, at the level of this question; at the level of all where its turn
    has not come; over test images at 95% with one seed. None where nothing spreads."""
    high: float | None
    level: float = 0.0
    """The share of the 5% that this question had; 0: its turn has not come."""
    claimed: bool = False
    """Whether a difference stands: p is at most the level."""
    on_these_images: bool = False
    """Whether it stands for these test images, which others may not confirm."""
    margin: float = 0.01
    """Differences that are smaller do not matter."""
    p: float | None = None
    """None where there is no test: with one seed, or where nothing spreads."""
    spread: float | None = None
    """Standard deviation of the differences over seeds."""
    failed: str = ""
    """Why nothing is concluded; empty where nothing failed."""
    evidence: Evidence | None = field(default=None, repr=False, compare=False)
    """What it is read from."""

    @property
    def outcome(self) -> Outcome:
        """What may be claimed."""
        inside = self.low is not None and self.high is not None and -self.margin < self.low <= self.high < self.margin
        up = self.mean > 0
        if self.claimed:
            if inside:
                return "better by less than matters" if up else "worse by less than matters"
            return "better" if up else "worse"
        if self.level > 0 and self.p is not None and self.spread and inside:
            return "no difference that matters"
        if self.on_these_images:
            return "better on these test images only" if up else "worse on these test images only"
        return "cannot tell yet"

    @property
    def more_seeds(self) -> int | None:
        """So many more would probably decide; None where a hundred would not, or nothing is left to decide."""
        if self.decided or self.evidence is None:
            return None
        return self.evidence.more_seeds(self.level or LEVEL, self.margin)

    @property
    def decided(self) -> bool:
        """Whether more seeds have nothing to add."""
        return self.claimed or self.outcome == "no difference that matters"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain numbers and text."""
        own = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "evidence"}
        words = {"outcome": self.outcome, "words": outcome_words(self), "more_seeds": self.more_seeds}
        images = None if self.evidence is None else self.evidence.images
        return {**own, **words, "images": None if images is None else asdict(images)}

    def sentence(self) -> str:
        """Say it in plain words, in points.

        Example:
            >>> from evenhand.experiments.comparison import judge_differences
            >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
            >>> for difference in judge_differences({"balanced_accuracy": values}, "ce"):
            ...     print(difference.sentence())
            balanced accuracy: cce +2.0 [1.4, 2.7] over ce, 3 seeds
            balanced accuracy: cot +0.7 [-0.4, 1.7] against ce: cannot tell yet with 3 seeds; 5 more would probably tell
        """
        start = f"{METRICS[self.metric]}: {self.objective}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        size, outcome = in_points(self.mean, self.low, self.high), self.outcome
        less = f", by less than matters ({points(self.margin)})" if outcome.endswith("less than matters") else ""
        if outcome.endswith("only"):
            return f"{start} {size} against {self.baseline}, {seeds}: {outcome}; others could turn it round"
        if outcome.startswith("better"):
            return f"{start} {size} over {self.baseline}{less}, {seeds}"
        if outcome.startswith("worse"):
            return f"{start} worse, {size} against {self.baseline}{less}, {seeds}"
        if outcome == "no difference that matters":
            return f"{start} {size} against {self.baseline}: {outcome} (below {points(self.margin)}), {seeds}"
        return f"{start} {size} against {self.baseline}: {self.why()}"

    def why(self) -> str:
        """Say why nothing is claimed."""
        if self.failed:
            return f"nothing is concluded, as {self.failed}"
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}"
        if self.seeds < 2:
            return (
                f"cannot tell yet with {seeds}; the interval is over test images and says nothing about training noise"
            )
        if self.spread == 0 and self.mean == 0:
            return f"no difference in any of {seeds}"
        if self.p is None:
            return (
                f"cannot tell, as all {seeds} differ by the same amount, to within one test image, and so show no "
                "spread to test with"
            )
        if self.level == 0:
            return "not tested, as balanced accuracy comes first and shows no difference"
        return f"cannot tell yet with {seeds}; {self.what_would_tell()}"

    def what_would_tell(self) -> str:
        """Say what it would take, if the true difference and spread are those seen."""
        if self.more_seeds is None:
            return "more seeds alone would hardly tell"
        return f"{self.more_seeds} more would probably tell"


def verdict_sentences(differences: Sequence[Difference]) -> list[str]:
    """Say everything that is known, a sentence each, and fold what is not into one.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import verdict_sentences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80], "focal": [0.80, 0.80, 0.80]}
        >>> verdict_sentences(judge_differences({"balanced_accuracy": values, "few": values}, "ce"))
        ['cannot tell yet with 3 seeds: cot, focal in balanced accuracy; 9 more would probably tell about focal']
    """
    if differences and differences[0].seeds < 2:
        return [each.sentence() for each in differences]
    differences = [each for each in differences if not each.failed]
    known = [each.sentence() for each in differences if each.outcome != "cannot tell yet"]
    odd = [
        each.sentence()
        for each in differences
        if each.outcome == "cannot tell yet" and each.level > 0 and not each.spread
    ]
    folded = []
    for metric, words in METRICS.items():
        open_ = [
            each
            for each in differences
            if each.metric == metric and each.outcome == "cannot tell yet" and each.level > 0 and each.spread
        ]
        if open_:
            listed = ", ".join(each.objective for each in open_)
            folded.append(f"cannot tell yet with {open_[0].seeds} seeds: {listed} in {words}; {_nearest(open_)}")
    return [*known, *odd, *folded]


def _nearest(differences: Sequence[Difference]) -> str:
    """Say about which of these the fewest further seeds would tell."""
    within = [each for each in differences if each.more_seeds is not None]
    if not within:
        return "more seeds alone would hardly tell"
    first = min(within, key=lambda each: each.more_seeds or 0)
    about = "" if len(differences) == 1 else f" about {first.objective}"
    return f"{first.more_seeds} more would probably tell{about}"


def conclusion(differences: Sequence[Difference], baseline: str) -> str:
    """Say in one sentence which objective to use, if these differences show one.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import conclusion
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80]}
        >>> conclusion(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        'No winner yet: with 3 seeds nothing is shown to be better than ce; stay with ce.'
    """
    if not differences:
        return f"No winner: there is nothing to compare {baseline} with."
    if differences[0].seeds < 2:
        return "No winner yet: one seed cannot tell a better objective from training noise; run 3 seeds or more."
    primary = [each for each in differences if each.metric == differences[0].metric and not each.failed]
    if not primary:
        return f"Nothing is concluded: {differences[0].failed}."
    better = [each.objective for each in primary if each.claimed and each.mean > 0]
    if better:
        return _use(better, differences, baseline)
    here = [each.objective for each in primary if each.outcome == "better on these test images only"]
    if here:
        return (
            f"No winner yet: {listed(here)} {_is(here)} better than {baseline} on these test images only; test on more "
            f"images before leaving {baseline}."
        )
    worse = [each.objective for each in primary if each.claimed]
    alike = [each.objective for each in primary if each.outcome == "no difference that matters"]
    if len(worse) + len(alike) == len(primary):
        parts = [f"{listed(worse)} {_is(worse)} worse in balanced accuracy"] if worse else []
        if alike:
            parts.append(f"{listed(alike)} {_is(alike)} no different by {points(primary[0].margin)} or more")
        return f"Use {baseline}: {', and '.join(parts)}."
    return (
        f"No winner yet: with {primary[0].seeds} seeds nothing is shown to be better than {baseline}; stay with "
        f"{baseline}."
    )


def candidates(differences: Sequence[Difference], baseline: str) -> list[str]:
    """Return the objectives that :func:`conclusion` speaks for: those that are better, or else the baseline.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import candidates
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80]}
        >>> candidates(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        ['ce']
    """
    if not differences or differences[0].seeds < 2:
        return [baseline]
    primary = [each for each in differences if each.metric == differences[0].metric and not each.failed]
    return [each.objective for each in primary if each.claimed and each.mean > 0] or [baseline]


def _use(better: Sequence[str], differences: Sequence[Difference], baseline: str) -> str:
    few = {each.objective: each.mean > 0 for each in differences if each.metric == "few" and each.claimed}
    small = [
        each.objective
        for each in differences
        if each.metric == differences[0].metric and each.outcome == "better by less than matters"
    ]
    if len(better) == 1:
        [winner] = better
        less = f", by less than {points(differences[0].margin)}" if small else ""
        words = {True: ", for few-shot classes too", False: "; its few-shot classes pay"}
        shot = words[few[winner]] if winner in few else ""
        return f"Use {winner}: better than {baseline} in balanced accuracy{less}{shot}."
    price = [name for name in better if few.get(name) is False]
    remarks = [f"{listed(price)} at the price of few-shot classes"] if price else []
    if small:
        remarks.append(f"{listed(small)} by less than {points(differences[0].margin)}")
    told = f" ({'; '.join(remarks)})" if remarks else ""
    return (
        f"Use {listed(better, 'or')}: each is better than {baseline} in balanced accuracy{told}; which of them is best "
        "was not tested."
    )


def outcome_words(difference: Difference) -> str:
    """Return the outcome as tables show it, wherever they are."""
    if difference.failed:
        return "failed"
    if difference.mean == 0 == difference.spread:
        return "no difference seen"
    return "not tested" if difference.level == 0 and difference.p is not None else difference.outcome


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


def points(share: float) -> str:
    """Write a share in points.

    Example:
        >>> from evenhand.experiments.comparison.verdict import points
        >>> points(0.01), points(0.005)
        ('1 point', '0.5 points')
    """
    number = f"{100 * share:g}"
    return f"{number} point{'s' * (number != '1')}"


def listed(names: Sequence[str], joined: str = "and") -> str:
    """Write names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
