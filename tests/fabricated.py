"""Runs made up for tests: as training leaves them, by the one writer of their files, without training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.experiments.comparison._comparison import compare_runs, write_comparison
from evenhand.experiments.grid.jobs import Job
from evenhand.metrics.predictions import Predictions
from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow, Features, SplitIds, Thumbnails
from evenhand.runs.summary import summarise

NAMES = ("ant", "bee", "cat, tabby", "dög")
COUNTS = (400, 150, 60, 8)
SUPPORT = 40
ENVIRONMENT = {
    "cpus": 2,
    "processor": "x86_64",
    "device": "cpu",
    "precision": "32-true",
    "threads": 1,
    "python": "3.11",
    "versions": {"torch": "2.9"},
    "code": "0123456789abcdef",
    "started": "2026-01-02T03:04:05Z",
}
# What strangers may call a folder of pictures.
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    '"><svg onload="document.title=\'owned\'">',
    "--><b>bold</b>",
    "$x_1^{2$ & co",
    "{{ 7 * 7 }}",
)


def history(epochs: int, seconds: float = 1.0) -> list[EpochRow]:
    """Rows of a run that gets better."""
    return [
        {
            "epoch": float(epoch),
            "train_loss": 2.0 / epoch,
            "seconds": seconds,
            "val_balanced_accuracy": 1 - 1 / (1 + epoch),
            "val_complement_entropy_right": 1.0,
            "val_complement_entropy_wrong": 0.5,
        }
        for epoch in range(1, epochs + 1)
    ]


def write_run(
    folder: Path,
    config: Config,
    predictions: Predictions | None = None,
    *,
    rows: Sequence[EpochRow] | None = None,
    validation: float | None = 0.5,
    environment: Mapping[str, Any] = ENVIRONMENT,
    trained_on: Sequence[str] | None = None,
    command: str = "",
    **changed: Any,
) -> Run:
    """Write a run; one without predictions is not finished. `changed` are other values of its summary."""
    run = Run(folder)
    run.write_config(config, command)
    run.write_environment(environment)
    rows = history(config.epochs) if rows is None else rows
    if rows:
        run.write_history(rows)
    if predictions is None:
        return run
    trained = trained_on or [f"train/{row:04d}" for row in range(10)]
    source = Path(config.data.source).name
    run.write_splits(SplitIds(source=source, train=tuple(trained), val=(), test=tuple(predictions.ids.tolist())))
    run.write_predictions(predictions)
    run.write_summary({**summary_of(config, predictions, validation, rows), **changed})
    return run


def summary_of(
    config: Config, predictions: Predictions, validation: float | None, rows: Sequence[EpochRow]
) -> dict[str, Any]:
    """What training says of a run at its end."""
    best = {} if validation is None else {"val_balanced_accuracy": validation}
    return {
        "source": Path(config.data.source).name,
        "imbalance": config.data.imbalance,
        "objective": config.objective,
        "model": config.model.name,
        "seed": config.seed,
        "epochs": len(rows),
        "selected": {"rule": config.select, "epoch": max(len(rows), 1), **best},
        "seconds_per_epoch": float(np.median([row.get("seconds", 1.0) for row in rows])) if rows else 1.0,
        "notes": [],
        **summarise(predictions),
    }


def predict(
    recalls: Sequence[float], *, names: Sequence[str] = NAMES, counts: Sequence[int] = COUNTS, support: Any = SUPPORT
) -> Predictions:
    """Predictions with exactly these recalls, to the nearest image; misses go to the next class."""
    supports = np.broadcast_to(support, len(recalls))
    targets = np.repeat(np.arange(len(recalls)), supports)
    hits = [np.arange(n) < round(recall * n) for recall, n in zip(recalls, supports, strict=True)]
    predicted = np.where(np.concatenate(hits), targets, (targets + 1) % len(recalls))
    return Predictions(
        logits=3 * np.eye(len(recalls), dtype=np.float32)[predicted],
        targets=targets,
        ids=np.array([f"test/{row:04d}" for row in range(len(targets))]),
        class_names=tuple(names),
        train_counts=np.array(counts),
    )


def with_noise(recalls: Sequence[float], seed: int, spread: float = 0.05) -> list[float]:
    """Recalls as another seed would give them; equal for all objectives of a seed."""
    noise = np.random.default_rng(seed).normal(0, spread, len(recalls))
    return np.clip(np.array(recalls) + noise, 0, 1).tolist()


def fabricate(
    root: Path,
    objective: str,
    seed: int,
    recalls: Sequence[float] | Predictions,
    *,
    validation: float | None = 0.5,
    seconds: float = 2.0,
    code: str = "aaaa",
    trained_on: Sequence[str] | None = None,
    **flags: Any,
) -> Path:
    """Write a run with these recalls, for a comparison."""
    predictions = recalls if isinstance(recalls, Predictions) else predict(recalls)
    settings = {"data__source": "photos", "data__imbalance": "exp:50", "epochs": 3, **flags}
    return write_run(
        root / f"{objective.replace(':', '_')}-{seed}",
        make_config(objective=objective, seed=seed, **settings),
        predictions,
        rows=history(3, seconds),
        validation=validation,
        environment={"code": code, "precision": "32-true"},
        trained_on=trained_on,
    ).path


def finish(
    job: Job,
    balanced: float,
    *,
    accuracy: float | None = None,
    recalls: Mapping[str, float] | None = None,
    test_errors: Sequence[float] = (),
    test_count: int = 1_000_000,
    features: Any = None,
    targets: Any = None,
) -> Path:
    """Write a finished run with these shares, 0 to 1, of so many test images of each class that any is possible.

    No predictions could have them, so there are none to compare them with.
    """
    named = recalls or {"a": balanced, "b": balanced}
    rows = [{"epoch": float(k + 1), "test_accuracy": 1 - error} for k, error in enumerate(test_errors)]
    rows = rows or [{"epoch": 1.0}]
    predictions = predict([0.5] * len(named), names=tuple(named), counts=[9] * len(named), support=2)
    summary = summary_of(job.config, predictions, 0.5, rows)
    per_class = [
        {**row, "recall": value, "test_count": test_count}
        for row, value in zip(summary["per_class"], named.values(), strict=True)
    ]
    run = write_run(job.folder, job.config, rows=rows)
    shares = {"balanced_accuracy": balanced, "accuracy": balanced if accuracy is None else accuracy}
    run.write_summary({**summary, **shares, "per_class": per_class, "failures": []})
    if features is not None:
        ids = np.array([f"test/{row:04d}" for row in range(len(targets))])
        run.write_features(Features(np.asarray(features, np.float16), np.asarray(targets), ids))
    return run.path


def write_pictured_run(
    folder: Path,
    *,
    names: Sequence[str],
    objective: str = "ce",
    seed: int = 0,
    per_class: int | Sequence[int] = 12,
    size: int = 12,
    source: str = "photos",
    gain: float = 0.0,
    finished: bool = True,
    epochs: int = 3,
    ids_from: int = 0,
) -> Path:
    """Write a run that recognises classes the better the more training images they have, and the more `gain`."""
    num_classes = len(names)
    rng = np.random.default_rng([seed, len(objective)])
    config = make_config(data__source=source, objective=objective, seed=seed, epochs=epochs, data__imbalance="exp:50")
    told = {"python": "3.11", "versions": {"torch": "2.5"}, "seed": seed}
    command = f"evenhand compare '{source}' --out somewhere"
    if not finished:
        return write_run(folder, config, rows=history(1), environment=told, command=command).path
    counts = np.maximum((400 * 0.02 ** (np.arange(num_classes) / max(num_classes - 1, 1))).astype(np.int64), 1)
    targets = np.repeat(np.arange(num_classes), per_class)
    ids = np.array([f"test/{ids_from + k:06}" for k in range(len(targets))])
    logits = rng.normal(size=(len(targets), num_classes)).astype(np.float32)
    logits[np.arange(len(targets)), targets] += (0.6 * np.log(counts[targets]) - 1 + gain).astype(np.float32)
    predictions = Predictions(logits, targets, ids, tuple(names), counts)
    run = write_run(folder, config, predictions, validation=0.7, environment=told, command=command)
    near = np.eye(num_classes)[targets][:, :8] * 3 + rng.normal(size=(len(targets), min(num_classes, 8)))
    run.write_features(Features(near.astype(np.float16), targets, ids))
    confidence = predictions.log_probabilities().max(axis=1)
    wrong = np.flatnonzero(predictions.predicted() != targets)
    shown = wrong[np.argsort(-confidence[wrong], kind="stable")][:200]
    images = rng.integers(0, 256, (len(shown), size, size, 3)).astype(np.uint8)
    run.write_thumbnails(Thumbnails(images, shown, ids[shown]))
    return folder


def write_comparison_folder(
    folder: Path,
    *,
    names: Sequence[str],
    seeds: int = 2,
    objectives: Sequence[str] = ("ce", "cce"),
    tune: bool = False,
    **options: object,
) -> Path:
    """Write runs of several objectives and seeds, and their comparison."""
    runs = [
        write_pictured_run(
            folder / f"{objective.replace(':', '-')}-{seed}",
            names=names,
            objective=objective,
            seed=seed,
            gain=0.4 * place,
            **options,  # type: ignore[arg-type]
        )
        for place, objective in enumerate(objectives)
        for seed in range(seeds)
    ]
    write_comparison(compare_runs(runs, tune=tune), folder)
    return folder
