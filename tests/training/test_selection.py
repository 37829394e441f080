"""Selection never sees the test set."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.metrics.predictions import load_predictions
from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.runs.schemas import EpochRow
from evenhand.training import loop
from evenhand.training._selection import balanced_accuracy_error
from evenhand.training.checkpoint import load_state, load_weights, save_weights, weights_epoch
from evenhand.training.evaluate import evaluate_run, keep_missing
from evenhand.training.loop import Callback, Trainer
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, files_of, tiny, untimed_history, untimed_summary


def write_digits(path: Path, *, spoiled: bool) -> str:
    """Digits as a file with a test set of its own: the true one, or noise under wrong labels."""
    table = load_source("digits")
    images, labels = table.pixels.images, table.labels
    test_images, test_labels = images[600:800], labels[600:800]
    if spoiled:
        test_images = np.random.default_rng(0).integers(0, 255, test_images.shape, dtype=np.uint8)
        test_labels = (test_labels + 3) % 10
    path.parent.mkdir()
    np.savez(
        path, train_images=images[:600], train_labels=labels[:600], test_images=test_images, test_labels=test_labels
    )
    return str(path)


def with_source(source: str, **flags: object) -> Config:
    return tiny(data__source=source, data__imbalance="none", augmentation__flip=False, epochs=6, **flags)


def test_another_test_set_changes_nothing_but_the_judgement(tmp_path: Path) -> None:
    true = write_digits(tmp_path / "true" / "set.npz", spoiled=False)
    spoiled = write_digits(tmp_path / "spoiled" / "set.npz", spoiled=True)
    seen = train_run(with_source(true, track_test=True), tmp_path / "seen").path
    other = train_run(with_source(spoiled, track_test=True), tmp_path / "other").path
    unseen = train_run(with_source(true), tmp_path / "unseen").path

    for name in ("weights/best.safetensors", "weights/last.safetensors"):
        assert len({(run / name).read_bytes() for run in (seen, other, unseen)}) == 1, name
    histories = [untimed_history(run) for run in (seen, other, unseen)]
    without_test = [
        [{key: value for key, value in row.items() if not key.startswith("test_")} for row in rows]
        for rows in histories
    ]
    assert without_test[0] == without_test[1] == without_test[2] == histories[2]
    selected = [untimed_summary(run)["selected"] for run in (seen, other, unseen)]
    assert selected[0] == selected[1] == selected[2]

    # It was noticed, though: by the columns that nobody selects by, and by the judgement.
    tested = [[float(row["test_balanced_accuracy"]) for row in rows] for rows in histories[:2]]
    assert tested[0] != tested[1]
    assert max(tested[0]) > 0.5 > max(tested[1])
    assert (seen / "predictions.npz").read_bytes() == (unseen / "predictions.npz").read_bytes()
    assert untimed_summary(seen)["balanced_accuracy"] > 0.5 > untimed_summary(other)["balanced_accuracy"]


def test_best_weights_are_those_of_the_best_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle of a run is best here, by scores that are made up; of equal ones the first counts."""
    balanced, plain = iter([0.2, 0.6, 0.6, 0.4]), iter([0.1, 0.3, 0.2, 0.9])
    monkeypatch.setattr(
        Trainer, "_evaluate", lambda *_: {"val_accuracy": next(plain), "val_balanced_accuracy": next(balanced)}
    )
    folder, kept = tmp_path / "run", []

    class Keep(Callback):
        def epoch(self, row: EpochRow) -> None:
            assert row["epoch"] == len(kept) + 1
            kept.append(load_state(folder / "state" / "state.pt")["model"])

    train_run(tiny(epochs=4), folder, callback=Keep())
    chosen = {"rule": "best", "epoch": 2, "val_balanced_accuracy": 0.6, "epoch_by_accuracy": 4}
    assert untimed_summary(folder)["selected"] == chosen
    for name, epoch in (("best", 2), ("last", 4)):
        weights, _ = load_weights(folder / "weights" / f"{name}.safetensors")
        assert all(torch.equal(weights[key], value) for key, value in kept[epoch - 1].items()), name
    assert not torch.equal(kept[1]["network.head.weight"], kept[2]["network.head.weight"])


