"""Wrong labels against confident learning written out image by image."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.metrics.label_errors import find_label_errors


def by_hand(p: NDArray[np.float64], y: NDArray[np.int64]) -> tuple[list[float], list[bool], list[float | None]]:
    """Return scores, flags and thresholds by loops."""
    thresholds: list[float | None] = []
    for k in range(p.shape[1]):
        own = [float(p[i, k]) for i in range(len(y)) if y[i] == k]
        thresholds.append(sum(own) / len(own) if own else None)
    scores, flags = [], []
    for i in range(len(y)):
        threshold = thresholds[y[i]]
        assert threshold is not None
        scores.append(float(p[i, y[i]]) / threshold)
        reached = [k for k, t in enumerate(thresholds) if t is not None and p[i, k] >= t - 1e-12]
        best = max(reached, key=lambda k: (p[i, k], k == y[i]), default=None)
        flags.append(best is not None and best != y[i])
    lowest = [
        sorted((i for i in range(len(y)) if y[i] == k), key=lambda i: scores[i])[
            : sum(flag for flag, label in zip(flags, y, strict=True) if label == k)
        ]
        for k in range(p.shape[1])
    ]
    return scores, [any(i in rows for rows in lowest) for i in range(len(y))], thresholds


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(2, 6))
@settings(deadline=None, max_examples=60)
def test_as_by_hand(seed: int, images: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    p, y = rng.dirichlet(np.ones(classes), images), rng.integers(0, classes, images)
    found = find_label_errors(p, y)
    scores, flags, thresholds = by_hand(p, y)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-9)
    assert found.flagged.tolist() == flags
    assert [None if np.isnan(t) else pytest.approx(t) for t in found.thresholds] == thresholds
    assert (found.suggested != y).all()
    assert (np.diff(found.scores[found.ranking()]) >= 0).all()


def test_an_underfitted_rare_class_is_not_accused_first() -> None:
    """Plain confidence accuses every image of a class that always gets 0.4; the ranking names the flipped label."""
    rng = np.random.default_rng(0)
    frequent = np.column_stack([rng.uniform(0.9, 0.99, 200), np.zeros(200)])
    rare = np.column_stack([np.zeros(10), rng.uniform(0.35, 0.45, 10)])
    p = np.concatenate([frequent, rare])
    p = np.column_stack([p, 1 - p.sum(1)])
    p[7] = 0.43, 0.35, 0.22  # the label is 0
    y = np.repeat([0, 1], [200, 10])
    found = find_label_errors(p, y)
    plain = np.argsort(p[np.arange(210), y], kind="stable")
    assert found.ranking()[0] == 7
    assert (plain[:5] >= 200).all()
    assert not found.flagged[200:].any()


def test_classes_without_images_are_never_suggested() -> None:
    found = find_label_errors([[0.1, 0.0, 0.9], [0.5, 0.2, 0.3]], [0, 1])
    assert np.isnan(found.thresholds[2])
    assert found.suggested.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("p", "y", "words"),
    [
        ([[0.5, 0.5]], [2], "targets must be 0 to 1, got 2"),
        ([0.5, 0.5], [0, 1], "needs probabilities"),
        ([[np.nan, 1.0]], [0], "finite"),
        (np.empty((0, 2)), [], "N of 1 or more"),
    ],
)
def test_bad_input_is_named(p: object, y: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        find_label_errors(p, y)  # type: ignore[arg-type]
