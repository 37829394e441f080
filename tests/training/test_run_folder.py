"""What a run leaves: the files that later stages read, and nothing they would not expect."""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.core.locks import Busy, claimed
from evenhand.data.sources import load_source
from evenhand.losses.functional import complement_entropy
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.metrics.predictions import Predictions, load_predictions
from evenhand.runs.config import load_config, make_config
from evenhand.runs.run import Run
from evenhand.runs.summary import summarise
from evenhand.training.checkpoint import load_classifier, load_state
from evenhand.training.prepare import prepare
from evenhand.training.run import make_thumbnails, resume_run, train_run
from tests.training.runs import Notes, files_of, tiny, trainer_of, untimed_history, untimed_summary

FILES = {
    "config.yaml",
    "environment.json",
    "splits.json",
    "history.csv",
    "weights/best.safetensors",
    "weights/last.safetensors",
    "state/state.pt",
    "predictions.npz",
    "validation.npz",
    "checksums.json",
    "features.npz",
    "thumbnails.npz",
    "summary.json",
}
COUNTS = [142, 101, 72, 52, 37, 26, 19, 13, 9, 7]
"""Of digits under exp:20."""


def by_hand(run: Path, split: str) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], list[str]]:
    """Logits, features, labels and ids of a split, from the best weights, digits, and nothing of the training code."""
    model, card = load_classifier(run / "weights" / "best.safetensors")
    table = load_source("digits")
    ids = json.loads((run / "splits.json").read_text())[split]
    rows = [table.ids.tolist().index(name) for name in ids]
    pixels = torch.from_numpy(table.pixels.images[rows]).permute(0, 3, 1, 2).double()
    images = ((pixels / 255 - card.preprocessing.mean[0]) / card.preprocessing.std[0]).float()
    with torch.no_grad():
        logits, features = model.eval()(images, with_features=True)
    return logits.numpy(), features.numpy(), table.labels[rows], ids


def test_exactly_the_files_of_the_design(whole: Path) -> None:
    assert files_of(whole) == FILES
    assert Run(whole).finished


def test_config_is_whole_under_its_command(whole: Path) -> None:
    text = (whole / "config.yaml").read_text("utf-8")
    assert text.splitlines()[0] == "# evenhand train digits"
    assert load_config(whole / "config.yaml") == tiny()
    assert yaml.safe_load(text) == json.loads(tiny().model_dump_json())


def test_environment(whole: Path) -> None:
    environment = json.loads((whole / "environment.json").read_text())
    assert set(environment) == {
        *("started", "python", "versions", "commit", "code", "system", "processor", "cpus", "threads"),
        *("device", "devices", "precision", "seed"),
    }
    assert environment["versions"]["torch"] == torch.__version__.partition("+")[0]
    assert "unknown" not in environment["versions"].values()
    assert (environment["device"], environment["devices"], environment["precision"]) == ("cpu", 1, "32-true")
    assert (environment["seed"], environment["threads"]) == (0, 1)


def test_splits(whole: Path) -> None:
    splits = json.loads((whole / "splits.json").read_text())
    assert [len(splits[name]) for name in ("train", "val", "test")] == [430, 48, 359]
    assert len({*splits["train"], *splits["val"], *splits["test"]}) == sum(COUNTS) + 359


def test_history_has_a_row_an_epoch(whole: Path) -> None:
    history = Run(whole).history
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert list(history[0]) == [
        *("epoch", "lr", "train_loss", "seconds", "images_per_second"),
        *("val_accuracy", "val_balanced_accuracy", "val_complement_entropy_right", "val_complement_entropy_wrong"),
    ]
    assert all(row["seconds"] > 0 for row in history)
    config, batches = tiny(), 7
    lrs = [config.schedule.lr(0.1, batches * epoch, batches, 3) for epoch in (1, 2, 3)]
    assert [row["lr"] for row in history] == lrs
    assert load_state(whole / "state" / "state.pt")["history"] == history


def test_history_equals_validation_by_hand(whole: Path) -> None:
    best = Run(whole).summary.selected.epoch
    row = Run(whole).history[best - 1]
    logits, _, labels, _ = by_hand(whole, "val")
    predicted = logits.argmax(1)
    assert row["val_accuracy"] == np.mean(predicted == labels)
    assert row["val_balanced_accuracy"] == balanced_accuracy(confusion_matrix(labels, predicted, 10))
    entropy = complement_entropy(torch.from_numpy(logits), torch.from_numpy(labels), reduction="none").numpy()
    for kind, chosen in (("right", predicted == labels), ("wrong", predicted != labels)):
        assert row[f"val_complement_entropy_{kind}"] == pytest.approx(entropy[chosen].mean(), rel=1e-4)


