"""Decisions by cost, against scikit-learn and plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import FixedThresholdClassifier

from evenhand.metrics.costs import cost_matrix, cost_of_decisions, expected_costs


def test_two_classes_are_decided_as_by_the_threshold_of_scikit_learn() -> None:
    """A rare class is decided for from a probability of false alarm / (false alarm + miss)."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(400, 2)), np.repeat([0, 1], [330, 70])
    x[y == 1] += 1
    miss, alarm = 7.0, 2.0
    model = LogisticRegression().fit(x, y)
    expected = FixedThresholdClassifier(model, threshold=alarm / (alarm + miss)).fit(x, y).predict(x)
    costs = np.array([[0, alarm], [miss, 0]])
    np.testing.assert_array_equal(expected_costs(model.predict_proba(x), costs).argmin(1), expected)


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_realised_cost_is_that_of_a_weighted_confusion_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    probabilities, targets = random.dirichlet(np.ones(4), 60), np.arange(60) % 4
    targets = np.where(random.random(60) < 0.4, 0, targets)
    costs, shares = random.random((4, 4)) * 9, random.dirichlet(np.ones(4))
    present = np.bincount(targets, minlength=4) > 0
    weights = (shares / np.maximum(np.bincount(targets, minlength=4), 1))[targets]
    found = cost_of_decisions(probabilities, targets, costs, shares)
    loops = [min(range(4), key=lambda j, row=row: sum(row[i] * costs[i, j] for i in range(4))) for row in probabilities]
    table = confusion_matrix(targets, loops, labels=range(4), sample_weight=weights)
    assert found.realised == pytest.approx((table * costs).sum() / shares[present].sum())
    for k in np.flatnonzero(present):
        assert found.per_class[k] == pytest.approx(costs[k, np.array(loops)[targets == k]].mean())


def test_expected_cost_is_realised_where_probabilities_hold() -> None:
    """With labels drawn from the probabilities, both agree to within the sampling error, and costs save."""
    random = np.random.default_rng(1)
    p = random.dirichlet([0.5, 0.3, 0.2], 40_000)
    targets = (random.random(len(p))[:, None] > p.cumsum(1)).sum(1)
    found = cost_of_decisions(p, targets, cost_matrix([1, 3, 20]), np.bincount(targets) / len(p))
    assert found.realised == pytest.approx(found.expected, rel=0.05)
    assert abs(found.realised - found.expected) < 4 * found.error
    assert found.realised < found.most_probable


def test_the_error_counts_groups() -> None:
    """Against the spread of the realised cost over draws of groups whose images share their outcome in part."""
    random = np.random.default_rng(3)
    targets, groups = np.repeat([0, 1], [120, 60]), np.repeat([str(k) for k in range(36)], 5)
    costs, shares, values, errors, plain = cost_matrix([1, 5]), [0.5, 0.5], [], [], []
    for _ in range(400):
        right = 0.5 + 0.25 * np.repeat(random.normal(size=36), 5) + 0.1 * random.normal(size=180)
        p = np.where(np.eye(2, dtype=bool)[targets], right[:, None], 1 - right[:, None])
        found = cost_of_decisions(p, targets, costs, shares, groups=groups)
        values.append(found.realised)
        errors.append(found.error)
        plain.append(cost_of_decisions(p, targets, costs, shares).error)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.1)
    assert np.mean(plain) < 0.7 * np.std(values)
    alone = np.array([str(k) for k in range(180)])
    assert cost_of_decisions(p, targets, costs, shares, groups=alone).error == pytest.approx(plain[-1])


def test_equal_costs_decide_for_the_most_probable_class() -> None:
    p = np.random.default_rng(2).dirichlet(np.ones(5), 100)
    np.testing.assert_array_equal(expected_costs(p, cost_matrix(np.ones(5))).argmin(1), p.argmax(1))


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ([1, np.inf], "must be finite"),
        ([1, -1], "must be 0 or more, and not all 0"),
        ([0, 0], "not all 0"),
        ([[0, 1, 2], [1, 0, 2]], r"got shape \(2, 3\)"),
        ([[0, -1], [1, 0]], "cost of an error must be 0 or more, got -1"),
        ([[1, 1], [3, 3]], "Every decision costs the same"),
    ],
)
def test_bad_costs_are_refused(costs: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cost_matrix(costs)  # type: ignore[arg-type]
    assert cost_matrix([[-2, 1], [3, 0]])[0, 0] == -2
