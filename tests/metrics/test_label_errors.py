"""Wrong labels against the same rules written out image by image."""

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
        others = [float(p[i, k]) for k, t in enumerate(thresholds) if t is not None and k != y[i]]
        scores.append(float(p[i, y[i]]) / max([*others, 1e-12]))
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
    """Plain confidence accuses every image of a class that always gets 0.3; the ranking names the flipped label."""
    rng = np.random.default_rng(0)
    p = np.empty((250, 5))
    y = np.repeat([0, 1, 2, 3, 4], [60, 60, 60, 60, 10])
    p[:240] = 0.02
    p[np.arange(240), y[:240]] = 0.92
    p[240:, :4], p[240:, 4] = 0.175, 0.3  # the rest is spread over the other classes
    p[7] = 0.35, 0.59, 0.02, 0.02, 0.02  # the label is 0
    p /= p.sum(1, keepdims=True)
    found = find_label_errors(p * rng.uniform(0.999, 1, (250, 1)), y)
    plain = np.argsort(p[np.arange(250), y], kind="stable")
    assert found.ranking()[0] == 7
    assert found.suggested[7] == 1
    assert (plain[:10] >= 240).all()
    assert not found.flagged[240:].any()


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
