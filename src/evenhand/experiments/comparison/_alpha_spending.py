"""The interim analyses of a comparison: their alpha, what was decided, and whether more seeds are needed."""

from collections.abc import Mapping, Sequence

from evenhand.runs.comparison_schemas import PRIMARY, Difference
from evenhand.runs.interim_analyses import InterimAnalysis
from evenhand.statistics.alpha_spending import ROUNDING, next_alpha
from evenhand.statistics.paired import LEVEL


def analysis_alpha(seeds: int, earlier: Sequence[InterimAnalysis], *, last: bool, margin: float) -> float:
    """Return the alpha of the next analysis.

    It is 0, and the analysis exploratory, where the 5% are spent, where one with as many seeds or more was made, or
    where the margin was changed.
    """
    spent = [each for each in earlier if not each.exploratory]
    if any(each.margin != margin for each in spent):
        return 0.0
    return next_alpha(seeds, {each.seeds: each.level for each in spent}, last=last)


def folder_alpha(
    seeds: int,
    ledger: Mapping[str, Sequence[InterimAnalysis]],
    family: str,
    *,
    objectives: Sequence[str],
    baseline: str,
    last: bool,
    margin: float,
) -> float:
    """Return the alpha of the next analysis of one of the comparisons in a folder, which share one 5%.

    It is 0, and the analysis exploratory, where :func:`analysis_alpha` is, or where its hypotheses could have been
    chosen by earlier results: with another margin, with a baseline that was a rival before, or with rivals of which
    some were analysed before, unless all of those are among them.
    """
    own = list(ledger.get(family, ()))
    others = [each for name, made in ledger.items() if name != family for each in made if not each.exploratory]
    rivals, bases, before = set(objectives) - {baseline}, set(), set()
    for each in others:
        bases |= {difference.baseline for difference in each.differences}
        before |= {difference.objective for difference in each.differences}
    chosen = (rivals & before and not before <= rivals) or (baseline in before and baseline not in bases)
    if chosen or rivals & bases or any(each.margin != margin for each in others):
        return 0.0
    left = LEVEL - sum(each.level for each in [*others, *own] if not each.exploratory)
    alpha = min(analysis_alpha(seeds, own, last=last, margin=margin), left)
    return alpha if alpha > ROUNDING else 0.0


def keep_decided(differences: Sequence[Difference], earlier: Sequence[InterimAnalysis]) -> list[Difference]:
    """Return the differences of an analysis, each replaced by the first earlier one that was decided."""
    decided: dict[tuple[str, str], Difference] = {}
    for analysis in earlier:
        for each in analysis.differences:
            if each.decided and not analysis.exploratory:
                decided.setdefault((each.metric, each.objective), each)
    return [decided.get((each.metric, each.objective), each) for each in differences]


def decided_elsewhere(ledger: Mapping[str, Sequence[InterimAnalysis]], family: str) -> str:
    """Return what other comparisons in a folder decided, which stays; empty where they decided nothing."""
    found: dict[str, None] = {}
    for analyses in (made for name, made in ledger.items() if name != family):
        spent = [each for each in analyses if not each.exploratory]
        if spent:
            for each in keep_decided(spent[-1].differences, spent):
                if each.decided and each.metric == PRIMARY:
                    found[f"{each.objective} {each.words} against {each.baseline} ({each.seeds} seeds)"] = None
    return f" Decided in this folder before: {'; '.join(found)}." if found else ""


def worth_more_seeds(differences: Sequence[Difference]) -> bool:
    """Return whether more seeds could decide a primary difference; few-shot classes are not waited for.

    They could not where only the sampling of test images keeps it undecided.
    """
    primary = [each for each in differences if each.metric == differences[0].metric]
    undecided = [each for each in primary if not each.decided and not each.failed]
    return any(not each.on_these_images or each.more_seeds is not None for each in undecided)


def analyses_note(analyses: Sequence[InterimAnalysis], planned: Sequence[int]) -> str:
    """Return which analyses were made, and at which alpha."""
    spent = [each for each in analyses if not each.exploratory]
    if len(planned) == 1:
        made = ", ".join(f"{each.seeds} seeds (alpha = {_percent(each.level)})" for each in spent)
        return (
            f"One analysis, with {made}. Seeds added later are exploratory; by default, seeds are added until "
            "everything is decided."
        )
    made = ", ".join(f"{_percent(each.level)} at {each.seeds} seeds" for each in spent)
    text = f"Alpha spending, 5% in all: {made}; decisions are final."
    coming = [str(seeds) for seeds in planned if all(each.seeds < seeds for each in spent)]
    if coming and worth_more_seeds(keep_decided(spent[-1].differences, spent[:-1])):
        return f"{text} The next analysis is at {coming[0]} seeds."
    return text


def _percent(level: float) -> str:
    return f"{100 * level:.3g}%"
