"""Simulate comparisons that were not used to choose the method: real features, other learners, folds and skewed noise.

    python tools/simulate_learners.py      # writes docs/results/data/verdict-learners.json, about 5 minutes
    python tools/update_docs.py            # renders it in docs/results/verdicts.md

Data sets of scikit-learn are populations: an image is a row drawn at random, with noise of 0.3 (digits) or 0.8 (wine,
cancer) standard deviations added to each feature. Half of the features are drawn for each objective from another row
of the same class, so that on new data no objective is better.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import simulate_verdicts
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from evenhand.core.files import write_json
from evenhand.statistics.alpha_spending import SPENDING
from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.image_sampling import paired_image_error
from evenhand.statistics.moderated_t import moderated_differences

KEPT = simulate_verdicts.ROOT / "docs" / "results" / "data" / "verdict-learners.json"
SEEDS, LEVEL = simulate_verdicts.SEEDS, simulate_verdicts.LEVEL
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Learner = Callable[[np.random.Generator, Array, Labels, Array, int], Labels]
"""Random numbers, training features (n, F) and labels, test features, classes -> predicted labels."""
SOURCES = {"digits": (load_digits, 0.3), "wine": (load_wine, 0.8), "cancer": (load_breast_cancer, 0.8)}


def neighbours(count: int) -> Learner:
    """Return a vote of nearest neighbours, in which rare classes count more."""

    def predict(_: np.random.Generator, train: Array, labels: Labels, test: Array, classes: int) -> Labels:
        distances = (train**2).sum(axis=1) - 2 * test @ train.T
        nearest = labels[np.argpartition(distances, min(count, len(labels) - 1), axis=1)[:, :count]]
        votes = (nearest[:, :, None] == np.arange(classes)).sum(axis=1)
        return np.asarray((votes / np.bincount(labels, minlength=classes).clip(1) ** 0.5).argmax(axis=1))

    return predict


def discriminant(_: np.random.Generator, train: Array, labels: Labels, test: Array, classes: int) -> Labels:
    """Linear discriminant analysis, its covariance shrunk by 0.3."""
    chosen = np.eye(classes)[labels]
    means = (chosen.T @ train) / chosen.sum(axis=0).clip(1)[:, None]
    covariance = np.cov((train - means[labels]).T, bias=True)
    shrunk = 0.7 * covariance + 0.3 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    weights = np.linalg.solve(shrunk, means.T)
    return np.asarray((test @ weights - 0.5 * (means.T * weights).sum(axis=0)).argmax(axis=1))


def logistic(rng: np.random.Generator, train: Array, labels: Labels, test: Array, classes: int) -> Labels:
    """Balanced logistic regression from random weights, 25 steps."""
    targets, share = np.eye(classes)[labels], (1 / np.bincount(labels, minlength=classes).clip(1) / classes)[labels]
    weights = rng.normal(0, 0.1, (train.shape[1], classes))
    step = np.zeros_like(weights)
    for _ in range(25):
        scores = train @ weights
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        step = 0.8 * step - 0.1 * (train.T @ ((p - targets) * share[:, None]) + 1e-3 * weights)
        weights = weights + step
    return np.asarray((test @ weights).argmax(axis=1))


def bootstrapped(rng: np.random.Generator, train: Array, labels: Labels, test: Array, classes: int) -> Labels:
    """The same on a bootstrap sample."""
    rows = rng.integers(len(labels), size=len(labels))
    return logistic(rng, train[rows], labels[rows], test, classes)


def random_tree(rng: np.random.Generator, train: Array, labels: Labels, test: Array, _classes: int) -> Labels:
    """A tree with random splits."""
    tree = ExtraTreeClassifier(max_depth=6, class_weight="balanced", random_state=int(rng.integers(2**31)))
    return np.asarray(tree.fit(train, labels).predict(test))


def cart(depth: int | None) -> Learner:
    """Return a decision tree."""

    def predict(_: np.random.Generator, train: Array, labels: Labels, test: Array, _classes: int) -> Labels:
        tree = DecisionTreeClassifier(max_depth=depth, class_weight="balanced", random_state=0)
        return np.asarray(tree.fit(train, labels).predict(test))

    return predict


LEARNERS: dict[str, Learner] = {
    "1 neighbour": neighbours(1),
    "5 neighbours": neighbours(5),
    "discriminant": discriminant,
    "logistic": logistic,
    "logistic on bootstraps": bootstrapped,
    "random tree": random_tree,
    "tree": cart(None),
    "tree of depth 3": cart(3),
}


@dataclass(frozen=True)
class Cell:
    """A setting."""

    learner: str
    source: str
    counts: list[int]
    """Images of each class, multiples of the folds."""
    folds: int = 5
    train: list[int] | None = None
    """Training images of each class, drawn at random for each seed; None: all that a fold leaves."""
    rivals: int = 1
    slow: bool = False
    """Whether three tenths of the comparisons are enough, as it takes long."""


CELLS = (
    Cell("1 neighbour", "digits", [10] * 10),
    Cell("1 neighbour", "wine", [20] * 3, folds=2),
    Cell("5 neighbours", "cancer", [90, 30], folds=3),
    Cell("discriminant", "cancer", [60, 15]),
    Cell("discriminant", "wine", [20] * 3, rivals=3),
    Cell("logistic on bootstraps", "cancer", [20, 20], folds=4),
    Cell("random tree", "wine", [30] * 3, folds=10, slow=True),
    Cell("tree", "wine", [40, 20, 10], slow=True),
    Cell("tree", "digits", [20] * 10, slow=True),
    Cell("tree of depth 3", "digits", [40] * 10, slow=True),
    Cell("discriminant", "digits", [30] * 5, train=[24, 13, 7, 4, 2]),
    Cell("logistic", "digits", [30] * 5, train=[24, 13, 7, 4, 2]),
    Cell("1 neighbour", "digits", [40] * 10, train=[32, 24, 17, 13, 9, 7, 5, 4, 3, 2]),
)


@lru_cache
def population(source: str) -> tuple[Array, Labels]:
    """Return standardised features and labels."""
    features, targets = SOURCES[source][0](return_X_y=True)
    features = features[:, features.std(axis=0) > 0]
    return (features - features.mean(axis=0)) / features.std(axis=0), targets


def draw(rng: np.random.Generator, cell: Cell) -> tuple[Array, Labels]:
    """Return (objectives, seeds, N), whether each image was classified rightly, NaN where not tested, and targets."""
    (features, targets), noise = population(cell.source), SOURCES[cell.source][1]
    size, classes = np.array(cell.counts) // cell.folds, len(cell.counts)
    labels, width = np.repeat(np.arange(classes), size), features.shape[1]
    rows = [np.flatnonzero(targets == k) for k in range(classes)]

    def sample() -> Array:
        chosen = np.concatenate([rng.choice(rows[k], (cell.folds, count)) for k, count in enumerate(size)], axis=1)
        return np.asarray(features[chosen] + noise * rng.normal(size=(*chosen.shape, width)))

    shared, common = sample(), rng.permutation(width)[: width // 2]
    seen = np.tile(labels, cell.folds - 1)
    kept: list[Any] = [slice(None)] * max(SEEDS)
    if cell.train is not None:
        kept = [
            np.concatenate([rng.permutation(np.flatnonzero(seen == k))[:most] for k, most in enumerate(cell.train)])
            for _ in kept
        ]
    right = np.full((cell.rivals + 1, max(SEEDS), cell.folds, len(labels)), np.nan)
    for result in right:
        images = sample()
        images[:, :, common] = shared[:, :, common]
        for seed, own in enumerate(kept):
            fold = seed % cell.folds
            train = np.delete(images, fold, axis=0).reshape(-1, width)
            predicted = LEARNERS[cell.learner](rng, train[own], seen[own], images[fold], classes)
            result[seed, fold] = predicted == labels
    return right.reshape(cell.rivals + 1, max(SEEDS), -1), np.tile(labels, cell.folds)


def compare(right: Array, targets: Labels, cell: Cell) -> Array:
    """Return (rivals, 7): the mean difference, and half widths at 5%, at the share of 5% and of the interim alpha."""
    tested = ~np.isnan(right).all(axis=(0, 1))
    right, targets = right[:, :, tested], targets[tested]
    values = np.mean([np.nanmean(right[:, :, targets == k], axis=2) for k in range(len(cell.counts))], axis=0)
    found = moderated_differences({str(k): own.tolist() for k, own in enumerate(values)}, "0")
    counts = None if cell.train is None else np.array(cell.train)
    rows = []
    for name, each in found.items():
        images = paired_image_error(
            right[int(name)], right[0], targets, train_counts=counts, test_fraction=1 / cell.folds
        )
        one = Evidence(each, images)
        levels = (LEVEL, LEVEL / cell.rivals, SPENDING[right.shape[1]] / cell.rivals)
        ends = [one.half_width(level, side) for level in levels for side in (-1, 1)]
        rows.append([each.mean, *(np.inf if end is None else end for end in ends)])
    return np.array(rows)


def simulate(cell: Cell, trials: int, start: int) -> dict[str, Any]:
    """Return shares in percent: false claims, alone and by interim analyses, and coverage; and power."""
    rng = np.random.default_rng(start)
    made: dict[int, list[Array]] = {n: [] for n in SEEDS}
    for _ in range(trials):
        right, targets = draw(rng, cell)
        for n in SEEDS:
            made[n].append(compare(right[:, :n], targets, cell))
    row: dict[str, Any] = {**asdict(cell), "trials": trials}
    early = np.zeros(trials, bool)
    for n in SEEDS:
        mean, *ends = np.moveaxis(np.array(made[n]), 2, 0)
        outside = [(mean > low) | (-mean > high) for low, high in zip(ends[::2], ends[1::2], strict=True)]
        early |= outside[2].any(axis=1)
        effect = simulate_verdicts.ORACLE * sqrt((mean**2).mean())
        power = ((mean + effect > ends[0]).mean() + (effect - mean > ends[1]).mean()) / 2
        row |= {f"false {n}": 100 * float(outside[1].any(axis=1).mean()), f"power {n}": float(power) / 0.8}
        row[f"coverage {n}"] = 100 * float(1 - outside[0].mean())
    return row | {"interim": 100 * float(early.mean())}


def skewed_noise(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Return noise of mean 0 and a standard deviation of about 1."""
    if name.startswith("lognormal"):
        size = float(name.split()[1])
        mean, spread = np.exp(size**2 / 2), sqrt((np.exp(size**2) - 1) * np.exp(size**2))
        return np.asarray((rng.lognormal(0, size, shape) - mean) / spread)
    if name == "gamma 3":
        return np.asarray((rng.gamma(3, 1, shape) - 3) / sqrt(3))
    if name == "t, 3 degrees of freedom":
        return np.asarray(rng.standard_t(3, shape) / sqrt(3))
    share, size = (float(each) for each in name.removesuffix(" sd").replace("%", "").split(" of runs lower by "))
    return np.asarray(rng.normal(size=shape) - size * ((rng.random(shape) < share / 100) - share / 100))


