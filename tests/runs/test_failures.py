"""What is said of networks that learned nothing, or not what they should have."""

import numpy as np
import pytest

from evenhand.runs.failures import below_majority, ended_at_worst, failures, learned_nothing, no_few_shot
from tests.metrics.cases import predictions_of


def test_guessing_is_told_and_skill_is_not() -> None:
    rng, told = np.random.default_rng(0), 0
    targets = np.repeat(np.arange(10), 30)
    for _ in range(200):
        guessed = predictions_of(np.eye(10)[rng.integers(0, 10, 300)], targets)
        told += learned_nothing(guessed) is not None
    assert told > 160, "a guess in ten looks like skill in one of ten"
    right = np.where(rng.random(300) < 0.3, targets, rng.integers(0, 10, 300))
    assert learned_nothing(predictions_of(np.eye(10)[right], targets)) is None


def test_the_largest_class_is_that_of_training() -> None:
    targets = np.repeat([0, 1, 2], [10, 60, 30])
    predicted = np.where(np.arange(100) % 2, targets, 0)
    told = below_majority(predictions_of(np.eye(3)[predicted], targets, counts=[5, 900, 40]))
    assert told == "its accuracy of 55.0% is below the 60.0% of always predicting 'class 1', the largest class"
    assert below_majority(predictions_of(np.eye(3)[predicted], targets, counts=[900, 5, 40])) is None


def test_few_shot_classes_that_nobody_recognises() -> None:
    targets = np.repeat([0, 1, 2], 10)
    never = predictions_of(np.eye(3)[np.where(targets == 2, 0, targets)], targets, counts=[500, 400, 3])
    assert no_few_shot(never) == "recognises no image of its 1 few-shot class"
    assert failures(never) == ["recognises no image of its 1 few-shot class"]
    assert no_few_shot(predictions_of(np.eye(3)[targets], targets, counts=[500, 400, 3])) is None
    untested = predictions_of(np.eye(3)[[0, 1]], [0, 1], counts=[500, 400, 3])
    assert no_few_shot(untested) is None


@pytest.mark.parametrize(
    ("key", "values", "selected", "told"),
    [
        ("val_balanced_accuracy", [0.3, 0.5, 0.2], 3, True),
        ("val_balanced_accuracy", [0.3, 0.5, 0.2], 2, False),
        ("val_balanced_accuracy", [0.2, 0.5, 0.3], 3, False),
        ("val_balanced_accuracy", [0.2, 0.2, 0.2], 3, False),
        ("val_balanced_accuracy", [0.5, 0.2], 2, False),
        ("test_accuracy", [0.3, 0.5, 0.2], 3, True),
        ("train_loss", [1.0, 0.5, 2.0], 3, True),
        ("train_loss", [1.0, 0.5, 0.7], 3, False),
        ("seconds", [1.0, 2.0, 3.0], 3, False),
    ],
)
def test_the_worst_epoch(key: str, values: list[float], selected: int, told: bool) -> None:
    assert (ended_at_worst([{key: value} for value in values], selected) is not None) == told


@pytest.mark.parametrize(("error", "told"), [(0.06, False), (0.05, True)])
def test_a_fall_within_two_standard_errors_is_no_failure(error: float, told: bool) -> None:
    history = [
        {"val_balanced_accuracy": value, "val_balanced_accuracy_error": each}
        for value, each in ((1.0, error), (0.95, 0.01), (0.889, 0.2))
    ]
    assert (ended_at_worst(history, 3) is not None) == told
