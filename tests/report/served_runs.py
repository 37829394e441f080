"""Run folders for the tests of `evenhand serve`, written without training anything."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenhand.runs.config import make_config, save_config
from evenhand.runs.history import write_history

RECALLS = {"cat": (120, 0.9), "dog": (40, 0.7), "owl": (6, 0.25)}
"""Training images and recall by class."""


def write_run(folder: Path, *, done: int = 4, finished: bool = True, age: float = 0.0, **flags: Any) -> Path:
    """Write what a run of 4 epochs leaves on disk after so many of them, and make it so many seconds old."""
    config = make_config(**{"epochs": 4, "data__imbalance": "exp:20", **flags})
    save_config(config, folder / "config.yaml")
    if done:
        write_history(folder / "history.csv", [history_row(epoch) for epoch in range(1, done + 1)])
    if finished:
        write_summary(folder, objective=config.objective, seed=config.seed)
    for path in folder.iterdir():
        os.utime(path, (time.time() - age,) * 2)
    return folder


def history_row(epoch: int) -> dict[str, float]:
    return {
        "epoch": epoch,
        "train_loss": 2.0 / epoch,
        "seconds": 0.5,
        "val_balanced_accuracy": 0.1 * epoch,
        "val_complement_entropy_wrong": float("nan"),
    }


def write_summary(folder: Path, recalls: dict[str, tuple[int, float]] = RECALLS, **changed: Any) -> None:
    """Write a summary as `evenhand train` does, as far as the list shows it."""
    mean = sum(recall for _, recall in recalls.values()) / len(recalls)
    worst = min(recalls, key=lambda name: recalls[name][1])
    group = {"recall": recalls[worst][1], "interval": [0.0, 1.0], "classes": 1, "tested": 1}
    content = {
        "source": "digits",
        "imbalance": "exp:20",
        "objective": "cce",
        "model": "resnet8",
        "seed": 0,
        "epochs": 4,
        "selected": {"rule": "best", "epoch": 3},
        "seconds_per_epoch": 0.5,
        "images": 60,
        "accuracy": 0.8,
        "accuracy_interval": [0.7, 0.9],
        "balanced_accuracy": mean,
        "balanced_accuracy_interval": [mean - 0.05, mean + 0.05],
        "macro_f1": 0.6,
        "nll": 0.9,
        "ece": 0.1,
        "worst_class": {"name": worst, "recall": recalls[worst][1]},
        "groups": {"many": None, "medium": None, "few": group},
        "per_class": [
            {"name": name, "group": "few", "train_count": count, "test_count": 20, "recall": recall}
            for name, (count, recall) in recalls.items()
        ],
    }
    (folder / "summary.json").write_text(json.dumps({**content, **changed}), "utf-8")


def write_comparison(folder: Path, **changed: Any) -> Path:
    content = {
        "source": "digits",
        "imbalance": "exp:20",
        "model": "resnet8",
        "seeds": [0, 1, 2],
        "table": [
            {"objective": "ce", "balanced_accuracy": 0.6, "few": 0.2},
            {"objective": "cce", "balanced_accuracy": 0.7, "few": None},
        ],
        "verdicts": ["cce is better by 10 points.", "Use cce."],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps({**content, **changed}), "utf-8")
    return folder


@contextmanager
def served(root: Path, *, poll_seconds: float = 0.2) -> Iterator[int]:
    """Serve a folder from a thread of this process; give the port."""
    from evenhand.report.serving import listen, make_app, make_server

    with listen("127.0.0.1", 0) as listening:
        server = make_server(make_app(root, poll_seconds=poll_seconds))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)
