"""Measure how well labels that were flipped on purpose are found, against a ranking by plain confidence.

    python benchmarks/wrong_labels.py PHOTOS --work WORK [--seeds 0-3] [--thin 40] [--runs 10] [--out FILE.json]

5% and 10% of the labels of a folder of photos are flipped: each to another class drawn uniformly, or each to the class
that its own is most confused with by five runs on the labels as they are. Five runs with rotating test sets (`recipe
photos`) give nearly every image an out-of-fold prediction. Average precision of the flipped labels is computed over all
images and over those whose given label is in each shot group. All rankings use the same predictions. With `--thin R`
the classes are first thinned to an exponential profile of ratio R. With `--runs 10` the mean of about two predictions
of each image is used. Finished runs in WORK are kept.
"""

import argparse
import csv
import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import average_precision_score

from evenhand.data.sources import load_source
from evenhand.data.table import FilePixels, SampleTable
from evenhand.experiments.wrong_labels import WrongLabels, rank_labels
from evenhand.metrics.label_errors import find_label_errors
from evenhand.runs.run import Run
from evenhand.training.recipe_choice import make_run_config
from evenhand.training.run import train_run

RATES, FOLDS, OBJECTIVE = (0.05, 0.1), 5, "ce"
UNIFORM, SIMILAR = "uniform", "similar"
"""Flips to another class drawn uniformly, and to the class that its own is most confused with."""
GROUPS = ("all", "many", "medium", "few")
Floats = NDArray[np.float64]


