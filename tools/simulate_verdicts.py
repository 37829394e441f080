"""Simulate comparisons whose truth is known: how often verdicts err, and what they find.

    python tools/simulate_verdicts.py                  # writes docs/results/data/verdicts.json, some minutes of CPU
    python tools/simulate_verdicts.py --only noise     # that part alone; or values, rotation, folder
    python tools/simulate_verdicts.py --only rotation --row "ridge, 150"    # one row of rotated folds alone
    python tools/update_docs.py                        # renders it in docs/results/verdicts.md

*Before* is the moderated t-test on the values of seeds alone, without a correction for skewness. *Now* is what the
package computes. Values of seeds are tested in arrays by a copy of the formulas, compared with the package first;
rotated folds and folders with several lists are tested by the package itself, with the learners and lists of the tests.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from scipy.stats import norm

import evenhand.statistics.image_sampling as image_sampling
from evenhand.core.files import read_json, write_json
from evenhand.statistics.alpha_spending import SPENDING
from evenhand.statistics.combined_interval import Evidence
from evenhand.statistics.image_sampling import paired_image_error
from evenhand.statistics.moderated_t import MOST_STRETCH, MOST_WEIGHT, STRETCH, WEIGHT, moderated_differences

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "results" / "data" / "verdicts.json"
SEEDS = (3, 5, 8, 12)
LEVEL = 0.05
Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, int], Array]
"""(trials, series, seeds), the baseline first."""

ORACLE = float(norm.ppf(0.975) + norm.ppf(0.8))
"""In standard errors, what a test that knows the variance finds in 80%."""
ROTATED = (
    ("wide ridge", "10"),
    ("wide ridge", "long tail"),
    ("ridge", "40"),
    ("network", "10"),
    ("means", "10"),
    ("seed noise alone", "10"),
    ("wide ridge", "held out, 8 classes of 10"),
    ("network", "held out, 100 to 10"),
    ("ridge", "150"),
    ("network", "150"),
)
HELD_OUT = {"held out, 8 classes of 10": [10] * 8, "held out, 100 to 10": [100, 50, 25, 15, 10, 10]}


def normal(rng: np.random.Generator, trials: int, series: int) -> Array:
    """Equal spreads."""
    return rng.normal(size=(trials, series, max(SEEDS)))


def skewed_baseline(rng: np.random.Generator, trials: int, series: int) -> Array:
    """Exponential noise in the baseline, normal noise of half its spread in the others."""
    noise = 0.5 * normal(rng, trials, series)
    noise[:, 0] = rng.exponential(1, noise[:, 0].shape) - 1
    return noise


def skewed_rival(rng: np.random.Generator, trials: int, series: int) -> Array:
    """The same in the last rival."""
    return skewed_baseline(rng, trials, series)[:, ::-1]


def collapsing(rng: np.random.Generator, trials: int, series: int) -> Array:
    """8% of the runs of one rival lose ten standard deviations; the others gain, so that its mean is the baseline's."""
    noise = normal(rng, trials, series)
    noise[:, -1] += 0.8 - 10 * (rng.random(noise[:, -1].shape) < 0.08)
    return noise


NOISES: Mapping[str, Noise] = {
    "normal noise": normal,
    "exponential noise in one rival": skewed_rival,
    "exponential noise in the baseline": skewed_baseline,
    "8% of one rival's runs collapse": collapsing,
}


def p_values(values: Array, *, before: bool = False) -> Array:
    """Return (trials, rivals), the p-values of all differences to the first series, (trials, series, seeds)."""
    differences = values[:, 1:] - values[:, :1]
    _, rivals, n = differences.shape
    mean, variance = differences.mean(axis=2), differences.var(axis=2, ddof=1)
    weight = min(MOST_WEIGHT, WEIGHT * (rivals - 1) * (n - 1))
    residual = values - values.mean(axis=2, keepdims=True)
    residual -= residual.mean(axis=1, keepdims=True)
    pooled = 2 * (residual**2).sum(axis=(1, 2)) / (rivals * (n - 1))
    usual = np.maximum(pooled, variance.mean(axis=1))[:, None]
    error = np.sqrt((weight * usual + (n - 1) * variance) / (weight + n - 1) / n)
    centred = differences - mean[:, :, None]
    skewness = (centred**3).mean(axis=2) / (centred**2).mean(axis=2) ** 1.5
    side = -np.sign(mean)
    tail = np.maximum(0, np.maximum(side * skewness, side * skewness.mean(axis=1, keepdims=True)))
    longer = 1 if before else 1 + min(MOST_STRETCH, STRETCH / sqrt(n)) * tail
    found: Array = 2 * stdtr(weight + n - 1, -np.abs(mean) / (error * longer))
    return found


