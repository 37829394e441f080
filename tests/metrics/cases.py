"""Predictions to judge: any number of classes, any imbalance, classes that do not occur."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from evenhand.metrics.classification import Confusion
from evenhand.metrics.predictions import Predictions


def predictions_of(
    logits: object, targets: object, *, names: tuple[str, ...] | None = None, counts: object = None
) -> Predictions:
    logits, targets = np.array(logits, np.float32), np.array(targets, np.int64)
    k = logits.shape[1]
    return Predictions(
        logits=logits,
        targets=targets,
        ids=np.array([f"test/{row:05d}" for row in range(len(logits))]),
        class_names=names or tuple(f"class {each}" for each in range(k)),
        train_counts=np.array(range(k, 0, -1) if counts is None else counts, np.int64),
    )


def confusion_of(hits: object, supports: object) -> Confusion:
    """A confusion matrix with these hits out of so many a class; the misses go to the next class."""
    hits, supports = np.array(hits, np.int64), np.array(supports, np.int64)
    confusion = np.diag(hits)
    classes = np.arange(len(hits))
    confusion[classes, (classes + 1) % len(hits)] += supports - hits
    return confusion


@dataclass(frozen=True)
class Case:
    predictions: Predictions
    present: list[int]
    """The classes that occur among the targets."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    k = draw(st.integers(2, 50), label="classes")
    n = draw(st.integers(1, 300), label="images")
    ratio = draw(st.sampled_from([1, 10, 1000]), label="imbalance of the test set")
    absent = draw(st.sets(st.integers(0, k - 1), max_size=k - 1), label="absent")
    skill = draw(st.sampled_from([0.0, 2.0, 8.0]), label="skill")
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    weights = ratio ** -np.linspace(0, 1, k)
    weights[list(absent)] = 0
    targets = rng.choice(k, n, p=weights / weights.sum())
    logits = rng.normal(0, 2, (n, k))
    logits[np.arange(n), targets] += skill
    return Case(predictions_of(logits, targets), sorted(set(targets.tolist())))
