"""Tested differences in words, and no claim beyond them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import PRIMARY, TESTED, Certainty, Difference, EarlierDecision

MOST_SEEDS = 12
"""The default of `--most-seeds`."""
SEEDS_WORTH_A_START = 24
"""More seeds than these cost more than more images do."""
NEW_COMPARISON = "start a new comparison with --seeds"
IN_A_NEW_COMPARISON = ", in a new comparison (--seeds"


def difference_sentence(difference: Difference) -> str:
    """Return one difference in words, in percentage points.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import difference_sentence
        >>> values = {"ce": [0.80, 0.81, 0.79], "cce": [0.82, 0.83, 0.811], "cot": [0.80, 0.82, 0.80]}
        >>> for difference in judge_differences({"balanced_accuracy": values}, "ce"):
        ...     print(difference_sentence(difference))
        balanced accuracy: cce +2.0 [1.4, 2.9] over ce, 3 seeds
        balanced accuracy: cot +0.7 [-0.7, 1.7] against ce: undecided with 3 seeds; about 11 seeds would be needed,
        in a new comparison (--seeds 11)
    """
    baseline, outcome = difference.baseline, difference.outcome
    start = f"{TESTED.get(difference.metric, difference.metric)}: {difference.objective}"
    seeds = _seeds_decided(difference)
    size = in_points(difference.mean, difference.low, difference.high)
    less = f", by less than the margin ({points(difference.margin)})" if outcome.endswith("the margin") else ""
    if outcome.endswith("only"):
        return f"{start} {size} against {baseline}, {seeds}: {outcome}; may not hold on other test images"
    if outcome.startswith("better"):
        return f"{start} {size} over {baseline}{less}, {seeds}"
    if outcome.startswith("worse"):
        return f"{start} worse, {size} against {baseline}{less}, {seeds}"
    if outcome == "practically equivalent":
        return f"{start} {size} against {baseline}: {outcome} (within ±{points(difference.margin)}), {seeds}"
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
    about = "" if len(differences) == 1 else f" for {first.objective}"
    total = first.seeds + (first.more_seeds or 0)
    anew = f"{IN_A_NEW_COMPARISON} {total})" if total <= SEEDS_WORTH_A_START else ""
    return f"about {total} seeds would be needed{about}{anew}"


def verdict_sentences(differences: Sequence[Difference]) -> list[str]:
    """Return a sentence per difference that is known, and one per metric for all that are undecided.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import verdict_sentences
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80], "focal": [0.80, 0.80, 0.80]}
        >>> verdict_sentences(judge_differences({"balanced_accuracy": values, "few": values}, "ce"))
        ['undecided with 3 seeds: cot, focal in balanced accuracy; about 12 seeds would be needed for focal,
        in a new comparison (--seeds 12)']
    """
    if differences and differences[0].seeds < 2:
        return [difference_sentence(each) for each in differences]
    differences = [each for each in differences if not each.failed]
    known = [difference_sentence(each) for each in differences if each.outcome not in ("undecided", "not tested")]
    tested = [each for each in differences if each.outcome == "undecided" and each.level > 0]
    without_spread = [difference_sentence(each) for each in tested if not each.spread]
    folded = []
    for metric, title in TESTED.items():
        undecided = [each for each in tested if each.metric == metric and each.spread]
        if undecided:
            names = ", ".join(each.objective for each in undecided)
            folded.append(f"undecided with {_seeds(undecided[0])}: {names} in {title}; {_seeds_needed(undecided)}")
    return [*known, *without_spread, *folded]


@dataclass(frozen=True)
class Recommendation:
    """The one objective that a comparison recommends, how sure, and in words."""

    objective: str
    certainty: Certainty
    sentence: str


def recommend(
    differences: Sequence[Difference], baseline: str, failed: Mapping[str, str] | None = None
) -> Recommendation:
    """Recommend one objective: the highest mean of those shown better, or else of those that are still open.

    The baseline is recommended where no other objective is shown to gain at least the margin and nothing is open. What
    failed is not recommended while another objective did not fail, and a baseline that failed never is.

    Args:
        differences: all against the baseline, the primary metric first.
        baseline: the objective that the others are compared with.
        failed: for each objective that failed, why.

    Example:
        >>> from evenhand.experiments.comparison import judge_differences
        >>> from evenhand.experiments.comparison.verdict import recommend
        >>> values = {"ce": [0.80, 0.81, 0.79], "cot": [0.80, 0.82, 0.80], "cce": [0.84, 0.85, 0.831]}
        >>> recommend(judge_differences({"balanced_accuracy": values}, "ce"), "ce").sentence
        'Use cce: +4.0 [3.4, 4.9] over ce in balanced accuracy, 3 seeds.'
        >>> del values["cce"]
        >>> found = recommend(judge_differences({"balanced_accuracy": values}, "ce"), "ce")
        >>> found.objective, found.certainty
        ('cot', 'undecided')
    """
    failed = failed or {}
    primary = [each for each in differences if each.metric == differences[0].metric]
    if not primary:
        return Recommendation(baseline, "undecided", f"Undecided: there is nothing to compare {baseline} with.")
    gains = {baseline: 0.0, **{each.objective: each.mean for each in primary}}
    sound = [name for name in gains if name not in failed] or [name for name in gains if name != baseline]
    candidates = [each for each in primary if each.objective in sound]
    lead = f"{failed[baseline]}. " if baseline in failed else ""
    if all(name in failed for name in gains):
        lead = "Every objective failed. "
    better = [each for each in candidates if each.decided and each.mean > 0 and not _equivalent(each)]
    # A baseline that failed is left at any gain.
    enough = [each for each in better if baseline not in sound or _matters(each)]
    if enough:
        best = max(enough, key=lambda each: each.mean)
        return Recommendation(best.objective, "shown", f"{lead}{_use(best, enough, candidates, differences)}")
    if not candidates:
        return Recommendation(baseline, "undecided", f"Use {baseline}: every other objective failed.")
    undecided = [each for each in candidates if not each.decided]
    if baseline in sound and not undecided:
        return Recommendation(baseline, "shown", f"Use {baseline}: {_why_baseline(candidates)}.")
    names = sound if baseline not in sound else [baseline, *(each.objective for each in undecided)]
    chosen = max(names, key=lambda name: gains[name])
    # What is decided and gains more, gains less than the margin.
    small = [each for each in candidates if baseline in sound and each.decided and each.mean > gains[chosen]]
    if small:
        top = max(small, key=lambda each: each.mean)
        why = (
            f"{baseline} for now: the highest mean so far is that of {top.objective} "
            f"({in_points(top.mean, top.low, top.high)} against {baseline}), a gain below the margin of "
            f"{points(top.margin)}"
        )
        return Recommendation(baseline, "undecided", _undecided(baseline, why, primary, undecided))
    why = _highest(chosen, primary, undecided, failed)
    return Recommendation(chosen, "undecided", f"{lead}{_undecided(chosen, why, primary, undecided)}")


def _equivalent(difference: Difference) -> bool:
    return difference.outcome == "practically equivalent"


def _matters(difference: Difference) -> bool:
    return difference.outcome != "better by less than the margin" and difference.mean >= difference.margin


def _use(
    best: Difference, better: Sequence[Difference], candidates: Sequence[Difference], differences: Sequence[Difference]
) -> str:
    few = {each.objective: each.mean > 0 for each in differences if each.metric != PRIMARY and each.decided}
    shot = {True: ", and higher few-shot recall", False: ", but lower few-shot recall", None: ""}
    size = in_points(best.mean, best.low, best.high)
    title = TESTED.get(best.metric, best.metric)
    rare = shot[few.get(best.objective)]
    sentences = [f"Use {best.objective}: {size} over {best.baseline} in {title}, {_seeds_decided(best)}{rare}."]
    others = [each for each in better if each is not best]
    if others:
        names = [f"{each.objective} ({in_points(each.mean, None, None)})" for each in others]
        verb = "is better too" if len(others) == 1 else "are better too"
        sentences.append(
            f"{listed(names)} {verb}; which of them is best was not tested, {best.objective} has the "
            "highest mean of them."
        )
    higher = [each.objective for each in candidates if not each.decided and each.mean > best.mean]
    if higher:
        sentences.append(f"The mean of {listed(higher)} is higher, but undecided.")
    return " ".join(sentences)


def _why_baseline(primary: Sequence[Difference]) -> str:
    margin = points(primary[0].margin)
    worse = [each.objective for each in primary if each.mean < 0 and not _equivalent(each)]
    alike = [each.objective for each in primary if _equivalent(each)]
    small = [each.objective for each in primary if each.outcome == "better by less than the margin"]
    open_end = [each for each in primary if each.objective not in (*worse, *alike, *small)]
    parts = [f"{listed(worse)} {_is(worse)} worse in balanced accuracy"] if worse else []
    if alike:
        parts.append(f"{listed(alike)} {_is(alike)} practically equivalent (within ±{margin})")
    if small:
        parts.append(f"{listed(small)} {_is(small)} better by less than the margin of {margin}")
    if open_end:
        gains = [f"{each.objective} ({in_points(each.mean, each.low, each.high)})" for each in open_end]
        parts.append(f"the mean gain of {listed(gains)} is below the margin of {margin}")
    return ", and ".join(parts)


def _highest(
    chosen: str, primary: Sequence[Difference], undecided: Sequence[Difference], failed: Mapping[str, str]
) -> str:
    """Return in words that an objective has the highest mean, and of which."""
    if chosen == primary[0].baseline:
        if undecided and all(each.mean == 0 == each.spread for each in undecided):
            same = [each.objective for each in undecided]
            return f"{listed(same)} {'does' if len(same) == 1 else 'do'} not differ from {chosen} in any of them"
        mean, size = 0.0, ""
    else:
        own = next(each for each in primary if each.objective == chosen)
        mean, size = own.mean, f" ({in_points(own.mean, own.low, own.high)} against {own.baseline})"
    others = [each.objective for each in primary if each.objective in failed and each.mean > mean]
    so_far = "of the others" if primary[0].baseline in failed else "so far"
    apart = f", apart from {listed(others)}, which failed" if others else ""
    return f"{chosen} has the highest mean {so_far}{size}{apart}"


def _undecided(chosen: str, why: str, primary: Sequence[Difference], undecided: Sequence[Difference]) -> str:
    text = f"Undecided with {_seeds(primary[0])}; {why}"
    if primary[0].seeds < 2:
        return f"{text}. One seed cannot separate a better objective from training noise; run 3 seeds or more."
    here = [each.objective for each in undecided if each.outcome == "better on these test images only"]
    if here:
        return f"{text}. {listed(here)} {_is(here)} better on these test images only; test on more images."
    needed = [each for each in undecided if each.more_seeds is not None]
    if not needed:
        return f"{text}."
    own = [each for each in needed if each.objective == chosen]
    first = min(own or needed, key=lambda each: each.more_seeds or 0)
    total = first.seeds + (first.more_seeds or 0)
    limit = max(MOST_SEEDS, first.seeds)
    about = "" if own or len(primary) == 1 else f" for {first.objective}"
    if total > max(SEEDS_WORTH_A_START, limit):
        return (
            f"{text}; these images do not decide it, as about {total} seeds would be needed{about}; add images, of "
            "rare classes first."
        )
    above_limit = f"not decidable with {limit} seeds, " if total > limit else ""
    return f"{text}; {above_limit}about {total} seeds would be needed{about}; {NEW_COMPARISON} {total} --out NEW."


def ensemble_note(comparison: Comparison) -> list[str]:
    """Return what the recommended runs reach together, where it was measured."""
    if comparison.ensemble is None or len(comparison.seeds) < 2:
        return []
    return [
        f"All {len(comparison.seeds)} runs of {comparison.recommended} averaged (--ensemble) reach a balanced accuracy "
        f"of {comparison.ensemble:.1%} on the test images."
    ]


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
    """Format a fraction in percentage points (pp).

    Example:
        >>> from evenhand.experiments.comparison.verdict import points
        >>> points(0.01), points(0.005)
        ('1 pp', '0.5 pp')
    """
    return f"{100 * fraction:g} pp"


def keep_earlier(current: Difference, earlier: Difference) -> Difference:
    """Return a difference with the numbers of all seeds and, where they agree, what fewer seeds decided.

    A decision whose direction all seeds do not confirm is dropped: that makes no false claim.
    """
    if current.decided or not earlier.decided:
        return current
    agree = abs(current.mean) < current.margin if _equivalent(earlier) else current.mean * earlier.mean > 0
    if not agree:
        return current
    decision = EarlierDecision(seeds=earlier.seeds, outcome=earlier.outcome)
    return current.model_copy(update={"earlier": decision, "more_seeds": None})


def listed(names: Sequence[str], joined: str = "and") -> str:
    """Join names for a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joined} {names[-1]}"


def _seeds(difference: Difference) -> str:
    return f"{difference.seeds} seed{'s' * (difference.seeds != 1)}"


def _seeds_decided(difference: Difference) -> str:
    return _seeds(difference) + (f", decided at {difference.earlier.seeds}" if difference.earlier else "")


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
