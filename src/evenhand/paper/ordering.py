"""Whether methods stand in the order that the paper prints, and how far that is beyond noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from evenhand.metrics.paired import LEVEL, PairedDifference, holm, paired_difference


@dataclass(frozen=True)
class Pair:
    """Two methods that the paper puts in an order."""

    better: str
    """By the paper."""
    worse: str
    published: float
    """Points between them, above 0."""
    measured: PairedDifference
    """Of better and worse over the seeds that both have, in points."""
    holm_p: float | None
    """Corrected for all pairs of the column; None where nothing can be tested."""

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

    @property
    def holds(self) -> bool | None:
        """Whether every pair agrees; None where there is none to judge."""
        return all(pair.agrees for pair in self.pairs) if self.pairs else None

    def sentence(self) -> str:
        """Say it in words."""
        if self.holds is None:
            return "No two methods of the paper's order are measured yet."
        agree = [pair for pair in self.pairs if pair.agrees]
        against = [pair for pair in self.pairs if not pair.agrees]
        start = f"The published order ({' > '.join(self.published)}, ties aside)"
        counted = f"{len(agree)} of {len(self.pairs)} pairs agree, {beyond_noise(agree, 'of them ')}"
        if not against:
            return f"{start} holds: {counted}."
        listed = [
            f"{pair.worse} {-pair.measured.mean:.2f} over {pair.better} ({noise_words(pair.holm_p)})"
            for pair in sorted(against, key=lambda pair: (not pair.clear, pair.measured.mean))
        ]
        more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
        return f"{start} does not hold: {counted}; the other way round: {', '.join(listed[:5])}{more}."


def noise_words(p: float | None) -> str:
    """Say what a p-value says about noise.

    Example:
        >>> from evenhand.paper.ordering import noise_words
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
    published: Mapping[str, float], measured: Mapping[str, Mapping[int, float]], *, resolution: float = 0.0
) -> Ordering:
    """Compare the order of methods with the published one, pair by pair over common seeds.

    The order holds if no pair that the paper orders stands the other way round in the means; where the paper ties,
    anything goes. A pair is beyond noise if its paired t-test over seeds gives p < 0.05 after Holm's correction for
    all pairs of the column.

    Args:
        published: percent, by method.
        measured: percent, by method and seed; methods that are missing here or there are left out.
        resolution: what one test image changes, in percent; differences that vary by less are equal.

    Example:
        >>> from evenhand.paper.ordering import judge_ordering
        >>> ours = {"ERM": {0: 80.0, 1: 81.0}, "COT": {0: 80.5, 1: 80.9}, "CCE": {0: 81.0, 1: 82.0}}
        >>> ordering = judge_ordering({"ERM": 85.0, "COT": 86.0, "CCE": 87.0}, ours)
        >>> ordering.holds, ordering.published, [pair.clear for pair in ordering.pairs]
        (True, ('CCE', 'COT', 'ERM'), [False, False, False])
    """
    known = sorted((method for method in published if measured.get(method)), key=lambda method: -published[method])
    found = []
    for better, worse in combinations(known, 2):
        common = sorted(set(measured[better]) & set(measured[worse]))
        if published[better] > published[worse] and common:
            values = ([measured[method][seed] for seed in common] for method in (better, worse))
            found.append((better, worse, paired_difference(*values, resolution=resolution)))
    corrected = holm([difference.p for *_, difference in found])
    pairs = [
        Pair(better, worse, round(published[better] - published[worse], 6), difference, p)
        for (better, worse, difference), p in zip(found, corrected, strict=True)
    ]
    return Ordering(tuple(known), tuple(pairs))
