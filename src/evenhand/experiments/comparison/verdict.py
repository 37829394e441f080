"""Tested differences in words, and no claim beyond them."""

from collections.abc import Sequence

from evenhand.runs.comparison import PRIMARY, TESTED, Difference


def difference_sentence(difference: Difference) -> str:
    """Return one difference in words, in points.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import difference_sentence
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> for difference in judge_differences({"balanced_accuracy": values}, "ce"):
        ...     print(difference_sentence(difference))
        balanced accuracy: cce +2.0 [1.4, 2.7] over ce, 3 seeds
        balanced accuracy: cot +0.7 [-0.4, 1.7] against ce: undecided with 3 seeds; 5 more would probably decide
    """
    baseline, outcome = difference.baseline, difference.outcome
    start = f"{TESTED.get(difference.metric, difference.metric)}: {difference.objective}"
    seeds = _seeds(difference)
    size = in_points(difference.mean, difference.low, difference.high)
    less = f", by less than the margin ({points(difference.margin)})" if outcome.endswith("the margin") else ""
    if outcome.endswith("only"):
        return f"{start} {size} against {baseline}, {seeds}: {outcome}; may not hold on other test images"
    if outcome.startswith("better"):
        return f"{start} {size} over {baseline}{less}, {seeds}"
    if outcome.startswith("worse"):
        return f"{start} worse, {size} against {baseline}{less}, {seeds}"
    if outcome == "no difference that matters":
        return f"{start} {size} against {baseline}: {outcome} (below {points(difference.margin)}), {seeds}"
    return f"{start} {size} against {baseline}: {_why_undecided(difference)}"


def _why_undecided(difference: Difference) -> str:
    seeds = _seeds(difference)
    if difference.failed:
        return f"nothing is concluded: {difference.failed}"
    if difference.seeds < 2:
        return f"undecided with {seeds}; the interval covers test images, not training noise"
    if difference.spread == 0 and difference.mean == 0:
        return f"no difference in any of {seeds}"
    if difference.p is None:
        return (
            f"undecided: all {seeds} differ by the same amount, to within one test image, so there is no spread to "
            "test with"
        )
    if difference.level == 0:
        return "not tested, because balanced accuracy is tested first and shows no difference"
    return f"undecided with {seeds}; {_seeds_needed([difference])}"


def _seeds_needed(differences: Sequence[Difference]) -> str:
    """Return how many more seeds would decide the first of these, if the true difference and spread are those seen."""
    within = [each for each in differences if each.more_seeds is not None]
    if not within:
        return "more seeds are unlikely to decide this"
    first = min(within, key=lambda each: each.more_seeds or 0)
    about = "" if len(differences) == 1 else f" {first.objective}"
    return f"{first.more_seeds} more would probably decide{about}"


def verdict_sentences(differences: Sequence[Difference]) -> list[str]:
    """Return a sentence per difference that is known, and one per metric for all that are undecided.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import verdict_sentences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80], "focal": [0.80, 0.80, 0.80]}
        >>> verdict_sentences(judge_differences({"balanced_accuracy": values, "few": values}, "ce"))
        ['undecided with 3 seeds: cot, focal in balanced accuracy; 9 more would probably decide focal']
    """
    if differences and differences[0].seeds < 2:
        return [difference_sentence(each) for each in differences]
    differences = [each for each in differences if not each.failed]
    known = [difference_sentence(each) for each in differences if each.outcome != "undecided"]
    tested = [each for each in differences if each.outcome == "undecided" and each.level > 0]
    without_spread = [difference_sentence(each) for each in tested if not each.spread]
    folded = []
    for metric, title in TESTED.items():
        undecided = [each for each in tested if each.metric == metric and each.spread]
        if undecided:
            names = ", ".join(each.objective for each in undecided)
            folded.append(f"undecided with {_seeds(undecided[0])}: {names} in {title}; {_seeds_needed(undecided)}")
    return [*known, *without_spread, *folded]


