"""Run folders written by hand, as a finished run leaves them, so that what is read from them is known."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.experiments.grid.jobs import Job
from evenhand.runs.config import save_config
from evenhand.runs.history import write_history

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
    """Write a finished run; shares are 0 to 1, of so many test images of each class that any share is possible."""
    job.folder.mkdir(parents=True)
    save_config(job.config, job.folder / "config.yaml")
    summary = {
        "balanced_accuracy": balanced,
        "accuracy": balanced if accuracy is None else accuracy,
        "per_class": [
            {"name": name, "recall": value, "test_count": test_count}
            for name, value in (recalls or {"a": balanced}).items()
        ],
    }
    (job.folder / "summary.json").write_text(json.dumps(summary))
    (job.folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    rows = [{"epoch": float(k + 1), "test_accuracy": 1 - error} for k, error in enumerate(test_errors)]
    write_history(job.folder / "history.csv", rows or [{"epoch": 1.0}])
    if features is not None:
        np.savez(job.folder / "features.npz", features=np.asarray(features, np.float16), targets=np.asarray(targets))
    return job.folder