NOISES = (
    "gamma 3",
    "lognormal 0.5",
    "lognormal 1",
    "t, 3 degrees of freedom",
    "5% of runs lower by 5 sd",
    "10% of runs lower by 4 sd",
    "20% of runs lower by 3 sd",
)


def simulate_skewed(trials: int) -> list[dict[str, Any]]:
    """Return false claims where one arm has this noise and the others normal noise of half its spread."""
    rows = []
    for name in NOISES:
        for place, arm in ((-1, "one rival"), (0, "the baseline")):
            for rivals in (1, 3):
                rng = np.random.default_rng(rivals)
                values = 0.5 * rng.normal(size=(trials, rivals + 1, max(SEEDS)))
                values[:, place] = skewed_noise(rng, name, (trials, max(SEEDS)))
                found = simulate_verdicts.claimed(values, before=False)
                row = {key: 100 * float(own.any(axis=1).mean()) for key, own in found.items()}
                rows.append({"noise": name, "arm": arm, "rivals": rivals, "trials": trials} | row)
    return rows


def main() -> None:
    """Simulate all and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=1_000, help="Comparisons per setting.")
    parser.add_argument("--out", type=Path, default=KEPT, help="File to write.")
    options = parser.parse_args()
    simulate_verdicts.check_copy()
    skewed = simulate_skewed(10 * options.trials)
    rows = []
    for place, cell in enumerate(CELLS):
        rows.append(simulate(cell, options.trials * 3 // 10 if cell.slow else options.trials, 100 + place))
        print(rows[-1], flush=True)
    write_json(options.out, {"learners": rows, "skewed": skewed})


if __name__ == "__main__":
    main()
