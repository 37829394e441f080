"""Alpha spending: one significance level shared by several interim analyses of the same comparison."""

from collections.abc import Mapping

from evenhand.statistics.paired import LEVEL

SPENDING = {3: 0.010, 5: 0.010, 8: 0.015, 12: 0.015}
"""The alpha of each interim analysis, by its number of seeds. They add up to 5%, so that by the union bound all
analyses together make at most 5% false claims, however they are correlated."""
ROUNDING = 1e-9


def planned_analyses(most_seeds: int) -> list[int]:
    """Return the numbers of seeds at which a comparison is analysed.

    Example:
        >>> from evenhand.statistics.alpha_spending import planned_analyses
        >>> planned_analyses(12), planned_analyses(6), planned_analyses(2)
        ([3, 5, 8, 12], [3, 5, 6], [2])
    """
    return [*(seeds for seeds in SPENDING if seeds < most_seeds), most_seeds]


def next_alpha(seeds: int, spent: Mapping[int, float], *, last: bool) -> float:
    """Return the alpha of the next interim analysis: its planned part, or all that is left at the last one.

    Args:
        seeds: of the next analysis.
        spent: the alpha of each earlier analysis, by its number of seeds.
        last: whether no other analysis is planned after it.

    Returns:
        0 if the 5% are spent, or if an analysis with as many seeds or more was made.

    Example:
        >>> from evenhand.statistics.alpha_spending import next_alpha
        >>> next_alpha(5, {3: 0.01}, last=False), round(next_alpha(5, {3: 0.01}, last=True), 3)
        (0.01, 0.04)
        >>> next_alpha(8, {5: 0.05}, last=True)
        0.0
    """
    left = LEVEL - sum(spent.values())
    if left < ROUNDING or any(earlier >= seeds for earlier in spent):
        return 0.0
    return left if last else min(left / 2, SPENDING.get(seeds, left))  # half at most: the last one must have some