def test_best_is_the_first_epoch_of_the_highest_validation_balanced_accuracy(whole: Path) -> None:
    history = Run(whole).history
    selected = Run(whole).summary.selected.model_dump()
    judged, plain = ([row[f"val_{name}"] for row in history] for name in ("balanced_accuracy", "accuracy"))
    assert selected == {
        "rule": "best",
        "epoch": 1 + int(np.argmax(judged)),
        "val_balanced_accuracy": max(judged),
        "epoch_by_accuracy": 1 + int(np.argmax(plain)),
    }


def test_predictions_are_those_of_the_best_weights(whole: Path) -> None:
    predictions = Run(whole).predictions
    logits, features, labels, ids = by_hand(whole, "test")
    np.testing.assert_allclose(predictions.logits, logits, rtol=1e-4, atol=1e-4)
    assert predictions.targets.tolist() == labels.tolist()
    assert predictions.ids.tolist() == ids
    assert predictions.train_counts.tolist() == COUNTS
    assert predictions.class_names == tuple("0123456789")
    with np.load(whole / "features.npz") as stored:
        assert set(stored) == {"features", "targets", "ids"}
        assert stored["features"].dtype == np.float16
        np.testing.assert_allclose(stored["features"], features, rtol=2e-3, atol=2e-3)
        assert stored["targets"].tolist() == labels.tolist()
        assert stored["ids"].tolist() == ids


def test_features_are_at_most_so_many_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand.training.run.MOST_FEATURES", 50)
    run = train_run(tiny(epochs=1), tmp_path / "run").path
    predictions = load_predictions(run / "predictions.npz")
    with np.load(run / "features.npz") as stored:
        assert stored["features"].shape == (50, 64)
        places = [predictions.ids.tolist().index(name) for name in stored["ids"]]
        assert places == sorted(set(places))
        assert stored["targets"].tolist() == predictions.targets[places].tolist()
    assert len(predictions) == 359


