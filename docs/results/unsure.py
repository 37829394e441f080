"""Measure prediction sets and unsure answers on ten splits of a folder of photos.

    python docs/results/unsure.py single photos/ RUNS docs/results/data/unsure/single.json
    python docs/results/unsure.py folds photos/ RUNS docs/results/data/unsure/folds.json

single: each split sets a fifth of its training images aside for calibration; the default objective of photos. folds:
each split holds out a fifth of all images; five models (the last layer of `lite0` with `balanced-softmax`) on rotated
folds of the rest calibrate on each other's test images. Finished runs in RUNS are kept.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.core.errors import EvenhandError
from evenhand.data.splits import make_splits
from evenhand.metrics.predictions import Predictions
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.unsure import SetRule, answer_rule, as_used, describe_sets, set_rule, summarise_answers
from evenhand.statistics.conformal import Calibration
from evenhand.training.fabric import start_fabric
from evenhand.training.loop import Callback, Trainer
from evenhand.training.prepare import PreparedData, prepare
from evenhand.training.recipe_choice import make_run_config
from evenhand.training.run import train_run

COVERAGE, PRECISION, SPLITS, FOLDS = 0.9, (0.8, 0.9, 0.95), 10, 5


def config_of(source: str, seed: int, *settings: str, **flags: str) -> Config:
    """Return the config of `evenhand train SOURCE --seed SEED --set ...`, with further options."""
    return make_run_config(None, None, settings, data__source=source, seed=seed, **flags)[0]


def single(source: str, runs: Path, split: int) -> dict[str, Any]:
    """Evaluate the prediction sets and answers of one run that has calibration images."""
    folder = Run(runs / f"split{split}")
    if not folder.finished:
        config = config_of(source, split, "data.calibration_fraction=0.2", f"data.split_seed={split}")
        train_run(config, folder.path)
    test, rule = as_used(folder, folder.predictions), set_rule(folder, COVERAGE)
    found = results(rule, [np.exp(test.log_probabilities())], test)
    answers = {}
    for precision in PRECISION:
        try:
            each = summarise_answers(answer_rule(folder, precision), test)
        except EvenhandError:  # it can be shown for no answer
            each = {"unsure": 1.0, "precision": None, "interval": None, "groups": {}}
        answers[f"{precision:g}"] = {key: each[key] for key in ("unsure", "precision", "interval", "groups")}
    return {**found, "balanced_accuracy": folder.summary.balanced_accuracy, "answers": answers}


def folds(source: str, runs: Path, split: int) -> dict[str, Any]:
    """Evaluate cross-conformal sets of five models on images that none of them has seen."""
    config = config_of(source, split, model__name="lite0", objective="balanced-softmax")
    whole = prepare(config)
    held_out = make_splits(whole.table, split_seed=1000 + split, val_fraction=0).test
    rest = np.setdiff1d(np.arange(len(whole.table)), held_out)
    inner = replace(whole, table=whole.table.take(rest), rows=whole.rows[rest])
    calibrated, unseen = [], []
    for fold in range(FOLDS):
        mine = make_splits(inner.table, split_seed=split, rotation=fold, seed=fold)
        trainer = Trainer(config, Run(runs / f"folds{split}-{fold}"), replace(inner, splits=mine), start_fabric(config))
        trainer.train(0, Callback())
        calibrated.append(predict(trainer, inner, mine.test))
        unseen.append(predict(trainer, whole, held_out))
    scores, targets = [], []
    for each in calibrated:
        p = np.exp(each.log_probabilities()).astype(np.float32).astype(np.float64)
        scores.append(p[np.arange(len(p)), each.targets])
        targets.append(each.targets)
    rule = SetRule(
        Calibration(tuple(scores), tuple(targets), whole.table.num_classes), COVERAGE, whole.table.class_names
    )
    return results(rule, [np.exp(each.log_probabilities()) for each in unseen], unseen[0])


def predict(trainer: Trainer, prepared: PreparedData, rows: Any) -> Predictions:
    """Predict rows of a table with a trained network, as a run predicts its test images."""
    table = prepared.table
    labels = np.zeros(len(prepared.images), np.int64)
    labels[prepared.rows] = table.labels
    trainer.prepared = replace(prepared, splits=replace(trainer.prepared.splits, test=rows))
    logits, targets, _ = trainer.predict(trainer.batches("test", 500))
    return Predictions(logits, targets, table.ids[rows], table.class_names, trainer.prepared.splits.counts)


def results(rule: SetRule, probabilities: list[Any], test: Predictions) -> dict[str, Any]:
    """Return coverage and sizes of the sets of test images."""
    found = describe_sets(rule, rule.sets(probabilities), test)
    kept = (
        "coverage",
        "guaranteed",
        "calibration_images",
        "needed",
        "too_few",
        "mean_size",
        "unsure",
        "full",
        "groups",
    )
    classes = [[row[key] for key in ("name", "group", "calibration_images", "images", "coverage", "mean_size")]
               for row in found["per_class"]]  # fmt: skip
    return {**{key: found[key] for key in kept}, "classes": classes}


def main() -> None:
    """Measure all splits and write them to one file."""
    kind, source, runs, out = sys.argv[1:]
    measure = {"single": single, "folds": folds}[kind]
    found = []
    for split in range(SPLITS):
        found.append(rounded(measure(source, Path(runs), split)))
        Path(out).write_text("[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]\n")
    print(json.dumps(means(found), indent=1))


def means(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over splits; of each shot group that of its classes, as counted in the first split."""
    groups = {}
    for shot in ("many", "medium", "few"):
        own = [each["groups"][shot] for each in found if each["groups"][shot]["coverage"] is not None]
        groups[shot] = {
            "splits": len(own),
            "coverage": np.mean([each["coverage"] for each in own]).round(4) if own else None,
            "mean_size": np.mean([each["mean_size"] for each in own]).round(3) if own else None,
        }
    covered: dict[str, list[float]] = {}
    for each in found:
        for name, _, _, _, coverage, _ in each["classes"]:
            covered.setdefault(name, []).append(coverage)
    shares = {key: round(float(np.mean([each[key] for each in found])), 4) for key in ("mean_size", "unsure", "full")}
    lowest = sorted((round(float(np.mean(values)), 4), name) for name, values in covered.items())[:5]
    return {**shares, "too_few": [len(each["too_few"]) for each in found], "groups": groups, "lowest": lowest}


def rounded(value: Any) -> Any:
    """Return plain values with four decimals."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
