"""Whether methods have the order that the paper prints, and which differences are beyond noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from evenhand.experiments.comparison.verdict import listed
from evenhand.statistics.paired import LEVEL, PairedDifference, holm, paired_difference

State = Literal["holds", "does not hold", "not decided", "holds at this scale", "does not hold at this scale"]
"""What runs show about a claim or an order; the last two are for runs at another scale than the paper's."""


@dataclass(frozen=True)
class Pair:
    """Two methods in the order of their published values, or tied."""

    better: str
    """In the paper."""
    worse: str
    published: float
    """Their published difference, 0 to 1; 0 where they tie."""
    measured: PairedDifference
    """Better minus worse over the seeds that both have."""
    holm_p: float | None
    """Corrected for all pairs of the page; None where there is no test."""

    @property
    def agrees(self) -> bool:
        """Whether the measured order is the same; a tie counts as agreeing."""
        return self.measured.mean >= 0

    @property
    def tested(self) -> bool:
        """Whether there is a test: not with one seed, nor where seeds show no spread."""
        return self.measured.p is not None

    @property
    def clear(self) -> bool:
        """Whether the measured difference is beyond noise."""
        return self.holm_p is not None and self.holm_p < LEVEL


@dataclass(frozen=True)
class Ordering:
    """The order of the methods of one column, measured against published."""

    published: tuple[str, ...]
    """The methods that were measured too, best first."""
    pairs: tuple[Pair, ...]
    """All pairs that the paper does not tie."""
    ties: tuple[Pair, ...] = ()
    """Pairs that it ties: they decide nothing, and count in the correction."""
    reduced: bool = False
    """Whether training differs from the paper's in network, data or recipe."""
    failed: tuple[str, ...] = ()
    """Methods that learned nothing; they are in no pair."""

    @property
    def state(self) -> State | None:
        """Holds: all pairs agree beyond noise; fails: one is reversed beyond noise; None without a pair."""
        if not self.pairs:
            return None
        clear = [pair for pair in self.pairs if pair.clear]
        return decided(
            holds=len(clear) == len(self.pairs) and all(pair.agrees for pair in clear),
            fails=any(not pair.agrees for pair in clear),
            reduced=self.reduced,
        )

    def sentence(self) -> str:
        """Return it in words."""
        failed = f" {listed(self.failed)} learned nothing, and nothing is concluded from that." if self.failed else ""
        if self.state is None:
            return f"No two methods of the paper's order are measured yet.{failed}"
        agree = [pair for pair in self.pairs if pair.agrees]
        against = [pair for pair in self.pairs if not pair.agrees]
        start = f"The published order ({' > '.join(self.published)}, ties aside): {self.state}"
        counted = f"{len(agree)} of {len(self.pairs)} pairs agree, {beyond_noise(agree, 'of them ')}"
        if not against:
            return f"{start}; {counted}.{failed}"
        swapped = [
            f"{pair.worse} {-100 * pair.measured.mean:.2f} over {pair.better} ({noise_words(pair.holm_p)})"
            for pair in sorted(against, key=lambda pair: (not pair.clear, pair.measured.mean))
        ]
        more = f" and {len(swapped) - 5} more" if len(swapped) > 5 else ""
        return f"{start}; {counted}; reversed: {', '.join(swapped[:5])}{more}.{failed}"


def decided(*, holds: bool, fails: bool, reduced: bool) -> State:
    """Return the state of a claim or an order.

    Example:
        >>> from evenhand.paper._ordering import decided
        >>> decided(holds=False, fails=True, reduced=True)
        'does not hold at this scale'
    """
    if fails:
        return "does not hold at this scale" if reduced else "does not hold"
    if holds:
        return "holds at this scale" if reduced else "holds"
    return "not decided"


def noise_words(p: float | None) -> str:
    """Return whether a p-value is beyond noise, in words.

    Example:
        >>> from evenhand.paper._ordering import noise_words
        >>> [noise_words(p) for p in (0.01, 0.2, None)]
        ['beyond noise', 'within noise', 'noise not measured']
    """
    if p is None:
        return "noise not measured"
    return "beyond noise" if p < LEVEL else "within noise"


def beyond_noise(pairs: Sequence[Pair], which: str = "") -> str:
    """Return the number of pairs that are beyond noise, in words."""
    if pairs and not any(pair.tested for pair in pairs):
        return "noise not measured"
    return f"{sum(pair.clear for pair in pairs)} {which}beyond noise"


def compare_order(
    published: Mapping[str, float],
    measured: Mapping[str, Mapping[int, float]],
    *,
    resolution: float = 0.0,
    reduced: bool = False,
    failed: Sequence[str] = (),
) -> Ordering:
    """Compare the order of methods with the published one, pair by pair over common seeds.

    A pair is beyond noise if its paired t-test over seeds gives p < 0.05 after Holm's correction for all pairs; those
    of several columns are corrected together by :func:`correct_together`. The order holds if all pairs agree beyond
    noise, does not hold if one is reversed beyond noise, and is not decided otherwise.

    Args:
        published: values 0 to 1, by method.
        measured: values 0 to 1, by method and seed; methods without published or measured values are left out.
        resolution: how much one test image changes a value; differences that vary by less are equal.
        reduced: whether training differs from the paper's in network, data or recipe.
        failed: methods that learned nothing.

    Example:
        >>> from evenhand.paper._ordering import compare_order
        >>> ours = {"ERM": {0: 0.80, 1: 0.81}, "COT": {0: 0.805, 1: 0.809}, "CCE": {0: 0.81, 1: 0.82}}
        >>> ordering = compare_order({"ERM": 0.85, "COT": 0.86, "CCE": 0.87}, ours)
        >>> ordering.state, ordering.published, [pair.clear for pair in ordering.pairs]
        ('not decided', ('CCE', 'COT', 'ERM'), [False, False, False])
    """
    known = sorted((method for method in published if measured.get(method)), key=lambda method: -published[method])
    learned = [method for method in known if method not in failed]
    found = []
    for better, worse in combinations(learned, 2):
        common = sorted(set(measured[better]) & set(measured[worse]))
        if common:
            values = ([measured[method][seed] for seed in common] for method in (better, worse))
            difference = round(published[better] - published[worse], 8)
            found.append(Pair(better, worse, difference, paired_difference(*values, resolution=resolution), None))
    pairs, ties = ([pair for pair in found if bool(pair.published) is ordered] for ordered in (True, False))
    left_out = tuple(method for method in known if method in failed)
    [ordering] = correct_together([Ordering(tuple(known), tuple(pairs), tuple(ties), reduced, left_out)])
    return ordering


def correct_together(orderings: Sequence[Ordering]) -> list[Ordering]:
    """Correct the pairs of all columns of a page as one family, by Holm."""
    corrected = iter(holm([pair.measured.p for each in orderings for pair in (*each.pairs, *each.ties)]))
    return [
        replace(
            each,
            pairs=tuple(replace(pair, holm_p=next(corrected)) for pair in each.pairs),
            ties=tuple(replace(pair, holm_p=next(corrected)) for pair in each.ties),
        )
        for each in orderings
    ]
