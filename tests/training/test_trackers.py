"""Trackers hold what the history holds, also over a break; a missing or failing one costs nothing."""

import contextlib
import importlib.util
import json
import logging
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.runs.config import Config, load_config, make_config, save_config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training import _trackers as trackers
from evenhand.training._trackers import FINAL, TRACKERS
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, StopAfter, assert_same_run, tiny


def broken_and_continued(name: str, folder: Path) -> list[EpochRow]:
    """A run that is logged, interrupted in its second epoch, and continued; return its history."""
    with pytest.raises(Interrupted):
        train_run(tiny(f"compute.log={name}"), folder, callback=StopAfter(9))
    resume_run(folder)
    return Run(folder).history


def needs(name: str) -> Any:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: pip install 'evenhand[{name}]'")


@needs("tensorboard")
def test_tensorboard_holds_the_history_over_a_break(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = broken_and_continued("tensorboard", tmp_path / "run")
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    board.Reload()
    final = {f"test/{name}" for name in FINAL}
    assert set(board.Tags()["scalars"]) == set(rows[0]) - {"epoch"} | final
    for name in ("train_loss", "val_balanced_accuracy", "val_complement_entropy_right"):
        events = board.Scalars(name)
        assert [event.step for event in events] == [1, 2, 3]
        assert [event.value for event in events] == pytest.approx([row[name] for row in rows])
    (last,) = board.Scalars("test/balanced_accuracy")
    assert last.value == pytest.approx(Run(tmp_path / "run").summary.model_dump()["balanced_accuracy"])


@needs("wandb")
def test_wandb_offline_holds_the_history_over_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    rows = broken_and_continued("wandb", tmp_path / "run")
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len({file.name for file in files}) == 1  # one id: wandb sync makes them one run
    logged: dict[int, dict[str, float]] = {}
    for record in (each for file in files for each in complete_records(file)):
        if record.WhichOneof("record_type") == "history":
            items = {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in record.history.item}
            logged.setdefault(items["epoch"], {}).update(items)
    assert sorted(logged) == [1, 2, 3]
    for row in rows:
        for name in ("train_loss", "lr", "val_balanced_accuracy"):
            assert logged[int(row["epoch"])][name] == pytest.approx(row[name])
    assert logged[3]["test/accuracy"] == Run(tmp_path / "run").summary.model_dump()["accuracy"]


def complete_records(file: Path) -> list[Any]:
    """Return all records of a file: the service of wandb writes the last ones after `finish` has returned."""
    from google.protobuf.message import DecodeError

    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(DecodeError):  # half a record
            records = list(records_of(file.read_bytes()))
            if records and records[-1].WhichOneof("record_type") == "exit":
                return records
        time.sleep(0.1)
    raise AssertionError(f"{file} has no end")


def records_of(content: bytes) -> Iterator[Any]:
    """Read a file of wandb: a header of 7 bytes, then blocks of 32 KiB of chunks, as in LevelDB's log."""
    from wandb.proto import wandb_internal_pb2

    place, whole = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:  # padding
            place += left
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a full record, or the last chunk of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


@needs("mlflow")
def test_mlflow_files_hold_the_history_over_a_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its default is a database
    rows = broken_and_continued("mlflow", tmp_path / "run")
    client = MlflowClient()
    experiment = client.get_experiment_by_name("evenhand")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["objective"] == "cce"
    found = client.get_metric_history(run.info.run_id, "train_loss")
    assert [(each.step, each.value) for each in found] == [(row["epoch"], row["train_loss"]) for row in rows]
    assert run.data.metrics["test/accuracy"] == Run(tmp_path / "run").summary.model_dump()["accuracy"]


@needs("trackio")
def test_trackio_holds_the_history_over_a_break(tmp_path: Path) -> None:
    import trackio

    rows = broken_and_continued("trackio", tmp_path / "run")
    (run,) = [each for each in trackio.Api().runs("evenhand") if each.name.startswith("run-")][-1:]
    logged = trackio.SQLiteStorage.get_logs("evenhand", run.name)
    losses = {each["step"]: each["train_loss"] for each in logged if "train_loss" in each}
    assert losses == {int(row["epoch"]): row["train_loss"] for row in rows}


@pytest.mark.parametrize("name", TRACKERS)
def test_without_the_extra_nothing_begins(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EvenhandError, match=f"^--log {name} needs an extra: pip install ") as refused:
        train_run(tiny(f"compute.log={name}"), tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


class Fails:
    """A tracker that loses its server in the second epoch."""

    def __init__(self, _: Run) -> None:
        self.logged: list[int] = []
        FAILED.append(self)

    def log(self, values: dict[str, float], epoch: int) -> None:
        assert values["train_loss"] > 0
        if epoch == 2:
            raise ConnectionError("the server\nis gone")
        self.logged.append(epoch)

    def finish(self) -> None:
        raise AssertionError("it is not used any more")


FAILED: list[Fails] = []


def test_a_tracker_that_fails_never_stops_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(TRACKERS, "wandb", Fails)
    monkeypatch.setattr(trackers, "require_tracker", lambda _: None)
    monkeypatch.setattr("evenhand.training.run.require_tracker", lambda _: None)
    with caplog.at_level(logging.WARNING, logger="evenhand"):
        logged = train_run(tiny("compute.log=wandb"), tmp_path / "logged").path
    assert_same_run(logged, train_run(tiny(), tmp_path / "plain").path)
    assert FAILED[-1].logged == [1]
    (message,) = [record.getMessage() for record in caplog.records if "--log" in record.getMessage()]
    assert message.startswith("--log wandb failed and is left out from here on: the server")
    assert "\n" not in message


def test_a_tracker_that_refuses_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Run) -> Any:
        raise RuntimeError("No API key configured.\nUse `wandb login` to log in.")

    monkeypatch.setitem(TRACKERS, "wandb", refuse)
    monkeypatch.setattr(trackers, "require_tracker", lambda _: None)
    monkeypatch.setattr("evenhand.training.run.require_tracker", lambda _: None)
    with pytest.raises(EvenhandError, match=r"^--log wandb does not start: No API key configured") as refused:
        train_run(tiny("compute.log=wandb"), tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert Run(tmp_path / "run").path.joinpath("history.csv").exists() is False
    monkeypatch.setitem(TRACKERS, "wandb", lambda _: Nothing())
    assert resume_run(tmp_path / "run").finished  # once it works


class Nothing:
    def log(self, values: dict[str, float], epoch: int) -> None:
        """Forget."""

    def finish(self) -> None:
        """End."""


@pytest.mark.parametrize(("old", "new"), [("false", None), ("true", "tensorboard")])
def test_configs_from_before_there_were_others_are_read(tmp_path: Path, old: str, new: str | None) -> None:
    save_config(make_config(), tmp_path / "config.yaml")
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("log: null", f"tensorboard: {old}"))
    assert load_config(tmp_path / "config.yaml").compute.log == new
    assert "tensorboard" not in Config.model_validate({"compute": {"tensorboard": False}}).model_dump()["compute"]


def test_an_unknown_tracker_is_one_sentence() -> None:
    with pytest.raises(EvenhandError, match=r"compute\.log cannot be 'comet'"):
        make_config(settings=["compute.log=comet"])