def test_late_keeps_the_latest_epoch_that_is_near_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near is one standard error of the best epoch's score; what the run says is told again from its files."""
    scores = iter([0.2, 0.6, 0.57, 0.4])
    monkeypatch.setattr(
        Trainer,
        "_evaluate",
        lambda *_: {
            "val_accuracy": 0.5,
            "val_balanced_accuracy": next(scores),
            "val_balanced_accuracy_error": 0.04,
        },
    )
    folder, kept = tmp_path / "run", []

    class Keep(Callback):
        def epoch(self, row: EpochRow) -> None:  # noqa: ARG002
            kept.append(load_state(folder / "state" / "state.pt")["model"])

    train_run(tiny(epochs=4, select="late"), folder, callback=Keep())
    chosen = {"rule": "late", "epoch": 3, "val_balanced_accuracy": 0.57, "epoch_by_accuracy": 1}
    assert untimed_summary(folder)["selected"] == chosen
    weights, _ = load_weights(folder / "weights" / "best.safetensors")
    assert all(torch.equal(weights[key], value) for key, value in kept[2].items())
    (folder / "summary.json").unlink()
    keep_missing(folder, evaluate_run(folder))
    assert untimed_summary(folder)["selected"] == chosen


def every_with(specs: list[str], *rules: str) -> list[Any]:
    """Every spec with the first rule; of the other rules, all but the first spec are slow."""
    return [
        pytest.param(spec, rule, marks=[] if spec == specs[0] or rule == rules[0] else pytest.mark.slow)
        for spec in specs
        for rule in rules
    ]


LOSSES = ["ce", "ldam", "balanced-softmax", "focal", "cce"]


@pytest.mark.parametrize(("loss", "select"), every_with(LOSSES, "best", "late"))
def test_a_deferred_part_changes_the_result(tmp_path: Path, loss: str, select: str) -> None:
    """Whichever epoch is best, the weights are of an epoch that drw took part in, and not those without drw."""
    plain, deferred = (
        train_run(tiny(objective=spec, epochs=3, select=select), tmp_path / spec) for spec in (loss, f"{loss}+drw")
    )
    assert deferred.summary.selected.epoch == 3  # of three epochs, drw has the last
    logits = [load_predictions(run.path / "predictions.npz").logits for run in (plain, deferred)]
    assert np.abs(logits[0] - logits[1]).max() > 0.01
    assert not any("drw" in sentence for sentence in deferred.summary.failures)


def test_epochs_before_a_deferred_part_are_not_selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of plain cross entropy was better by both measures, but is another objective's."""
    balanced, plain = iter([0.9, 0.2, 0.4, 0.3]), iter([0.9, 0.1, 0.3, 0.5])
    monkeypatch.setattr(
        Trainer, "_evaluate", lambda *_: {"val_accuracy": next(plain), "val_balanced_accuracy": next(balanced)}
    )
    run = train_run(tiny(objective="ce+drw:start=0.5", epochs=4), tmp_path / "run").path
    chosen = {"rule": "best", "epoch": 3, "val_balanced_accuracy": 0.4, "epoch_by_accuracy": 4}
    assert untimed_summary(run)["selected"] == chosen
    assert weights_epoch(run / "weights" / "best.safetensors") == 3
    assert weights_epoch(run / "weights" / "last.safetensors") == 4
    (run / "summary.json").unlink()
    keep_missing(run, evaluate_run(run))
    assert untimed_summary(run)["selected"] == chosen


STARTS = {
    "ce+drw": 4,
    "ce+drw:start=0.99": 4,
    "ce+drw:start=0.01": 1,
    "ldam+drw:start=0.3:by=inverse": 2,
    "balanced-softmax+drw:start=0.5+mixup": 3,
    "cce+drw:start=0.5+erasing": 3,
    "focal+drw:start=0.7+label-smoothing": 4,
    "ce+drw:start=0.5+cot": 3,
}


@pytest.mark.parametrize(("spec", "select"), every_with([*STARTS], "late", "best"))
def test_where_the_best_epoch_lies_before_a_part_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, select: str
) -> None:
    """Every epoch is worse than the one before, but those without the part are of another objective."""
    values = iter([0.9, 0.6, 0.3, 0.1])
    score = lambda *_: {  # noqa: E731
        "val_accuracy": 0.5,
        "val_balanced_accuracy": next(values),
        "val_balanced_accuracy_error": 0.001,
    }
    monkeypatch.setattr(Trainer, "_evaluate", score)
    run = train_run(tiny(objective=spec, epochs=4, select=select), tmp_path / "run")
    assert run.summary.selected.epoch == STARTS[spec] == weights_epoch(run.best_weights)
    assert not any("had no effect" in sentence for sentence in run.summary.failures)