def check_copy() -> None:
    """Compare the copy of the formulas with the package."""
    rng = np.random.default_rng(0)
    for rivals in (1, 3):
        for n in SEEDS:
            values = skewed_rival(rng, 20, rivals + 1)[:, :, :n]
            for own, p in zip(values, p_values(values), strict=True):
                named = {str(place): series.tolist() for place, series in enumerate(own)}
                expected = [each.p for each in moderated_differences(named, "0").values()]
                np.testing.assert_allclose(p, expected, rtol=1e-9)


def claimed(values: Array, *, before: bool) -> dict[str, Array]:
    """Return (trials, rivals), what is claimed at each number of seeds, and by each of the interim analyses.

    The share of alpha that a claim passes on to the others is left out.
    """
    share, found = values.shape[1] - 1, {}
    interim: Array = np.zeros((len(values), share), bool)
    for n in SEEDS:
        p = p_values(values[:, :, :n], before=before)
        found[f"{n}"] = p <= LEVEL / share
        interim = interim | (p <= SPENDING[n] / share)
        found[f"interim {n}"] = interim
    return found


def simulate_values(trials: int) -> list[dict[str, Any]]:
    """Return shares in percent, for each noise and number of rivals: false claims, and what is found."""
    rows = []
    for rivals in (1, 2, 3):
        for name, noise in NOISES.items():
            values = noise(np.random.default_rng(rivals), trials, rivals + 1)
            for when in ("before", "now"):
                any_claim = {k: v.any(axis=1) for k, v in claimed(values, before=when == "before").items()}
                rows.append(
                    {"truth": "no difference", "noise": name, "rivals": rivals, "when": when} | _shares(any_claim)
                )
        for size in (1, 2):
            values = normal(np.random.default_rng(10 * size + rivals), trials, rivals + 1)
            values[:, 1] += size * sqrt(2)  # the paired difference of two series has a standard deviation of sqrt 2
            for when in ("before", "now"):
                own = {k: v[:, 0] for k, v in claimed(values, before=when == "before").items()}
                rows.append(
                    {"truth": f"{size} sd", "noise": "normal noise", "rivals": rivals, "when": when} | _shares(own)
                )
    return rows


def simulate_rotation(trials: int, settings: Sequence[tuple[str, str]] = ROTATED) -> list[dict[str, Any]]:
    """Return false claims about new data, and power against an oracle that knows the variance, by the package."""
    sys.path.insert(0, str(ROOT))
    from tests.statistics.rotation_simulation import LEARNERS, comparisons
    from tests.statistics.test_rotation import SIZES

    rows = []
    for learner, size in settings:
        counts = {**SIZES, **HELD_OUT}[size]
        means = {n: np.zeros(trials) for n in SEEDS}
        halves = {
            (when, n, level): np.zeros((trials, 2))
            for when in ("before", "now")
            for n in SEEDS
            for level in (LEVEL, SPENDING[n])
        }
        for trial, (right, targets) in enumerate(
            comparisons(LEARNERS[learner], counts, objectives=2, seeds=max(SEEDS), trials=trials, start=1)
        ):
            for n in SEEDS:
                own = right[:, :n]
                tested = ~np.isnan(own).all(axis=(0, 1))
                own, labels = own[:, :, tested], targets[tested]
                by_class = [np.nanmean(own[:, :, labels == k], axis=2) for k in range(len(counts))]
                base, ours = np.mean(by_class, axis=0)
                [found] = moderated_differences({"base": base.tolist(), "ours": ours.tolist()}, "base").values()
                now = Evidence(found, paired_image_error(own[1], own[0], labels))
                before = Evidence(replace(found, tails=(0.0, 0.0)))
                means[n][trial] = found.mean
                for level in (LEVEL, SPENDING[n]):
                    ends = [now.half_width(level, side) for side in (-1, 1)]
                    halves["now", n, level][trial] = [np.inf if end is None else end for end in ends]
                    halves["before", n, level][trial] = before.half_width(level, 1) or np.inf
        for when in ("before", "now"):
            row: dict[str, Any] = {"learner": learner, "images": size, "when": when, "trials": trials}
            early = np.zeros(trials, bool)
            for n in SEEDS:
                below, above = halves[when, n, LEVEL].T
                row[f"false {n}"] = 100 * float(((means[n] > below) | (-means[n] > above)).mean())
                effect = ORACLE * sqrt((means[n] ** 2).mean())
                power = float(((means[n] + effect > below).mean() + (effect - means[n] > above).mean()) / 2)
                row[f"power {n}"] = power / 0.8
                low, high = halves[when, n, SPENDING[n]].T
                early |= (means[n] > low) | (-means[n] > high)
            rows.append(row | {"interim": 100 * float(early.mean())})
        print(rows[-1], flush=True)
    return rows


