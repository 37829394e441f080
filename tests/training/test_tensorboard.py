"""TensorBoard shows what the history holds."""

import importlib.util
from pathlib import Path

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.runs.run import Run
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, StopAfter, tiny


def test_the_board_holds_the_history_over_a_break(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with pytest.raises(Interrupted):
        train_run(tiny("compute.tensorboard=true"), tmp_path / "run", callback=StopAfter(9))
    resume_run(tmp_path / "run")
    board = accumulators.EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    rows = Run(tmp_path / "run").history
    assert set(board.Tags()["scalars"]) == set(rows[0]) - {"epoch"}
    for name in ("train_loss", "val_balanced_accuracy", "val_complement_entropy_right"):
        events = board.Scalars(name)
        assert [event.step for event in events] == [1, 2, 3]
        assert [event.value for event in events] == pytest.approx([row[name] for row in rows])


def test_without_the_extra_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EvenhandError, match="needs an extra"):
        train_run(tiny("compute.tensorboard=true"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
