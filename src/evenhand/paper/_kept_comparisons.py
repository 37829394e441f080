"""The claims of the paper's text tested on kept comparisons, whose runs may be gone."""

from collections.abc import Mapping

from evenhand.experiments.comparison.verdict import in_points
from evenhand.paper._finding import Finding
from evenhand.paper._groups import FOUR
from evenhand.paper._ordering import State
from evenhand.paper._published import imbalance_words
from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import PRIMARY, TESTED, Difference
from evenhand.statistics.paired import LEVEL, paired_difference


def comparison_findings(comparison: Comparison) -> dict[str, Finding]:
    """Return what a comparison with `ce` shows about claims, by their id.

    Its differences are those of `compare`: corrected for all that was tested together, test images included. A claim of
    "best" can fail by them, and holds only where all methods of the paper were compared.
    """
    if comparison.baseline != FOUR["ERM"]:
        return {}
    found = {(each.metric, each.objective): each for each in comparison.differences if not each.failed}
    cce, cot, few = (found.get(key) for key in ((PRIMARY, FOUR["CCE"]), (PRIMARY, FOUR["COT"]), ("few", FOUR["CCE"])))
    findings = {}
    if cce is not None:
        # Ahead of ERM is not ahead of all: a comparison tests each objective against its baseline only.
        findings["cce-best"] = _finding(comparison, cce, holds=False)
    if cot is not None:
        findings["cot-over-erm"] = _finding(comparison, cot, holds=_shown(cot, 1))
    if few is not None and comparison.imbalance.startswith(("exp:", "step:")):
        findings["rare-classes"] = _rare_classes(comparison, few)
    return findings


def _rare_classes(comparison: Comparison, few: Difference) -> Finding:
    """Few-shot classes gain recall, and gain more than the other classes."""
    seeds = sorted({run.seed for run in comparison.runs})
    scores = {(run.objective, run.seed): run.test for run in comparison.runs if run.test}
    groups = [row.group for row in comparison.per_class if row.test_count]
    sizes: dict[str, int] = {name: groups.count(name) for name in ("many", "medium") if name in groups}
    gains = []
    for seed in seeds:
        ours, base = scores.get((FOUR["CCE"], seed)), scores.get((FOUR["ERM"], seed))
        if ours and base:
            gains.append([_gain(ours, base, {"few": 1}), _gain(ours, base, sizes)])
    more = paired_difference(*zip(*gains, strict=True)) if gains and sizes else None
    beyond = more is not None and more.mean > 0 and more.p is not None and more.p < LEVEL
    size = "" if more is None else f"; {in_points(more.mean, more.low, more.high)} points relative to the other classes"
    return _finding(comparison, few, holds=_shown(few, 1) and beyond, more=size)


def _gain(ours: Mapping[str, float | None], base: Mapping[str, float | None], sizes: Mapping[str, int]) -> float:
    """Return the gain in mean recall over the classes of some shot groups."""
    return sum(n * ((ours[name] or 0.0) - (base[name] or 0.0)) for name, n in sizes.items()) / sum(sizes.values())


def _shown(each: Difference, sign: int) -> bool:
    return each.decided and each.outcome != "practically equivalent" and each.mean * sign > 0


def _finding(comparison: Comparison, each: Difference, *, holds: bool, more: str = "") -> Finding:
    fails = _shown(each, -1)
    state: State = "not decided"
    if holds or fails:
        state = "holds at this scale" if holds else "does not hold at this scale"
    where = f"{comparison.source} {imbalance_words(comparison.imbalance)}, {comparison.model}"
    size = in_points(each.mean, each.low, each.high)
    detail = f"{each.objective} {size} points over ERM in {TESTED[each.metric]}, n={each.seeds} ({each.words}){more}"
    against = 1.0
    if fails and each.p is not None and each.level:
        against = min(1.0, each.p * LEVEL / each.level)  # below 5% exactly where p is below its alpha
    return Finding(f"{where}, a comparison of {len(comparison.seeds)} seeds", state, detail, against, reduced=True)
