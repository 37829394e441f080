"""Run folders for the tests of `evenhand serve`, written without training anything."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evenhand.runs.comparison import Comparison
from evenhand.runs.comparison_schemas import ObjectiveRow
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from tests import fabricated

RECALLS = {"cat": (120, 0.9), "dog": (40, 0.7), "owl": (6, 0.25)}
"""Training images and recall by class."""


def write_run(folder: Path, *, done: int = 4, finished: bool = True, age: float = 0.0, **flags: Any) -> Path:
    """Write what a run of 4 epochs leaves on disk after so many of them, and make it so many seconds old."""
    config = make_config(**{"objective": "cce", "epochs": 4, "data__imbalance": "exp:20", **flags})
    fabricated.write_run(folder, config, rows=[history_row(epoch) for epoch in range(1, done + 1)])
    if finished:
        write_summary(folder)
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
    """Write a summary as `evenhand train` does; there are no predictions, so it may say anything."""
    counts, shares = zip(*recalls.values(), strict=True)
    predictions = fabricated.predict(shares, names=tuple(recalls), counts=counts, support=20)
    run = Run(folder)
    run.write_summary({**fabricated.summary_of(run.config, predictions, 0.5, run.history), **changed})


def write_comparison(folder: Path, **changed: Any) -> Path:
    """Write a comparison; `changed` are other values of its file."""
    scores = {"ce": {"balanced_accuracy": 0.6, "few": 0.2}, "cce": {"balanced_accuracy": 0.7}}
    comparison = Comparison(
        source="digits",
        imbalance="exp:20",
        model="resnet8",
        baseline="ce",
        objectives=["ce", "cce"],
        seeds=[0, 1, 2],
        shot_rule="by thirds",
        runs=[],
        rows=[ObjectiveRow(objective=name, seconds_per_epoch=1.0, scores=own) for name, own in scores.items()],
        differences=[],
        verdicts=["cce is better by 10 points.", "Use cce."],
        method="none",
        notes=[],
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "comparison.json").write_text(json.dumps({**comparison.to_json(), **changed}), "utf-8")
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