@pytest.mark.parametrize(
    ("done", "selected"),
    [(1, 3), (2, 3), (3, 4), (4, 1)],
    ids=["before drw", "as drw starts", "after a lost epoch of drw", "after training"],
)
def test_old_runs_name_the_epoch_of_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int, selected: int
) -> None:
    """Older versions selected from all epochs, here the first, and their weights name no epoch."""
    values = iter([0.9, 0.2, 0.4, 0.3, 0.3])
    monkeypatch.setattr(Trainer, "_evaluate", lambda *_: {"val_accuracy": 0.5, "val_balanced_accuracy": next(values)})
    folder, begin_training = tmp_path / "run", Trainer.__post_init__

    def old(trainer: Trainer) -> None:
        begin_training(trainer)
        trainer.first_counted = 1

    class Stop(Callback):
        def epoch(self, row: EpochRow) -> None:
            if row["epoch"] == done:
                raise Interrupted

    with monkeypatch.context() as before:
        before.setattr(Trainer, "__post_init__", old)
        before.setattr(loop, "save_weights", lambda *given, epoch: save_weights(*given))  # noqa: ARG005
        with pytest.raises(Interrupted):
            train_run(tiny(objective="ce+drw:start=0.5", epochs=4), folder, callback=Stop())
    summary = resume_run(folder).summary
    assert summary.selected.epoch == selected
    idle = "drw starts at epoch 3, but the weights are those of epoch 1, so drw had no effect."
    assert (summary.failures[:1] == (idle,)) == (selected == 1)


@given(recalls=st.lists(st.tuples(st.integers(1, 400), st.floats(0.05, 0.95)), min_size=2, max_size=9))
@settings(deadline=None, derandomize=True, max_examples=50)
def test_the_error_of_balanced_accuracy_is_that_of_independent_shares(recalls: list[tuple[int, float]]) -> None:
    hits = [(round(count * share), count) for count, share in recalls]
    confusion = np.array([[hit, count - hit] for hit, count in hits])
    square = np.zeros((len(hits), len(hits)), np.int64)
    for k, (hit, missed) in enumerate(confusion.tolist()):
        square[k, k], square[k, (k + 1) % len(hits)] = hit, missed
    smoothed = [((hit + 1) / (count + 2), count) for hit, count in hits]
    expected = sum(share * (1 - share) / count for share, count in smoothed) ** 0.5 / len(hits)
    assert balanced_accuracy_error(square) == pytest.approx(expected)


def test_tracked_test_columns_are_the_judgement_of_each_epoch(tmp_path: Path) -> None:
    run = train_run(tiny(track_test=True, epochs=2), tmp_path / "run").path
    summary = untimed_summary(run)
    row = Run(run).history[summary["selected"]["epoch"] - 1]
    assert row["test_balanced_accuracy"] == summary["balanced_accuracy"]
    assert row["test_accuracy"] == summary["accuracy"]


def test_last_trains_on_everything_and_keeps_the_last_epoch(tmp_path: Path, whole: Path) -> None:
    run = train_run(tiny(select="last"), tmp_path / "run").path
    splits = json.loads((run / "splits.json").read_text())
    before = json.loads((whole / "splits.json").read_text())
    assert splits["val"] == []
    assert sorted(splits["train"]) == sorted(before["train"] + before["val"])
    assert splits["test"] == before["test"]
    assert files_of(run) == files_of(whole) - {"weights/best.safetensors", "validation.npz"}
    assert not any(key.startswith("val_") for key in Run(run).history[0])
    assert untimed_summary(run)["selected"] == {"rule": "last", "epoch": 3}
    predictions = load_predictions(run / "predictions.npz")
    assert predictions.train_counts.tolist() == load_predictions(whole / "predictions.npz").train_counts.tolist()


@pytest.mark.parametrize("share", ["0", "0.1"])
def test_nothing_to_select_by_is_one_sentence(tmp_path: Path, share: str) -> None:
    source = write_digits(tmp_path / "few" / "set.npz", spoiled=False)
    if share != "0":
        table = load_source("digits")
        first = np.concatenate([np.flatnonzero(table.labels == k)[:8] for k in range(10)])
        train, test = first.reshape(10, 8)[:, :4].ravel(), first.reshape(10, 8)[:, 4:].ravel()
        images = table.pixels.images
        np.savez(
            source,
            train_images=images[train],
            train_labels=table.labels[train],
            test_images=images[test],
            test_labels=table.labels[test],
        )
    config = tiny(f"data.val_fraction={share}", data__source=source, data__imbalance="none")
    why = "data.val_fraction is 0" if share == "0" else "no class has 5 training images"
    with pytest.raises(EvenhandError, match=f"no validation images to select by: {why}; use --select last"):
        train_run(config, tmp_path / "run")
