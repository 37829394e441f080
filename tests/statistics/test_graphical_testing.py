"""The graph of claims against Holm's method, and against closed testing written out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.statistics.graphical_testing import chained_questions, claim_levels
from evenhand.statistics.paired import holm

P = st.lists(st.one_of(st.none(), st.floats(0, 0.12)), min_size=1, max_size=6)


@given(p=P)
@settings(deadline=None, derandomize=True)
def test_a_graph_that_hands_everything_to_all_others_is_holm_s_method(p: list[float | None]) -> None:
    tested = [each for each in p if each is not None]
    n = len(tested)
    if n < 2:
        return
    edges = {one: {other: 1 / (n - 1) for other in range(n) if other != one} for one in range(n)}
    found = claim_levels(tested, [0.05 / n] * n, edges)
    assert [rejected for _, rejected in found] == [each <= 0.05 for each in holm(tested)]


def closed_weights(members: frozenset[int], start: list[float], edges: dict[int, dict[int, float]]) -> dict[int, float]:
    """The levels of an intersection: those outside hand theirs on, path by path, until nothing moves."""
    levels = {each: start[each] for each in members}
    moving = {each: start[each] for each in range(len(start)) if each not in members}
    for _ in range(200):
        arrived: dict[int, float] = {}
        for one, level in moving.items():
            for other, share in edges.get(one, {}).items():
                into = levels if other in members else arrived
                into[other] = into.get(other, 0.0) + share * level
        moving = arrived
    return levels


@given(p=st.lists(st.floats(0, 0.06), min_size=6, max_size=6))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_it_is_closed_testing(p: list[float]) -> None:
    """A hypothesis is rejected where every intersection that holds it is."""
    start, edges = chained_questions(3, 2, 0.05)
    sets = [frozenset(each) for size in range(1, 7) for each in combinations(range(6), size)]
    dead = {s for s in sets if any(p[i] <= level and level > 0 for i, level in closed_weights(s, start, edges).items())}
    expected = [all(s in dead for s in sets if i in s) for i in range(6)]
    assert [rejected for _, rejected in claim_levels(p, start, edges)] == expected


def test_a_claim_hands_on_half_to_its_few_shot_question_and_then_to_the_others() -> None:
    start, edges = chained_questions(2, 2, 0.05)
    assert [level for level, _ in claim_levels([0.001, 0.9, 0.9, 0.9], start, edges)] == [0.025, 0.025, 0.0125, 0]
    both = claim_levels([0.001, 0.03, 0.001, 0.9], start, edges)
    assert both == [(0.025, True), (0.03125, True), (0.0125, True), (pytest.approx(0.015625), False)]
    assert not any(rejected for _, rejected in claim_levels([0.9, 0.9, 0, 0], start, edges)), "never out of turn"


def test_the_level_in_all_is_never_exceeded() -> None:
    """Whatever is true and whatever is rejected, what the true ones have in all stays within the level."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, depth = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        start, edges = chained_questions(count, depth, 0.05)
        true = rng.random(count * depth) < 0.5
        found = claim_levels(np.where(true, 1.0, 0.0).tolist(), start, edges)
        assert sum(level for (level, _), each in zip(found, true, strict=True) if each) <= 0.05 + 1e-12


def test_none_is_never_rejected() -> None:
    assert claim_levels([None, 0.01], [0.025, 0.025], {}) == [(0.025, False), (0.025, True)]
