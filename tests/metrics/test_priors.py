"""Shifts of the logits after training, against Bayes' rule written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from evenhand.metrics.priors import change_prior, class_prior, implied_prior, subtract_prior, tau_normalise

counts = st.lists(st.integers(1, 10_000), min_size=2, max_size=8)
repeatable = settings(deadline=None, derandomize=True, max_examples=50)


def drawn_logits(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(k).normal(0, 3, (n, k))


@repeatable
@given(old=counts, data=st.data())
def test_a_changed_prior_is_bayes_rule(old, data):
    """P'(k | x) is proportional to P(k | x) q_k / p_k."""
    new = data.draw(st.lists(st.floats(0.01, 10), min_size=len(old), max_size=len(old)))
    logits = drawn_logits(5, len(old))
    p, q = np.array(old) / sum(old), np.array(new) / sum(new)
    expected = softmax(logits, 1) * q / p
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(softmax(change_prior(logits, old, new), 1), expected, rtol=1e-9)
    there_and_back = change_prior(change_prior(logits, old, new), new, old)
    np.testing.assert_allclose(there_and_back, logits, rtol=1e-9, atol=1e-9)


@repeatable
@given(n=counts)
def test_adjusting_is_the_change_to_equal_shares(n):
    logits = drawn_logits(5, len(n))
    to_equal = change_prior(logits, n, np.ones(len(n)))
    np.testing.assert_allclose(log_softmax(subtract_prior(logits, n), 1), log_softmax(to_equal, 1), atol=1e-9)
    np.testing.assert_array_equal(subtract_prior(logits, n, tau=0), logits)
    half_twice = subtract_prior(subtract_prior(logits, n, tau=0.5), n, tau=0.5)
    np.testing.assert_allclose(half_twice, subtract_prior(logits, n), atol=1e-9)


def test_a_known_classifier_is_made_right_for_other_shares():
    """Two classes of unit normals at -1 and 1 have the logit 2 x + log odds of the prior: nothing is estimated."""
    x = np.linspace(-3, 3, 13)
    trained = np.stack([-x + np.log(0.9), x + np.log(0.1)], 1)
    used = softmax(change_prior(trained, [0.9, 0.1], [0.3, 0.7]), 1)
    density = np.exp(-((x[:, None] - [-1, 1]) ** 2) / 2) * [0.3, 0.7]
    np.testing.assert_allclose(used, density / density.sum(1, keepdims=True), rtol=1e-12)


@repeatable
@given(n=counts, tau=st.floats(0, 2))
def test_what_a_training_with_adjustment_implies(n, tau):
    """Logits of a perfect training on z + tau log prior are those of the images less that shift."""
    perfect = drawn_logits(4, len(n))  # belong to the shares n
    adjusted = subtract_prior(perfect, n, tau)
    back = change_prior(adjusted, implied_prior(n, tau), n)
    np.testing.assert_allclose(log_softmax(back, 1), log_softmax(perfect, 1), atol=1e-8)
    assert implied_prior(n, tau).sum() == pytest.approx(1)


def test_ends_of_the_implied_prior():
    np.testing.assert_allclose(implied_prior([5, 3, 2], 0), [0.5, 0.3, 0.2])
    np.testing.assert_allclose(implied_prior([5, 3, 2], 1), np.ones(3) / 3)


def test_classes_without_images():
    np.testing.assert_allclose(class_prior([6, 0, 2]), [0.6, 0.2, 0.2])
    assert np.isfinite(subtract_prior(np.zeros((1, 3)), [6, 0, 2])).all()
    probabilities = softmax(change_prior(drawn_logits(3, 3), [6, 1, 2], [1, 0, 1]), 1)
    assert (probabilities[:, 1] == 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_tau_normalised_rows():
    weights = np.random.default_rng(0).normal(size=(4, 7)) * [[1], [2], [5], [0]]
    np.testing.assert_allclose(np.linalg.norm(tau_normalise(weights), axis=1), [1, 1, 1, 0])
    np.testing.assert_array_equal(tau_normalise(weights, 0), weights)
    lengths = np.linalg.norm(weights[:3], axis=1)
    np.testing.assert_allclose(np.linalg.norm(tau_normalise(weights, 0.7), axis=1)[:3], lengths**0.3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: class_prior([0, 0]),
        lambda: class_prior([-1, 2]),
        lambda: class_prior([np.nan, 2]),
        lambda: class_prior("many"),
        lambda: class_prior([[1, 2]]),
        lambda: class_prior([]),
        lambda: subtract_prior(np.zeros((2, 3)), [1, 2]),
        lambda: subtract_prior(np.zeros(2), [1, 2]),
        lambda: subtract_prior(np.zeros((2, 2)), [1, 2], tau=np.inf),
        lambda: subtract_prior(np.zeros((2, 2)), [1, 2], tau="auto"),
        lambda: change_prior(np.zeros((2, 2)), [1, 0], [1, 1]),
        lambda: change_prior(np.zeros((2, 2)), [1, 2], [1, 1, 1]),
        lambda: change_prior(np.zeros((2, 2)), [1, 2], [0, 0]),
        lambda: tau_normalise([1.0, 2.0]),
        lambda: tau_normalise([[1.0, 2.0]], tau=None),
    ],
)
def test_what_cannot_be_meant(call):
    with pytest.raises(ValueError, match=r"\A[^\n]+\.\Z"):
        call()
