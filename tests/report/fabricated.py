"""Run folders made up for tests of pages: as training writes them, without training."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evenhand.experiments.comparison.comparison import compare_runs, write_comparison
from evenhand.metrics.predictions import Predictions
from evenhand.metrics.summary import summarise
from evenhand.runs.config import make_config, save_config
from evenhand.runs.history import write_history

# What strangers may call a folder of pictures.
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    '"><svg onload="document.title=\'owned\'">',
    "--><b>bold</b>",
    "$x_1^{2$ & co",
    "{{ 7 * 7 }}",
)


def write_run(
    folder: Path,
    *,
    names: Sequence[str],
    objective: str = "ce",
    seed: int = 0,
    per_class: int = 12,
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
    save_config(config, folder / "config.yaml", f"evenhand compare '{source}' --out somewhere")
    rows = [
        {
            "epoch": float(epoch),
            "train_loss": 2.0 / epoch,
            "seconds": 1.0,
            "val_balanced_accuracy": 0.4 + 0.1 * epoch,
            "val_complement_entropy_right": 1.0,
            "val_complement_entropy_wrong": 0.5,
        }
        for epoch in range(1, epochs + 1)
    ]
    write_history(folder / "history.csv", rows if finished else rows[:1])
    (folder / "environment.json").write_text(json.dumps({"python": "3.11", "versions": {"torch": "2.5"}, "seed": seed}))
    if not finished:
        return folder
    counts = np.maximum((400 * 0.02 ** (np.arange(num_classes) / max(num_classes - 1, 1))).astype(np.int64), 1)
    targets = np.repeat(np.arange(num_classes), per_class)
    ids = np.array([f"test/{ids_from + k:06}" for k in range(len(targets))])
    logits = rng.normal(size=(len(targets), num_classes)).astype(np.float32)
    logits[np.arange(len(targets)), targets] += (0.6 * np.log(counts[targets]) - 1 + gain).astype(np.float32)
    predictions = Predictions(logits, targets, ids, tuple(names), counts)
    predictions.save(folder / "predictions.npz")
    np.savez(
        folder / "features.npz",
        features=(
            np.eye(num_classes)[targets][:, :8] * 3 + rng.normal(size=(len(targets), min(num_classes, 8)))
        ).astype(np.float16),
        targets=targets,
        ids=ids,
    )
    confidence = predictions.log_probabilities().max(axis=1)
    wrong = np.flatnonzero(predictions.predicted() != targets)
    shown = wrong[np.argsort(-confidence[wrong], kind="stable")][:200]
    images = rng.integers(0, 256, (len(shown), size, size, 3)).astype(np.uint8)
    np.savez(folder / "thumbnails.npz", images=images, index=shown, ids=ids[shown])
    summary = {
        "source": source,
        "selected": {"rule": "best", "epoch": epochs, "val_balanced_accuracy": 0.7},
        "seconds_per_epoch": 1.0,
        "notes": [],
        **summarise(predictions, seed=seed),
    }
    (folder / "summary.json").write_text(json.dumps(summary), "utf-8")
    return folder


def write_comparison_folder(
    folder: Path, *, names: Sequence[str], seeds: int = 2, objectives: Sequence[str] = ("ce", "cce"), **options: object
) -> Path:
    """Write runs of several objectives and seeds, and their comparison."""
    runs = [
        write_run(
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
    write_comparison(compare_runs(runs), folder)
    return folder
