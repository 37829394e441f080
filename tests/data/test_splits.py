"""Splits: stratified, disjoint, reproducible, and fair to rare classes and to groups."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.data.imbalance import Imbalance
from evenhand.data.splits import Splits, drop_small_classes, make_splits
from evenhand.data.table import ArrayPixels, SampleTable


def table_of(counts: list[int], *, groups: list[str] | None = None, splits: list[str] | None = None) -> SampleTable:
    labels = np.repeat(np.arange(len(counts)), counts)
    return SampleTable(
        name="made-up",
        class_names=tuple(f"class {k}" for k in range(len(counts))),
        labels=labels,
        ids=np.array([f"sample {i}" for i in range(len(labels))]),
        pixels=ArrayPixels(np.zeros((len(labels), 2, 2, 1), np.uint8)),
        splits=None if splits is None else np.array(splits),
        groups=None if groups is None else np.array(groups),
    )


def assert_partition(table: SampleTable, splits: Splits) -> None:
    together = np.concatenate([splits.train, splits.val, splits.test])
    assert sorted(together) == list(range(len(table)))


@given(counts=st.lists(st.integers(2, 60), min_size=2, max_size=8), seed=st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_every_class_is_trained_on_and_tested_on(counts: list[int], seed: int) -> None:
    table = table_of(counts)
    splits = make_splits(table, seed=seed, split_seed=seed)
    assert_partition(table, splits)
    sizes = np.array(counts)
    test = table.counts(splits.test)
    assert (test == np.clip(np.rint(0.2 * sizes), 1, sizes - 1)).all()
    assert (table.counts(splits.train) >= 1).all()
    assert (splits.counts == sizes - test).all()
    validated = table.counts(splits.val)
    assert ((validated > 0) == (splits.counts >= 5)).all()
    assert (validated == np.where(splits.counts >= 5, np.maximum(np.rint(0.1 * splits.counts), 1), 0)).all()
    assert bool(splits.notes) == bool((validated == 0).any())


def test_the_same_seed_gives_the_same_split_and_test_rows_know_no_run_seed() -> None:
    table = table_of([50, 30, 8])
    first, again, other = (make_splits(table, seed=s, imbalance=Imbalance("exp", 3)) for s in (0, 0, 1))
    for name in ("train", "val", "test"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert np.array_equal(first.test, other.test)
    assert not np.array_equal(first.train, other.train)
    assert not np.array_equal(first.test, make_splits(table, split_seed=1).test)


@given(counts=st.lists(st.integers(2, 60), min_size=2, max_size=6), split_seed=st.integers(0, 3))
@settings(deadline=None, derandomize=True)
def test_rotated_test_sets_take_turns_until_every_image_was_tested(counts: list[int], split_seed: int) -> None:
    table, sizes = table_of(counts), np.array(counts)
    turns = [make_splits(table, split_seed=split_seed, rotation=turn) for turn in range(60)]
    assert np.array_equal(turns[0].test, make_splits(table, split_seed=split_seed).test)
    for turn in turns:
        assert_partition(table, turn)
        assert (table.counts(turn.test) == np.clip(np.rint(0.2 * sizes), 1, sizes - 1)).all()
    for k, size in enumerate(counts):
        share = table.counts(turns[0].test)[k]
        tested = np.concatenate([rows[table.labels[rows] == k] for rows in (turn.test for turn in turns)])
        assert len(np.unique(tested[: size // share * share])) == size // share * share  # none twice before all once
        assert len(np.unique(tested)) == size


def test_groups_are_drawn_anew_for_each_turn_and_a_test_set_of_the_source_stays() -> None:
    table = table_of([60, 40], groups=[f"{k}-{i // 4}" for k, n in enumerate((60, 40)) for i in range(n)])
    turns = [make_splits(table, rotation=turn) for turn in range(4)]
    assert np.array_equal(turns[0].test, make_splits(table).test)
    assert len({tuple(turn.test) for turn in turns}) == 4
    assert table.groups is not None
    for turn in turns:
        assert not set(table.groups[turn.test]) & set(table.groups[np.concatenate([turn.train, turn.val])])
    fixed = table_of([6, 6], splits=["train", "train", "train", "train", "test", "test"] * 2)
    assert np.array_equal(make_splits(fixed, rotation=3).test, make_splits(fixed).test)


def test_imbalance_thins_training_only_and_validation_comes_out_of_what_is_left() -> None:
    table = table_of([100] * 4)
    plain = make_splits(table)
    thinned = make_splits(table, imbalance=Imbalance("exp", 8))
    assert np.array_equal(plain.test, thinned.test)
    assert thinned.counts.tolist() == [80, 40, 20, 10]
    assert table.counts(thinned.val).tolist() == [8, 4, 2, 1]
    assert table.counts(np.concatenate([thinned.train, thinned.val])).tolist() == [80, 40, 20, 10]
    everything = make_splits(table, imbalance=Imbalance("exp", 8), val_fraction=0)
    assert table.counts(everything.train).tolist() == [80, 40, 20, 10]
    assert len(everything.val) == 0


def test_splits_of_the_source_are_kept() -> None:
    table = table_of([4, 4], splits=["train", "train", "val", "test"] * 2)
    splits = make_splits(table)
    assert table.ids[splits.test].tolist() == ["sample 3", "sample 7"]
    assert table.ids[splits.val].tolist() == ["sample 2", "sample 6"]
    without_val = make_splits(table_of([12, 12], splits=(["train"] * 10 + ["test"] * 2) * 2))
    assert [len(without_val.train), len(without_val.val), len(without_val.test)] == [18, 2, 4]


def test_classes_that_cannot_be_split_are_refused_or_dropped() -> None:
    table = table_of([9, 1, 5])
    with pytest.raises(EvenhandError, match=r"'class 1'.*--drop-small"):
        make_splits(table)
    smaller = drop_small_classes(table)
    assert smaller.class_names == ("class 0", "class 2")
    assert smaller.counts().tolist() == [9, 5]
    assert smaller.ids.tolist() == [f"sample {i}" for i in [*range(9), *range(10, 15)]]
    assert any("class 1" in note for note in smaller.notes)
    make_splits(smaller)
    with pytest.raises(EvenhandError, match="large enough"):
        drop_small_classes(table_of([9, 1]))


def test_a_class_missing_from_a_fixed_split_is_refused() -> None:
    table = table_of([3, 3], splits=["train", "train", "test", "train", "train", "train"])
    with pytest.raises(EvenhandError, match="'class 1'"):
        make_splits(table)


@pytest.mark.parametrize("fractions", [{"test_fraction": 0}, {"test_fraction": 1}, {"val_fraction": -0.1}])
def test_bad_fractions(fractions: dict[str, float]) -> None:
    with pytest.raises(EvenhandError, match="fraction must be"):
        make_splits(table_of([9, 9]), **fractions)  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.lists(st.integers(1, 9), min_size=3, max_size=9), min_size=2, max_size=5),
    seed=st.integers(0, 3),
)
@settings(deadline=None, derandomize=True)
def test_groups_never_straddle_a_split(sizes: list[list[int]], seed: int) -> None:
    groups = [f"{k}-{g}" for k, row in enumerate(sizes) for g, size in enumerate(row) for _ in range(size)]
    table = table_of([sum(row) for row in sizes], groups=groups)
    splits = make_splits(table, seed=seed, split_seed=seed)
    assert_partition(table, splits)
    assert table.groups is not None
    sides = [set(table.groups[rows]) for rows in (splits.train, splits.val, splits.test)]
    assert len(set.union(*sides)) == sum(map(len, sides))
    assert (table.counts(splits.train) >= 1).all()
    assert (table.counts(splits.test) >= 1).all()


def test_grouped_test_sets_come_close_to_their_share() -> None:
    groups = [f"{k}-{i // 5}" for k in range(2) for i in range(500)]
    table = table_of([500, 500], groups=groups)
    assert table.counts(make_splits(table).test).tolist() == [100, 100]


def test_a_large_group_is_left_in_training_where_smaller_ones_come_closer() -> None:
    sizes = {"a": 50, "b": 12, "c": 3, "d": 5}
    groups = [name for name, size in sizes.items() for _ in range(size)]
    for split_seed in range(6):
        table = table_of([70, 70], groups=[*groups, *(f"other {name}" for name in groups)])
        assert (np.abs(table.counts(make_splits(table, split_seed=split_seed).test) - 14) <= 6).all()
    only_large = table_of([60, 60], groups=[f"{k}-{i // 30}" for k in range(2) for i in range(60)])
    assert only_large.counts(make_splits(only_large).test).tolist() == [30, 30]


def test_one_group_cannot_be_split() -> None:
    with pytest.raises(EvenhandError, match="'class 1'"):
        make_splits(table_of([4, 4], groups=["a", "b", "c", "d", "e", "e", "e", "e"]))


def test_groups_may_hold_several_classes() -> None:
    table = table_of([3, 3, 3], groups=["a", "b", "c"] * 3)
    splits = make_splits(table)
    assert table.counts(splits.test).tolist() == [1, 1, 1]
    assert table.counts(splits.train).tolist() == [2, 2, 2]


def test_groups_that_tie_classes_together_are_refused_in_words() -> None:
    # Whichever group is taken first, testing the class it leaves out takes the last training image of another.
    with pytest.raises(EvenhandError, match="groups of made-up allow no test image"):
        make_splits(table_of([2, 2, 2], groups=["a", "b", "a", "c", "b", "c"]))


@pytest.mark.parametrize(
    ("spec", "expected"), [("none", [50, 50, 50, 50]), ("exp:8", [50, 25, 12, 6]), ("step:5", [50, 50, 10, 10])]
)
def test_a_fraction_keeps_the_ratio(spec: str, expected: list[int]) -> None:
    table = table_of([250] * 4)
    splits = make_splits(table, imbalance=Imbalance.parse(spec), fraction=0.25)
    assert splits.counts.tolist() == expected
    assert (table.counts(splits.test) == 50).all()


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5])
def test_a_senseless_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(EvenhandError, match="above 0 and at most 1"):
        make_splits(table_of([9, 9]), fraction=fraction)