def conclusion(differences: Sequence[Difference], baseline: str) -> str:
    """Return in one sentence which objective to use, if these differences show one.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import conclusion
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80]}
        >>> conclusion(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        'No winner yet: with 3 seeds nothing is shown to be better than ce; keep ce.'
    """
    if not differences:
        return f"No winner: there is nothing to compare {baseline} with."
    if differences[0].seeds < 2:
        return "No winner yet: one seed cannot separate a better objective from training noise; run 3 seeds or more."
    primary = _primary(differences)
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
    return f"No winner yet: with {_seeds(primary[0])} nothing is shown to be better than {baseline}; keep {baseline}."


def candidates(differences: Sequence[Difference], baseline: str) -> list[str]:
    """Return the objectives that :func:`conclusion` recommends: those that are better, or else the baseline.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import candidates
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80]}
        >>> candidates(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        ['ce']
    """
    if not differences or differences[0].seeds < 2:
        return [baseline]
    return [each.objective for each in _primary(differences) if each.claimed and each.mean > 0] or [baseline]


def _primary(differences: Sequence[Difference]) -> list[Difference]:
    return [each for each in differences if each.metric == differences[0].metric and not each.failed]


def _use(better: Sequence[str], differences: Sequence[Difference], baseline: str) -> str:
    few = {each.objective: each.mean > 0 for each in differences if each.metric != PRIMARY and each.claimed}
    small = [each.objective for each in _primary(differences) if each.outcome == "better by less than the margin"]
    if len(better) == 1:
        [winner] = better
        less = f", by less than {points(differences[0].margin)}" if small else ""
        shot = {True: ", for few-shot classes too", False: "; worse for few-shot classes", None: ""}[few.get(winner)]
        return f"Use {winner}: better than {baseline} in balanced accuracy{less}{shot}."
    worse = [name for name in better if few.get(name) is False]
    remarks = [f"{listed(worse)} worse for few-shot classes"] if worse else []
    if small:
        remarks.append(f"{listed(small)} by less than {points(differences[0].margin)}")
    remark = f" ({'; '.join(remarks)})" if remarks else ""
    return (
        f"Use {listed(better, 'or')}: each is better than {baseline} in balanced accuracy{remark}; which of them is "
        "best was not tested."
    )


def in_points(mean: float, low: float | None, high: float | None) -> str:
    """Format a difference of fractions in points, with its interval.

    Example:
        >>> from evenhand.experiments.comparison.verdict import in_points
        >>> in_points(0.008, 0.002, 0.014), in_points(-0.012, None, None), in_points(0.0005, 0.0001, 0.0009)
        ('+0.8 [0.2, 1.4]', '-1.2', '+0.05 [0.01, 0.09]')
    """
    numbers = [100 * each for each in (mean, low, high) if each is not None]
    # More digits only where fewer would show a number that is not 0 as 0.
    digits = next((d for d in (1, 2) if all(each == 0 or round(each, d) for each in numbers)), 3)
    rounded = [round(each, digits) + 0.0 for each in numbers]  # + 0.0 turns -0.0 into 0.0
    middle, *ends = (f"{each:.{digits}f}" for each in rounded)
    sign = "+" * (rounded[0] > 0)
    return f"{sign}{middle} [{', '.join(ends)}]" if len(ends) == 2 else f"{sign}{middle}"


def points(fraction: float) -> str:
    """Format a fraction in points.

    Example:
        >>> from evenhand.experiments.comparison.verdict import points
        >>> points(0.01), points(0.005)
        ('1 point', '0.5 points')
    """
    number = f"{100 * fraction:g}"
    return f"{number} point{'s' * (number != '1')}"


def listed(names: Sequence[str], joined: str = "and") -> str:
    """Join names for a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def _seeds(difference: Difference) -> str:
    return f"{difference.seeds} seed{'s' * (difference.seeds != 1)}"


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
