"""Run folders without training: predictions with chosen recalls, and all files that a comparison reads."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.metrics.predictions import Predictions
from evenhand.metrics.summary import summarise
from evenhand.runs.config import make_config, save_config

NAMES = ("ant", "bee", "cat, tabby", "dög")
COUNTS = (400, 150, 60, 8)
SUPPORT = 40


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


def fabricate(
    root: Path,
    objective: str,
    seed: int,
    recalls: Sequence[float] | Predictions,
    *,
    validation: float | None = 0.5,
    seconds: float = 2.0,
    code: str = "aaaa",
    splits: str = "{}",
    **flags: Any,
) -> Path:
    """Write a run as training would leave it."""
    folder = root / f"{objective.replace(':', '_')}-{seed}"
    predictions = recalls if isinstance(recalls, Predictions) else predict(recalls)
    settings = {"data__source": "photos", "data__imbalance": "exp:50", **flags}
    config = make_config(objective=objective, seed=seed, **settings)
    save_config(config, folder / "config.yaml")
    predictions.save(folder / "predictions.npz")
    selected = {"rule": config.select, "epoch": 3}
    summary = {
        "source": "photos",
        "selected": selected if validation is None else {**selected, "val_balanced_accuracy": validation},
        "seconds_per_epoch": seconds,
        **summarise(predictions),
    }
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (folder / "environment.json").write_text(json.dumps({"code": code, "precision": "32-true"}))
    (folder / "splits.json").write_text(splits)
    return folder


def with_noise(recalls: Sequence[float], seed: int, spread: float = 0.05) -> list[float]:
    """Recalls as another seed would give them; equal for all objectives of a seed."""
    noise = np.random.default_rng(seed).normal(0, spread, len(recalls))
    return np.clip(np.array(recalls) + noise, 0, 1).tolist()