@pytest.mark.parametrize("most", [200, 7])
def test_thumbnails(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    folder = whole
    if most != 200:
        monkeypatch.setattr("evenhand.training.run.MOST_ERRORS", most)
        folder = train_run(tiny(), tmp_path / "run").path
    predictions = load_predictions(folder / "predictions.npz")
    right = predictions.predicted() == predictions.targets
    with np.load(folder / "thumbnails.npz") as stored:
        images, index, ids = stored["images"], stored["index"], stored["ids"]
    assert len(index) == len(set(index.tolist()))
    first = min(most, int((~right).sum()))
    assert first == most or most == 200
    confidence = np.exp(predictions.log_probabilities().max(1))
    assert confidence[index[:first]].tolist() == sorted(confidence[~right].tolist(), reverse=True)[:first]
    errors = int((~right[index]).sum())
    assert not right[index[:errors]].any()
    weak = np.bincount(predictions.targets[index[:errors]], minlength=10)
    assert (weak >= np.minimum(np.bincount(predictions.targets[~right], minlength=10), 5)).all()
    assert right[index[errors:]].all()
    shown = np.bincount(predictions.targets[index[errors:]], minlength=10)
    assert shown.tolist() == np.minimum(np.bincount(predictions.targets[right], minlength=10), 5).tolist()
    assert ids.tolist() == predictions.ids[index].tolist()
    table = load_source("digits")
    rows = [table.ids.tolist().index(name) for name in ids]
    assert images.dtype == np.uint8
    assert np.array_equal(images, table.pixels.images[rows])


def test_thumbnails_of_large_images_are_small() -> None:
    prepared = prepare(tiny(data__image_size=100), progress=False)
    rows, counts = prepared.splits.test, prepared.splits.counts
    logits = np.random.default_rng(0).normal(size=(len(rows), 10)).astype(np.float32)
    table = prepared.table
    predictions = Predictions(logits, table.labels[rows], table.ids[rows], table.class_names, counts)
    small = make_thumbnails(prepared, predictions)
    assert len(small.images) <= 250
    assert small.images.shape[1:] == (50, 50, 1)


def test_weak_classes_have_pictures_however_unsure_their_errors_are() -> None:
    prepared = prepare(tiny(), progress=False)
    rows, counts, table = prepared.splits.test, prepared.splits.counts, prepared.table
    labels = table.labels[rows]
    logits = 9 * np.eye(10, dtype=np.float32)[(labels + (np.arange(len(labels)) % 3 > 0)) % 10]  # two thirds wrong
    logits[labels == 7] = np.eye(10, dtype=np.float32)[8]
    assert ((logits.argmax(1) != labels) & (labels != 7)).sum() > 200
    small = make_thumbnails(prepared, Predictions(logits, labels, table.ids[rows], table.class_names, counts))
    assert (labels[small.index] == 7).sum() == 5
    assert len(small.index) == len(set(small.index.tolist()))


@pytest.mark.parametrize(("most", "each"), [(200, 5), (30, 3), (4, 1)])
def test_many_classes_share_the_pictures_of_right_answers(most, each, monkeypatch) -> None:
    monkeypatch.setattr("evenhand.training.run.MOST_CORRECT", most)
    prepared = prepare(tiny(), progress=False)
    rows, counts, table = prepared.splits.test, prepared.splits.counts, prepared.table
    labels = table.labels[rows]
    logits = np.eye(10, dtype=np.float32)[labels]
    small = make_thumbnails(prepared, Predictions(logits, labels, table.ids[rows], table.class_names, counts))
    assert np.bincount(labels[small.index]).tolist() == [each] * 10


def test_summary_is_that_of_the_predictions(whole: Path) -> None:
    summary = untimed_summary(whole)
    judged = summarise(Run(whole).predictions)
    assert {key: summary[key] for key in judged} == json.loads(json.dumps(judged))
    own = {key: value for key, value in summary.items() if key not in judged}
    assert own.pop("selected")["rule"] == "best"
    assert own.pop("resolved")["image_size"] == 8
    validation = Run(whole).validation_predictions
    assert validation is not None
    assert own.pop("validation")["correct"] == validation.confusion.diagonal().tolist()
    assert own == {
        "source": "digits",
        "imbalance": "exp:20",
        "objective": "cce",
        "model": "resnet8",
        "seed": 0,
        "epochs": 3,
        "parts": [{"part": "cce", "what": "weight of C -0.1111"}],
        "notes": [],
    }


def test_two_losses_of_one_seed_are_paired(tmp_path: Path) -> None:
    one = trainer_of(tiny(objective="cce"), tmp_path)
    torch.rand(3)  # nor does it matter what was drawn before
    other = trainer_of(tiny(objective="cot"), tmp_path)
    for (name, left), right in zip(one.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
    for split in ("train", "val", "test"):
        assert np.array_equal(getattr(one.prepared.splits, split), getattr(other.prepared.splits, split))
    for epoch in (0, 1):
        served = [trainer.prepared.batches("train", 64, device="cpu").train(0, epoch) for trainer in (one, other)]
        for left_batch, right_batch in zip(*served, strict=True):
            assert all(torch.equal(left, right) for left, right in zip(left_batch, right_batch, strict=True))


def test_another_seed_changes_all_but_the_test_set(tmp_path: Path) -> None:
    one, other = trainer_of(tiny(seed=0), tmp_path), trainer_of(tiny(seed=1), tmp_path)
    assert not torch.equal(*(next(trainer.model.parameters()) for trainer in (one, other)))
    assert not np.array_equal(one.prepared.splits.train, other.prepared.splits.train)
    assert np.array_equal(one.prepared.splits.test, other.prepared.splits.test)


def test_the_same_config_gives_the_same_run(whole: Path, tmp_path: Path) -> None:
    again = train_run(tiny(), tmp_path / "again").path
    for name in ("predictions.npz", "weights/best.safetensors", "weights/last.safetensors"):
        assert (again / name).read_bytes() == (whole / name).read_bytes()
    assert untimed_history(again) == untimed_history(whole)


def test_every_step_and_every_epoch_is_told(tmp_path: Path) -> None:
    notes = Notes()
    train_run(tiny("batch_size=4", epochs=2), tmp_path / "run", callback=notes)
    assert notes.steps == [(epoch, done, 108) for epoch in (1, 2) for done in range(1, 109)]
    assert [row["epoch"] for row in notes.rows] == [1, 2]


def test_train_loss_is_the_mean_over_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tiny("batch_size=4", epochs=1), tmp_path / "run")
    seen = []
    step = type(trainer.objective).step

    def noted(*args: object, **options: int) -> torch.Tensor:
        loss = step(*args, **options)  # type: ignore[arg-type]
        seen.append(loss.item())
        return loss

    monkeypatch.setattr(type(trainer.objective), "step", noted)
    trainer.train(0, Notes())
    assert trainer.history[0]["train_loss"] == pytest.approx(np.mean(seen), rel=1e-5)


@pytest.mark.parametrize("content", ["run", "something else", "file"])
def test_existing_folder_is_never_overwritten(tmp_path: Path, whole: Path, content: str) -> None:
    if content == "run":
        before = {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)}
        with pytest.raises(EvenhandError, match=r"has a run; continue it with --resume .*, or choose another folder"):
            train_run(tiny(), whole)
        assert {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)} == before
        return
    folder = tmp_path / "mine"
    if content == "file":
        folder.write_text("a letter")
    else:
        folder.mkdir()
        (folder / "letter.txt").write_text("a letter")
    with pytest.raises(EvenhandError, match="is not an empty folder; choose another with --out"):
        train_run(tiny(), folder)
    assert files_of(tmp_path) == {"mine"} if content == "file" else {"mine/letter.txt"}


