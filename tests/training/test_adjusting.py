"""What is done to logits after training: kept beside the unadjusted result, from raw logits, never twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import balanced_accuracy_score

from evenhand.core.errors import EvenhandError
from evenhand.metrics.predictions import load_predictions
from evenhand.metrics.priors import TAUS, best_tau
from evenhand.metrics.summary import summarise
from evenhand.runs.folder import Run
from evenhand.training.run import train_run
from tests.training.runs import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, Run]:
    """The same training, judged as it is, with a given tau and with the best one."""
    root = tmp_path_factory.mktemp("adjusted")
    specs = {"plain": "ce", "given": "ce+post-hoc:tau=1", "auto": "post-hoc"}
    one, two, three = (train_run(tiny(objective=spec), root / name) for name, spec in specs.items())
    return one, two, three


def test_logits_stay_raw_and_the_result_is_adjusted(runs: tuple[Run, Run, Run]) -> None:
    plain, given_tau, _ = runs
    raw, adjusted = plain.predictions, given_tau.predictions
    assert (raw.logits == adjusted.logits).all()
    counts = adjusted.fitted_counts
    assert counts is not None
    assert counts.sum() == len(plain.splits.train)
    shifted = raw.logits.astype(np.float64) - np.log(counts / counts.sum())
    assert (adjusted.predicted() == shifted.argmax(1)).all()
    probabilities = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(adjusted.log_probabilities()), probabilities, rtol=1e-9)
    summary = given_tau.summary.model_dump(mode="json")
    assert summary["balanced_accuracy"] == summarise(adjusted)["balanced_accuracy"]
    assert summary["unadjusted"]["balanced_accuracy"] == plain.summary.balanced_accuracy != summary["balanced_accuracy"]
    assert (summary["adjustment"]["tau"], summary["adjustment"]["chosen"]) == (1.0, "given")
    np.testing.assert_array_equal(given_tau.best_weights.read_bytes(), plain.best_weights.read_bytes())


def test_auto_is_the_best_on_validation(runs: tuple[Run, Run, Run]) -> None:
    plain, _, auto = runs
    validation = auto.validation_predictions
    assert validation is not None
    assert validation.adjustment is None
    assert validation.fitted_counts is not None
    shift = np.log(validation.fitted_counts / validation.fitted_counts.sum())
    reached = [balanced_accuracy_score(validation.targets, (validation.logits - tau * shift).argmax(1)) for tau in TAUS]
    tau = auto.summary.model_dump()["adjustment"]["tau"]
    assert reached[round(tau * 10)] == pytest.approx(max(reached))
    assert auto.summary.model_dump()["adjustment"]["chosen"] == "validation"
    assert plain.predictions.adjustment is None


def test_an_adjustment_is_kept_with_the_predictions(runs: tuple[Run, Run, Run], tmp_path: Path) -> None:
    predictions = runs[1].predictions
    predictions.save(tmp_path / "copy.npz")
    again = load_predictions(tmp_path / "copy.npz")
    assert again.adjustment is not None
    np.testing.assert_array_equal(again.adjustment, predictions.adjustment)
    for wrong in (np.zeros(3), np.full(10, np.inf)):
        with pytest.raises(EvenhandError, match="adjustment must be"):
            replace(predictions, adjustment=wrong)


def test_without_validation_auto_is_refused_before_data_are_read(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="chooses its tau on validation images"):
        train_run(tiny(objective="ce+post-hoc", select="last", data__source="nowhere"), tmp_path / "run")


@settings(derandomize=True, deadline=None, max_examples=40)
@given(arrays(np.float64, (30, 3), elements=st.floats(-5, 5)), st.integers(2, 500))
def test_best_tau_against_scikit_learn(logits: np.ndarray, most: int) -> None:
    targets, counts = np.arange(30) % 3, np.array([most, 20, 1])
    shift = np.log(counts / counts.sum())
    reached = [balanced_accuracy_score(targets, (logits - tau * shift).argmax(1)) for tau in TAUS]
    tau = best_tau(logits, targets, counts)
    assert reached[round(tau * 10)] == pytest.approx(max(reached))
    assert all(
        value < max(reached) - 1e-9 for t, value in zip(TAUS, reached, strict=True) if abs(t - 1) < abs(tau - 1) - 1e-6
    )
