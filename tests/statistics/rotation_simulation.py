"""Comparisons of closed-form learners on overlapping folds, where no objective is better over new data.

Objectives see features of their own with the same distribution, so they are equally good over new data sets; on one
data set they are not, through its training and test images. Seeds differ by fold and by what a learner draws at random.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FOLDS = 5


@dataclass(frozen=True)
class Learner:
    """A classifier in closed form."""

    kind: str
    """means: nearest class mean; ridge: ridge regression on class indicators; network: the same on random ReLUs."""
    shared: int = 0
    """Features that all objectives see."""
    own: int = 16
    """Features that each objective has to itself."""
    noise: float = 0.0
    """How much a seed changes the weights of features (means), or which share of them it leaves out (ridge)."""
    penalty: float = 1.0
    separation: float = 2.5
    """Of classes, in standard deviations."""


LEARNERS = {
    "means": Learner("means", 6, 10, separation=3.0),
    "noisy means": Learner("means", 6, 10, noise=0.7, separation=3.0),
    "ridge": Learner("ridge"),
    "wide ridge": Learner("ridge", own=40, penalty=3.0),
    "network": Learner("network", penalty=2.0, separation=3.0),
    "dropout": Learner("ridge", noise=0.3, separation=3.0),
    "seed noise alone": Learner("ridge", shared=16, own=0, noise=0.3, separation=3.0),
}


def comparisons(
    learner: Learner, counts: list[int], *, objectives: int, seeds: int, trials: int, start: int = 0
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Yield whether each image was classified rightly, (objectives, seeds, N), NaN where not tested, and targets.

    Args:
        learner: of all objectives.
        counts: images of each class, multiples of 5.
        objectives: how many.
        seeds: seed s is tested on fold s mod 5.
        trials: data sets.
        start: of the random numbers.
    """
    rng, size = np.random.default_rng(start), np.array(counts) // FOLDS
    labels, features = np.repeat(np.arange(len(counts)), size), learner.shared + learner.own
    scale = learner.separation / np.sqrt(features)
    centres = np.random.default_rng(0).normal(0, scale, (len(counts), features))
    for _ in range(trials):
        right = np.full((objectives, seeds, FOLDS, len(labels)), np.nan)
        common = rng.normal(size=(FOLDS, len(labels), learner.shared))
        for own in right:
            private = rng.normal(size=(FOLDS, len(labels), learner.own))
            images = centres[labels] + np.concatenate([common, private], axis=2)
            for seed, predicted in enumerate(_predictions(rng, learner, images, labels, len(counts), seeds)):
                own[seed, seed % FOLDS] = predicted == labels
        yield right.reshape(objectives, seeds, -1), np.tile(labels, FOLDS)


def _predictions(
    rng: np.random.Generator, learner: Learner, images: Array, labels: NDArray[np.int64], classes: int, seeds: int
) -> Iterator[NDArray[np.int64]]:
    """Yield for each seed the predicted classes of its fold, trained on the other four with classes weighted alike."""
    share = 1 / np.bincount(labels)[labels]
    weights = np.tile(share / share.mean(), FOLDS - 1)
    targets = np.tile(np.eye(classes)[labels], (FOLDS - 1, 1))
    by_fold: dict[int, tuple[Array, Array, Array]] = {}
    for seed in range(seeds):
        fold = seed % FOLDS
        if learner.kind == "network":
            inputs = images.shape[2]
            used = np.maximum(images @ (rng.normal(size=(inputs, 24)) / inputs**0.5) + rng.normal(0, 0.5, 24), 0)
            by_fold[fold] = _moments(used, fold, weights, targets)
        elif fold not in by_fold:  # seeds of a fold see the same features
            by_fold[fold] = _moments(images, fold, weights, targets)
        test, squares, products = by_fold[fold]
        if learner.kind == "means":
            means = products / (weights @ targets)
            by_feature = np.exp(learner.noise * rng.normal(size=len(means)))[:, None]
            scores = 2 * test @ (by_feature * means) - (by_feature * means**2).sum(axis=0)
        else:
            kept = rng.random(len(squares)) >= learner.noise
            penalty = np.diag(np.where(kept, learner.penalty, 1e6))
            scores = test @ np.linalg.solve(squares + penalty, products)
        yield scores.argmax(axis=1)


def _moments(images: Array, fold: int, weights: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Return the features of a fold, and the squares and the products with the targets of those of the other four."""
    train = np.delete(images, fold, axis=0).reshape(len(weights), -1)
    centre = weights @ train / weights.sum()
    train, test = train - centre, images[fold] - centre
    weighted = (train * weights[:, None]).T
    return test, weighted @ train, weighted @ targets