def test_mistakes_leave_no_folder(tmp_path: Path) -> None:
    for flags in ({"model__name": "resnet9"}, {"objective": "nothing"}, {"data__source": "no-such-set"}):
        with pytest.raises(EvenhandError):
            train_run(tiny(**flags), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_history_round_trip(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "train_loss": 0.1 + 0.2}, {"epoch": 2, "train_loss": float("nan")}]
    run = Run(tmp_path)
    run.write_history(rows)
    back = run.history
    assert back[0] == rows[0]
    assert np.isnan(back[1]["train_loss"])
    with (tmp_path / "history.csv").open(newline="") as file:
        assert next(csv.reader(file)) == ["epoch", "train_loss"]
    (tmp_path / "history.csv").write_text("epoch,train_loss\n1,much\n")
    with pytest.raises(EvenhandError, match="Cannot read the history in"):
        _ = Run(tmp_path).history


def test_the_papers_recipe_says_what_mirroring_digits_does(tmp_path: Path) -> None:
    flags = {"data__imbalance": "exp:20", "model__name": "resnet8", "epochs": 1}
    summary = train_run(make_config("paper", **flags), tmp_path / "run").summary
    (note,) = summary.notes
    assert note.startswith(
        "Training images are flipped as requested, but a flipped image of digits may show another class"
    )


HELD: dict[str, Callable[[Path], object]] = {
    "trained": lambda path: train_run(tiny(), path),
    "resumed": lambda path: resume_run(path),
    "spelled otherwise": lambda path: train_run(tiny(), path.parent / "x" / ".." / path.name),
    "relative": lambda path: train_run(tiny(), os.path.relpath(path)),
    "as text": lambda path: train_run(tiny(), f"{path}/"),
    "through a link": lambda path: train_run(tiny(), path.parent / "link"),
    "resumed through a link": lambda path: resume_run(path.parent / "link"),
    "claimed": lambda path: claimed(path).__enter__(),
}


@pytest.mark.parametrize("kind", HELD)
def test_a_folder_that_is_held_is_trained_by_nobody_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run"
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(path)
    with claimed(path):
        Run(path).write_config(tiny())
        before = files_of(path)
        with pytest.raises(Busy, match=r"Another process is at work in .*; wait until it ends, or choose another"):
            HELD[kind](path)
        assert files_of(path) == before


@pytest.mark.parametrize("there", ["nothing", "folder", "file", "link", "run", "several"])
def test_a_default_name_gets_a_number_of_its_own(tmp_path: Path, there: str) -> None:
    path = tmp_path / "run"
    if there == "file":
        path.touch()
    elif there == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif there != "nothing":
        path.mkdir()
    if there == "run":
        Run(path).write_config(tiny())
    if there == "several":
        (tmp_path / "run_2").mkdir()
        (tmp_path / "run_3").touch()
    with claimed(path, number=True) as one, claimed(path, number=True) as other:
        assert one != other
        expected = {"nothing": ("run", "run_2"), "several": ("run_4", "run_5")}.get(there, ("run_2", "run_3"))
        assert (one.name, other.name) == expected