def plain(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return 1 - p of the label."""
    return 1 - p[np.arange(len(y)), y]


def margin(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return the largest other probability, minus that of the label."""
    others = p.copy()
    others[np.arange(len(y)), y] = -1
    return np.asarray(others.max(1) - p[np.arange(len(y)), y])


def subtracted(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return the threshold of the label, minus its probability."""
    return np.asarray(find_label_errors(p, y).thresholds[y] - p[np.arange(len(y)), y])


def odds(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return minus the odds of the label against the most probable other class, as `inspect --labels` ranks."""
    return -find_label_errors(p, y).scores


def relative(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return minus the probability of the label divided by its threshold."""
    return np.asarray(-p[np.arange(len(y)), y] / find_label_errors(p, y).thresholds[y])


def entropy(p: Floats, y: NDArray[np.int64]) -> Floats:
    """Return -log p of the label divided by the entropy of the prediction."""
    log = np.log(np.maximum(p, 1e-30))
    return np.asarray(log[np.arange(len(y)), y] / (p * log).sum(1).clip(max=-1e-6))


def uniform(score: Callable[[Floats, NDArray[np.int64]], Floats]) -> Callable[[Floats, NDArray[np.int64]], Floats]:
    """Return the same ranking, on probabilities for uniform class shares."""

    def on_uniform(p: Floats, y: NDArray[np.int64]) -> Floats:
        shares = np.bincount(y, minlength=p.shape[1]) / len(y)
        return score(softmax(np.log(np.maximum(p, 1e-30)) - np.log(shares), axis=1), y)

    return on_uniform


RANKINGS: dict[str, Callable[[Floats, NDArray[np.int64]], Floats]] = {
    "odds against the best other class (inspect --labels)": odds,
    "plain confidence": plain,
    "relative to threshold": relative,
    "margin": margin,
    "confidence per entropy": entropy,
    "threshold minus probability": subtracted,
    "odds, uniform shares": uniform(odds),
    "plain confidence, uniform shares": uniform(plain),
}


def main() -> None:
    """Train, rank, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", default="0-3")
    parser.add_argument("--thin", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=FOLDS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, _, last = options.seeds.partition("-")
    clean = load_source(options.photos.resolve())
    if options.thin > 1:
        clean = clean.take(thinned(clean, options.thin))
    similar = most_confused(clean, options)
    rows = []
    for seed in range(int(first), int(last or first) + 1):
        for kind in (UNIFORM, SIMILAR):
            for rate in RATES:
                table, truth = flipped(clean, rate, seed, similar if kind == SIMILAR else None, options)
                found = rank_labels(table, list(runs(table, options.work, options.runs)), OBJECTIVE)
                rows.append({"seed": seed, "flips": kind, "rate": rate, **measure(found, truth)})
                print(seed, kind, rate, rows[-1]["average_precision"][next(iter(RANKINGS))], flush=True)
    content = {
        "objective": OBJECTIVE,
        "similar": {clean.class_names[k]: clean.class_names[other] for k, other in enumerate(similar.tolist())},
        "images": len(clean),
        "counts": dict(zip(clean.class_names, clean.counts().tolist(), strict=True)),
        "thin": options.thin,
        "runs": options.runs,
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(content, indent=1) + "\n")
    show(rows)


def thinned(table: SampleTable, ratio: float) -> NDArray[np.int64]:
    """Return rows whose class counts follow an exponential profile, as far as there are images."""
    counts = table.counts()
    order = np.argsort(-counts, kind="stable")
    profile = np.rint(counts.max() * ratio ** (-np.arange(len(counts)) / (len(counts) - 1))).astype(int)
    keep = np.zeros_like(counts)
    keep[order] = np.minimum(counts[order], profile)
    own = [np.flatnonzero(table.labels == k) for k in range(len(counts))]
    drawn = [np.random.default_rng([7, k]).choice(rows, keep[k], replace=False) for k, rows in enumerate(own)]
    return np.sort(np.concatenate(drawn))


def most_confused(clean: SampleTable, options: argparse.Namespace) -> NDArray[np.int64]:
    """Return for each class the other one with the highest mean probability of its images, by runs on the labels."""
    table = manifest(clean, clean.labels, "clean", options)
    found = rank_labels(table, list(runs(table, options.work, FOLDS)), OBJECTIVE)
    labels = table.labels[found.rows]
    means = np.stack([found.probabilities[labels == k].mean(0) for k in range(table.num_classes)])
    np.fill_diagonal(means, -1)
    names = [table.class_names[k] for k in means.argmax(1)]
    place = {name: k for k, name in enumerate(table.class_names)}
    return np.array([clean.class_names.index(names[place[name]]) for name in clean.class_names])


def flipped(
    clean: SampleTable, rate: float, seed: int, similar: NDArray[np.int64] | None, options: argparse.Namespace
) -> tuple[SampleTable, dict[str, str]]:
    """Flip labels; return the table, and the true class of each image."""
    rng = np.random.default_rng([seed, round(1000 * rate)])
    rows = rng.choice(len(clean), round(rate * len(clean)), replace=False)
    labels, drawn = clean.labels.copy(), rng.integers(1, clean.num_classes, len(rows))
    labels[rows] = (labels[rows] + drawn) % clean.num_classes if similar is None else similar[labels[rows]]
    assert isinstance(clean.pixels, FilePixels)
    truth = {clean.pixels.path(row): clean.class_names[k] for row, k in enumerate(clean.labels)}
    kind = "flip" if similar is None else SIMILAR
    return manifest(clean, labels, f"{kind}{round(100 * rate)}-{seed}", options), truth


def manifest(clean: SampleTable, labels: NDArray[np.int64], name: str, options: argparse.Namespace) -> SampleTable:
    """Write the images with these labels as a source; return it."""
    assert isinstance(clean.pixels, FilePixels)
    paths = [clean.pixels.path(row) for row in range(len(clean))]
    path = options.work / f"{name if options.thin == 1 else f'thin-{name}'}.csv"
    options.work.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows(zip(paths, (clean.class_names[k] for k in labels), strict=True))
    return load_source(path, allow_outside=True)


def runs(table: SampleTable, work: Path, number: int) -> Iterator[Run]:
    """Train runs whose test sets rotate over five folds, or find them."""
    for seed in range(number):
        run = Run(work / f"{table.name}-{OBJECTIVE}-{seed}")
        if not run.finished:
            config = make_run_config(
                "photos",
                None,
                ["data.rotate=true"],
                data__source=str(work / f"{table.name}.csv"),
                data__allow_outside=True,
                objective=OBJECTIVE,
                seed=seed,
            )[0]
            run = train_run(config, run.path)
        yield run


def measure(found: WrongLabels, truth: dict[str, str]) -> dict[str, Any]:
    """Return average precision by ranking and shot group, and what is flagged."""
    labels = found.table.labels[found.rows]
    names = np.array(found.table.class_names)
    wrong = names[labels] != np.array([truth[name] for name in found.table.ids[found.rows].tolist()])
    group = np.array([found.groups.of(int(k)) for k in labels])
    inside = {name: np.ones(len(labels), bool) if name == "all" else group == name for name in GROUPS}
    scores = {name: rank(found.probabilities, labels) for name, rank in RANKINGS.items()}
    return {
        "images": {name: int(rows.sum()) for name, rows in inside.items()},
        "wrong": {name: int(wrong[rows].sum()) for name, rows in inside.items()},
        "shot_rule": found.groups.rule,
        "average_precision": {
            name: {each: _precision(wrong[rows], score[rows]) for each, rows in inside.items()}
            for name, score in scores.items()
        },
        "flagged": {
            name: {each: _counts(flags[rows], wrong[rows]) for each, rows in inside.items()}
            for name, flags in (
                ("thresholds per class (inspect --labels)", found.errors.flagged),
                ("predicted class is not the label", found.probabilities.argmax(1) != labels),
            )
        },
    }


def _precision(wrong: NDArray[np.bool_], score: Floats) -> float | None:
    return round(float(average_precision_score(wrong, score)), 5) if wrong.any() else None


def _mean(values: Iterable[float | None]) -> float:
    return 100 * statistics.fmean([value for value in values if value is not None] or [math.nan])


def _counts(flags: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, int]:
    return {"flagged": int(flags.sum()), "wrong": int((flags & wrong).sum()), "missed": int((~flags & wrong).sum())}


def show(rows: list[dict[str, Any]]) -> None:
    """Print means over seeds."""
    for kind in (UNIFORM, SIMILAR):
        for rate in RATES:
            own = [row for row in rows if row["rate"] == rate and row["flips"] == kind]
            print(f"\n{rate:.0%} flipped, {kind}, {len(own)} seeds: average precision in %, {', '.join(GROUPS)}")
            for name in RANKINGS:
                means = [_mean(row["average_precision"][name][each] for row in own) for each in GROUPS]
                print(f"  {name:42}", *(f"{mean:6.1f}" for mean in means))
            for name in own[0]["flagged"]:
                for each in GROUPS:
                    total = {
                        key: sum(row["flagged"][name][each][key] for row in own)
                        for key in ("flagged", "wrong", "missed")
                    }
                    precision = total["wrong"] / max(total["flagged"], 1)
                    recall = total["wrong"] / max(total["wrong"] + total["missed"], 1)
                    clean = sum(row["images"][each] - row["wrong"][each] for row in own)
                    accused = (total["flagged"] - total["wrong"]) / max(clean, 1)
                    print(f"  {name}, {each}: precision {precision:.1%}, recall {recall:.1%}, accused {accused:.2%}")


if __name__ == "__main__":
    main()
