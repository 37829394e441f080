"""Whether methods stand in the order that the paper prints, and how far that is beyond noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from evenhand.experiments.comparison.verdict import listed
from evenhand.statistics.paired import LEVEL, PairedDifference, holm, paired_difference

State = Literal["holds", "does not hold", "not decided", "holds at this scale", "no sign of it at this scale"]
"""What runs can say about a claim or an order; the last two are all that a network standing in for the paper's can."""


@dataclass(frozen=True)
class Pair:
    """Two methods that the paper puts in an order, or ties."""

    better: str
    """By the paper."""
    worse: str
    published: float
    """What is printed between them, as a share; 0 where they tie."""
    measured: PairedDifference
    """Of better and worse over the seeds that both have, in shares."""
    holm_p: float | None
    """Corrected for all pairs of the page; None where nothing can be tested."""

    @property
    def agrees(self) -> bool:
        """Whether ours stand in the same order; a tie counts as agreeing."""
        return self.measured.mean >= 0

    @property
    def tested(self) -> bool:
        """Whether the noise is known: not with one seed, nor where seeds show no spread."""
        return self.measured.p is not None

    @property
    def clear(self) -> bool:
        """Whether the measured difference is beyond noise."""
        return self.holm_p is not None and self.holm_p < LEVEL


@dataclass(frozen=True)
class Ordering:
    """The order of the methods of one column, ours beside the paper's."""

    published: tuple[str, ...]
    """The methods that were measured too, best first."""
    pairs: tuple[Pair, ...]
    """All of them that the paper does not tie."""
    ties: tuple[Pair, ...] = ()
    """Those that it does: they decide nothing here, and count in the correction."""
    stand_in: bool = False
    """Whether another network stands in for the paper's."""
    failed: tuple[str, ...] = ()
    """Methods that learned nothing, and so are in no pair."""

    @property
    def state(self) -> State | None:
        """Whether the order holds: every pair beyond noise, or not: one the other way round; None without a pair."""
        if not self.pairs:
            return None
        clear = [pair for pair in self.pairs if pair.clear]
        return decided(
            holds=len(clear) == len(self.pairs) and all(pair.agrees for pair in clear),
            fails=any(not pair.agrees for pair in clear),
            stand_in=self.stand_in,
        )

    def sentence(self) -> str:
        """Say it in words."""
        failed = f" {listed(self.failed)} learned nothing, and nothing is concluded from that." if self.failed else ""
        if self.state is None:
            return f"No two methods of the paper's order are measured yet.{failed}"
        agree = [pair for pair in self.pairs if pair.agrees]
        against = [pair for pair in self.pairs if not pair.agrees]
        start = f"The published order ({' > '.join(self.published)}, ties aside): {self.state}"
        counted = f"{len(agree)} of {len(self.pairs)} pairs agree, {beyond_noise(agree, 'of them ')}"
        if not against:
            return f"{start}; {counted}.{failed}"
        reversed_ = [
            f"{pair.worse} {-100 * pair.measured.mean:.2f} over {pair.better} ({noise_words(pair.holm_p)})"
            for pair in sorted(against, key=lambda pair: (not pair.clear, pair.measured.mean))
        ]
        more = f" and {len(reversed_) - 5} more" if len(reversed_) > 5 else ""
        return f"{start}; {counted}; the other way round: {', '.join(reversed_[:5])}{more}.{failed}"


def decided(*, holds: bool, fails: bool, stand_in: bool) -> State:
    """Return the state of a claim or an order.

    Example:
        >>> from evenhand.paper._ordering import decided
        >>> decided(holds=False, fails=True, stand_in=True)
        'no sign of it at this scale'
    """
    if fails:
        return "no sign of it at this scale" if stand_in else "does not hold"
    if holds:
        return "holds at this scale" if stand_in else "holds"
    return "not decided"


def noise_words(p: float | None) -> str:
    """Say what a p-value says about noise.

    Example:
        >>> from evenhand.paper._ordering import noise_words
        >>> [noise_words(p) for p in (0.01, 0.2, None)]
        ['beyond noise', 'within noise', 'noise not measured']
    """
    if p is None:
        return "noise not measured"
    return "beyond noise" if p < LEVEL else "within noise"


def beyond_noise(pairs: Sequence[Pair], which: str = "") -> str:
    """Count the pairs that are beyond noise, unless it was measured for none of them."""
    if pairs and not any(pair.tested for pair in pairs):
        return "noise not measured"
    return f"{sum(pair.clear for pair in pairs)} {which}beyond noise"


def judge_ordering(
    published: Mapping[str, float],
    measured: Mapping[str, Mapping[int, float]],
    *,
    resolution: float = 0.0,
    stand_in: bool = False,
    failed: Sequence[str] = (),
) -> Ordering:
    """Compare the order of methods with the published one, pair by pair over common seeds.

    A pair is beyond noise if its paired t-test over seeds gives p < 0.05 after Holm's correction for all pairs; those
    of several columns are corrected together by :func:`correct_together`. The order holds if all pairs stand as printed
    beyond noise, does not hold if one stands the other way round beyond noise, and is not decided otherwise.

    Args:
        published: shares, by method.
        measured: shares, by method and seed; methods that are missing here or there are left out.
        resolution: what one test image changes, as a share; differences that vary by less are equal.
        stand_in: whether another network stands in for the paper's.
        failed: methods that learned nothing.

    Example:
        >>> from evenhand.paper._ordering import judge_ordering
        >>> ours = {"ERM": {0: 0.80, 1: 0.81}, "COT": {0: 0.805, 1: 0.809}, "CCE": {0: 0.81, 1: 0.82}}
        >>> ordering = judge_ordering({"ERM": 0.85, "COT": 0.86, "CCE": 0.87}, ours)
        >>> ordering.state, ordering.published, [pair.clear for pair in ordering.pairs]
        ('not decided', ('CCE', 'COT', 'ERM'), [False, False, False])
    """
    known = sorted((method for method in published if measured.get(method)), key=lambda method: -published[method])
    sound = [method for method in known if method not in failed]
    found = []
    for better, worse in combinations(sound, 2):
        common = sorted(set(measured[better]) & set(measured[worse]))
        if common:
            values = ([measured[method][seed] for seed in common] for method in (better, worse))
            apart = round(published[better] - published[worse], 8)
            found.append(Pair(better, worse, apart, paired_difference(*values, resolution=resolution), None))
    pairs, ties = ([pair for pair in found if bool(pair.published) is ordered] for ordered in (True, False))
    left_out = tuple(method for method in known if method in failed)
    [ordering] = correct_together([Ordering(tuple(known), tuple(pairs), tuple(ties), stand_in, left_out)])
    return ordering


def correct_together(orderings: Sequence[Ordering]) -> list[Ordering]:
    """Correct the pairs of several columns as one family, by Holm: a page is read as a whole."""
    corrected = iter(holm([pair.measured.p for each in orderings for pair in (*each.pairs, *each.ties)]))
    return [
        replace(
            each,
            pairs=tuple(replace(pair, holm_p=next(corrected)) for pair in each.pairs),
            ties=tuple(replace(pair, holm_p=next(corrected)) for pair in each.ties),
        )
        for each in orderings
    ]
