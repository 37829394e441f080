"""Graphical testing of several hypotheses at one overall level."""

from collections.abc import Mapping, Sequence

PASSED_ON = 0.5
"""The fraction of its level that a rejected hypothesis passes on. The rest is kept for the far end of its interval,
which also makes a claim: that the difference is below the margin."""


def claim_levels(
    p: Sequence[float | None], start: Sequence[float], edges: Mapping[int, Mapping[int, float]]
) -> list[tuple[float, bool]]:
    """Test hypotheses along a graph (Bretz, Maurer, Brannath and Posch, 2009).

    A hypothesis is rejected if its p is at most its level; its level then passes to others along the edges.

    Args:
        p: p-value of each hypothesis; None where no test was possible, which is never rejected.
        start: initial level of each.
        edges: for each hypothesis the fractions of its level that pass to others, 1 in total at most.

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
        # The order does not change what is rejected; the smallest ratio first makes it deterministic.
        done = min(passed, key=lambda each: (_ratio(p[each], levels[each]), each))
        left.remove(done)
        for other, share in shares.get(done, {}).items():
            levels[other] += share * levels[done]
        shares = _without(done, shares, left)


def chained_questions(count: int, depth: int, level: float) -> tuple[list[float], dict[int, dict[int, float]]]:
    """Return the graph of a comparison: one primary hypothesis per objective, and secondary ones after it.

    The level is split equally among the primary hypotheses, 0 to `count` - 1. When one is rejected, half of its level
    passes to the next hypothesis about the same objective, `count` places on, and from the last one to the primary
    hypotheses of the other objectives.

    Args:
        count: objectives without the baseline.
        depth: hypotheses per objective.
        level: overall.

    Example:
        >>> from evenhand.statistics.graphical_testing import chained_questions
        >>> chained_questions(2, 2, 0.05)
        ([0.025, 0.025, 0.0, 0.0], {0: {2: 0.5}, 1: {3: 0.5}, 2: {1: 0.5}, 3: {0: 0.5}})
    """
    start = [level / count] * count + [0.0] * (count * (depth - 1))
    edges: dict[int, dict[int, float]] = {}
    for place in range(count * depth):
        if place + count < count * depth:
            edges[place] = {place + count: PASSED_ON}
        else:
            edges[place] = {other: PASSED_ON / (count - 1) for other in range(count) if other != place % count}
    return start, edges


def _ratio(p: float | None, level: float) -> float:
    return float("inf") if p is None or level <= 0 else p / level


def _without(done: int, shares: dict[int, dict[int, float]], left: set[int]) -> dict[int, dict[int, float]]:
    """Return the edges among the remaining hypotheses, including paths through the rejected one."""
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
