"""Shot groups."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.metrics.shot_groups import find_shot_groups

# 6000 to 60 images in 10 classes, and 500 to 5 in 100, both falling exponentially.
FASHION_LT = np.array([6000, 3596, 2156, 1292, 774, 464, 278, 166, 100, 60])
CIFAR100_LT = np.array([int(500 * 100 ** (-k / 99)) for k in range(100)])


def test_shot_groups() -> None:
    groups = find_shot_groups(np.array([101, 100, 20, 19]))
    assert (groups.many, groups.medium, groups.few) == ((0,), (1, 2), (3,))
    thirds = find_shot_groups(np.array([600, 500, 400, 300, 200, 150]))
    assert (thirds.many, thirds.medium, thirds.few) == ((0, 1), (2, 3), (4, 5))
    fashion = find_shot_groups(FASHION_LT)
    assert (fashion.many, fashion.medium, fashion.few) == ((0, 1, 2), (3, 4, 5, 6), (7, 8, 9))
    cifar100 = find_shot_groups(CIFAR100_LT)
    assert [len(group) for group in (cifar100.many, cifar100.medium, cifar100.few)] == [35, 35, 30]
    step = find_shot_groups(np.array([5000] * 5 + [500] * 5))
    assert (step.many, step.medium, step.few) == (tuple(range(5)), (), tuple(range(5, 10)))
    assert find_shot_groups(np.array([300] * 6 + [200])).few == (6,)
    assert find_shot_groups(np.array([300] + [200] * 6)).many == (0,)
    assert find_shot_groups(np.array([7, 7, 7])).medium == (0, 1, 2)
    assert find_shot_groups(np.array([146, 139, 142])).medium == (0, 1, 2)
    assert find_shot_groups(np.array([150, 100, 142])).few == (1,)
    assert find_shot_groups(np.array([3, 0, 3])).few == (1,), "a class without images is rare"


@given(counts=st.lists(st.integers(1, 6000), min_size=2, max_size=40))
@settings(deadline=None, derandomize=True)
def test_shot_groups_hold_every_class_once_and_are_ordered(counts: list[int]) -> None:
    groups = find_shot_groups(np.array(counts))
    assert sorted([*groups.many, *groups.medium, *groups.few]) == list(range(len(counts)))
    if 1.5 * min(counts) <= max(counts):
        assert groups.many, "unequal counts have a many-shot end"
        assert groups.few, "and a few-shot end"
    else:
        assert groups.medium == tuple(range(len(counts))), "nearly balanced classes have no groups"
    for upper, lower in ((groups.many, groups.medium), (groups.medium, groups.few), (groups.many, groups.few)):
        if upper and lower:
            assert min(counts[k] for k in upper) > max(counts[k] for k in lower)