NOISE_PARTS = (0.2, 0.35, 0.5, 0.7)
"""Of the variance over images, tried as training noise with 5 seeds, where no image is tested twice."""


def simulate_noise(trials: int) -> list[dict[str, Any]]:
    """Return false claims and power with 5 seeds, by the part of the variance that is taken to be training noise."""
    sys.path.insert(0, str(ROOT))
    from tests.statistics.rotation_simulation import LEARNERS, comparisons
    from tests.statistics.test_rotation import SIZES

    rows, usual = [], image_sampling.UNKNOWN_NOISE
    for learner, size in ROTATED[:7]:
        counts = {**SIZES, **HELD_OUT}[size]
        means = np.zeros(trials)
        halves = {part: np.zeros((trials, 2)) for part in NOISE_PARTS}
        for trial, (right, targets) in enumerate(
            comparisons(LEARNERS[learner], counts, objectives=2, seeds=5, trials=trials, start=2)
        ):
            by_class = [np.nanmean(right[:, :, targets == k], axis=2) for k in range(len(counts))]
            base, ours = np.mean(by_class, axis=0)
            [found] = moderated_differences({"base": base.tolist(), "ours": ours.tolist()}, "base").values()
            means[trial] = found.mean
            for part in NOISE_PARTS:
                image_sampling.UNKNOWN_NOISE = part
                now = Evidence(found, paired_image_error(right[1], right[0], targets))
                ends = [now.half_width(LEVEL, side) for side in (-1, 1)]
                halves[part][trial] = [np.inf if end is None else end for end in ends]
        image_sampling.UNKNOWN_NOISE = usual
        effect = ORACLE * sqrt((means**2).mean())
        for part, own in halves.items():
            below, above = own.T
            power = float(((means + effect > below).mean() + (effect - means > above).mean()) / 2)
            wrong = 100 * float(((means > below) | (-means > above)).mean())
            rows.append({"learner": learner, "images": size, "part": part, "false": wrong, "power": power / 0.8})
    return rows


def simulate_folders(trials: int) -> dict[str, Any]:
    """Return in how many folders, in percent, a false claim is made: of a ledger for each list, and of one for all."""
    sys.path.insert(0, str(ROOT))
    from tests.experiments.test_alpha_spending import LISTS, folder_wrong

    found = {when: 100 * folder_wrong(trials, shared=when == "now") for when in ("before", "now")}
    return {"trials": trials, "lists": len(LISTS), **found}


def with_rows(kept: Sequence[Mapping[str, Any]], made: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows of rotated folds with these in place of those of the same setting, in the order of `ROTATED`."""
    found = {(row["learner"], row["images"], row["when"]): row for row in (*kept, *made)}
    order = [(*setting, when) for setting in ROTATED for when in ("before", "now")]
    return [found[key] for key in order if key in found]


def _shares(found: Mapping[str, Array]) -> dict[str, float]:
    return {name: 100 * float(own.mean()) for name, own in found.items()}


def main() -> None:
    """Simulate all and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000, help="Comparisons per row, of values of seeds.")
    parser.add_argument("--rotated", type=int, default=2_000, help="Comparisons per row, of rotated folds.")
    parser.add_argument("--noise", type=int, default=1_500, help="Comparisons per row, of parts of training noise.")
    parser.add_argument("--folders", type=int, default=10_000, help="Folders in which several lists are compared.")
    parser.add_argument("--only", choices=["values", "rotation", "noise", "folder"], help="Make this part alone.")
    parser.add_argument("--row", action="append", help="With --only rotation: make this row alone, such as ridge, 150.")
    options = parser.parse_args()
    names = {f"{learner}, {size}": (learner, size) for learner, size in ROTATED}
    if options.row and (options.only != "rotation" or not names.keys() >= set(options.row)):
        parser.error(f"--row needs --only rotation and one of: {'; '.join(names)}")
    check_copy()
    made: dict[str, Any] = read_json(KEPT) if options.only else {}
    if options.only in (None, "values"):
        made |= {"trials": options.trials, "values": simulate_values(options.trials)}
    if options.only in (None, "rotation"):
        rows = simulate_rotation(options.rotated, [names[each] for each in options.row] if options.row else ROTATED)
        made |= {"rotation": with_rows(made.get("rotation", []), rows)}
    if options.only in (None, "noise"):
        made |= {"noise_trials": options.noise, "noise": simulate_noise(options.noise)}
    if options.only in (None, "folder"):
        made |= {"folder": simulate_folders(options.folders)}
    write_json(KEPT, made)


if __name__ == "__main__":
    main()
