"""What runs show about one claim of the paper's text: a finding, and how findings are combined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from evenhand.paper._groups import Group
from evenhand.paper._ordering import State, decided, noise_words
from evenhand.statistics.paired import LEVEL, PairedDifference, holm


@dataclass(frozen=True)
class Finding:
    """The result of some runs for a claim."""

    where: str
    state: State
    detail: str
    against: float = 1.0
    """The p-value of the evidence against the claim, corrected within the finding; 1 without any."""
    reduced: bool = False
    """Whether training differs from the paper's in network, data or recipe."""


def overall(findings: Sequence[Finding], exceptions: int = 0) -> State | Literal["not run yet"]:
    """Combine findings: a claim holds if it holds everywhere, and does not if it clearly fails somewhere.

    The evidence against it is corrected once more, by Holm over all findings. Where runs were
    trained as in the paper, these alone decide.

    Args:
        findings: of one claim.
        exceptions: the number of findings that may fail while the claim holds, if more hold.
    """
    own = [each for each in findings if not each.reduced] or list(findings)
    if not own:
        return "not run yet"
    against = [clear(p) for p in holm([each.against for each in own])]
    fails = sum(sure and each.state.startswith("does not") for sure, each in zip(against, own, strict=True))
    held = sum(each.state.startswith("holds") for each in own)
    others = len(own) - held
    return decided(
        holds=others <= exceptions and others < held,
        fails=fails > exceptions,
        reduced=any(each.reduced for each in own),
    )


def difference_words(difference: PairedDifference, unit: str = " points", digits: int = 2) -> str:
    """Return a difference with its 95% interval and number of seeds; values 0 to 1 are given in points.

    Example:
        >>> from evenhand.paper._finding import difference_words
        >>> from evenhand.statistics.paired import paired_difference
        >>> difference_words(paired_difference([0.82, 0.83, 0.811], [0.80, 0.81, 0.79]))
        '+2.03 [1.89, 2.18] points, n=3'
    """
    scale = 100 if unit == " points" else 1
    ends = ""
    if difference.low is not None and difference.high is not None:
        ends = f" [{scale * difference.low:.{digits}f}, {scale * difference.high:.{digits}f}]"
    return f"{scale * difference.mean:+.{digits}f}{ends}{unit}, n={difference.n}"


def clear(p: float | None) -> bool:
    """Return whether a p-value is beyond noise."""
    return p is not None and p < LEVEL


def finding(group: Group, detail: str, *, holds: bool, against: float) -> Finding:
    """Return a finding; `against` is the p-value of the evidence against the claim, 1 without any."""
    state = decided(holds=holds, fails=against < LEVEL, reduced=group.reduced)
    return Finding(group.where, state, detail, against, group.reduced)


def one_difference(group: Group, detail: str, difference: PairedDifference) -> Finding:
    """Test the claim that a difference is above 0."""
    against = 1.0 if difference.p is None or difference.mean >= 0 else difference.p
    return finding(group, detail, holds=clear(difference.p) and difference.mean > 0, against=against)


def all_above(group: Group, found: Mapping[str, tuple[PairedDifference, float | None]]) -> Finding:
    """Test the claim that several differences are above 0, each given in words with its corrected p-value."""
    against = [p for each, p in found.values() if each.mean < 0 and p is not None]
    holds = all(each.mean > 0 and clear(p) for each, p in found.values())
    detail = "; ".join(f"{difference_words(each)} {words} ({noise_words(p)})" for words, (each, p) in found.items())
    return finding(group, detail, holds=holds, against=min(against, default=1.0))
