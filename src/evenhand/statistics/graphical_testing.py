"""Several questions at one level in all: claims hand on their share of it, along a graph."""

from collections.abc import Mapping, Sequence

HANDED_ON = 0.5
"""Of a claim's level. The other half stays: it guards the far end of the claim's interval, which says "by less than
matters" or "no difference that matters", and may be wrong too."""


def claim_levels(
    p: Sequence[float | None], start: Sequence[float], edges: Mapping[int, Mapping[int, float]]
) -> list[tuple[float, bool]]:
    """Test hypotheses along a graph (Bretz, Maurer, Brannath and Posch, 2009).

    A hypothesis is rejected where its p is at most its level; its level then goes to others along the edges.

    Args:
        p: of each hypothesis; None where no test was possible, which is never rejected.
        start: the level of each before anything is rejected.
        edges: for each hypothesis which share of its level goes to which others, 1 in all at most.

    Returns:
        For each hypothesis the level it was last tested at, and whether it is rejected.

    Example:
        >>> from evenhand.statistics.graphical_testing import claim_levels
        >>> claim_levels([0.02, 0.04, 0.03], [0.025, 0.025, 0], {0: {2: 1.0}, 2: {1: 1.0}, 1: {0: 1.0}})
        [(0.025, True), (0.025, False), (0.025, False)]
        >>> claim_levels([0.02, 0.04, 0.01], [0.025, 0.025, 0], {0: {2: 1.0}, 2: {1: 1.0}, 1: {0: 1.0}})
        [(0.025, True), (0.05, True), (0.025, True)]
    """
    levels, shares = list(start), {one: dict(others) for one, others in edges.items()}
    left = set(range(len(p)))
    while True:
        passed = [each for each in left if _ratio(p[each], levels[each]) <= 1]
        if not passed:
            return [(levels[each], each not in left) for each in range(len(p))]
        # Which of them goes first does not change what is rejected in the end; the surest, so that it is always one.
        done = min(passed, key=lambda each: (_ratio(p[each], levels[each]), each))
        left.remove(done)
        for other, share in shares.get(done, {}).items():
            levels[other] += share * levels[done]
        shares = _without(done, shares, left)


def chained_questions(count: int, depth: int, level: float) -> tuple[list[float], dict[int, dict[int, float]]]:
    """Return the graph of a comparison: each objective's primary question, and further ones behind it.

    The level is shared equally by the primary questions, 0 to `count` - 1. Where one is answered, half of its level
    goes to the next question about the same objective, `count` places on, and from the last one on to the primary
    questions of the other objectives.

    Args:
        count: of objectives, without the baseline.
        depth: questions about each.
        level: in all.

    Example:
        >>> from evenhand.statistics.graphical_testing import chained_questions
        >>> chained_questions(2, 2, 0.05)
        ([0.025, 0.025, 0.0, 0.0], {0: {2: 0.5}, 1: {3: 0.5}, 2: {1: 0.5}, 3: {0: 0.5}})
    """
    start = [level / count] * count + [0.0] * (count * (depth - 1))
    edges: dict[int, dict[int, float]] = {}
    for place in range(count * depth):
        if place + count < count * depth:
            edges[place] = {place + count: HANDED_ON}
        else:
            own = place % count
            edges[place] = {other: HANDED_ON / (count - 1) for other in range(count) if other != own}
    return start, edges


def _ratio(p: float | None, level: float) -> float:
    return float("inf") if p is None or level <= 0 else p / level


def _without(done: int, shares: dict[int, dict[int, float]], left: set[int]) -> dict[int, dict[int, float]]:
    """Return the edges between those that are left, paths through the one that is done included."""
    onward = shares.get(done, {})
    renewed: dict[int, dict[int, float]] = {}
    for one in left:
        own = shares.get(one, {})
        through = own.get(done, 0.0)
        back = through * onward.get(one, 0.0)
        renewed[one] = {
            other: (own.get(other, 0.0) + through * onward.get(other, 0.0)) / (1 - back) if back < 1 else 0.0
            for other in left
            if other != one and (own.get(other, 0.0) or through * onward.get(other, 0.0))
        }
    return renewed
