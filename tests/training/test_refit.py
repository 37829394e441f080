"""A last layer is trained again on training and validation images together, once its epoch is selected."""

from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.runs.config import Config
from evenhand.runs.run import Run
from evenhand.training import loop
from evenhand.training._initial_weights import start_file
from evenhand.training.checkpoint import load_weights
from evenhand.training.derived_run import derive_run
from evenhand.training.evaluate import evaluate_run
from evenhand.training.predict import selected_weights
from evenhand.training.run import REFITTED, resume_run, train_run
from tests.training.runs import trainer_of
from tests.training.test_head_learning import config, folder  # noqa: F401 - fixtures

OBJECTIVE = "ce+cosine:lda=0.3:scale=20+post-hoc:tau=1"


def weights_of(path: Path) -> dict[str, torch.Tensor]:
    return load_weights(path)[0]


def same(one: Path, other: Path) -> bool:
    first, second = weights_of(one), weights_of(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def changed(config: Config, **update: object) -> Config:  # noqa: F811
    return config.model_copy(update={"objective": OBJECTIVE, **update})


@pytest.fixture
def run(config, tmp_path) -> Run:  # noqa: F811
    return train_run(changed(config), tmp_path / "run")


def test_the_weights_are_those_of_a_run_without_a_validation_set(run, config, tmp_path):  # noqa: F811
    assert run.summary.selected.epoch == config.epochs
    without = train_run(changed(config, select="last"), tmp_path / "without")
    assert run.refitted
    assert not without.refitted
    assert same(run.refit_weights, without.last_weights)
    assert not same(run.refit_weights, run.best_weights)
    assert np.array_equal(run.predictions.logits, without.predictions.logits)
    assert np.array_equal(run.predictions.fitted_counts, without.predictions.fitted_counts)
    assert run.summary.adjustment == without.summary.adjustment
    assert REFITTED in run.summary.notes
    assert REFITTED not in without.summary.notes
    assert selected_weights(run.path) == run.refit_weights


def test_validation_results_are_those_before(run, config, tmp_path):  # noqa: F811
    off = config.head.model_copy(update={"refit_below": 0})
    before = train_run(changed(config, head=off), tmp_path / "off")
    assert not before.refit_weights.exists()
    assert np.array_equal(run.validation_predictions.logits, before.validation_predictions.logits)
    assert same(run.best_weights, before.best_weights)
    columns = ["epoch", "train_loss", "val_balanced_accuracy"]
    assert [[row[name] for name in columns] for row in run.history] == [
        [row[name] for name in columns] for row in before.history
    ]
    trained = before.predictions.fitted_counts
    assert np.array_equal(run.validation_predictions.fitted_counts, trained)
    held_out = np.bincount(before.validation_predictions.targets, minlength=len(trained))
    assert np.array_equal(run.predictions.fitted_counts, trained + held_out)


def test_a_run_that_was_interrupted_repeats_it(run, config, tmp_path, monkeypatch):  # noqa: F811
    own, calls = loop.Trainer._epoch, []

    def interrupted(trainer, *arguments):
        calls.append(1)
        if len(calls) == config.epochs + 3:
            raise KeyboardInterrupt
        return own(trainer, *arguments)

    monkeypatch.setattr(loop.Trainer, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_run(changed(config), tmp_path / "other")
    other = Run(tmp_path / "other")
    assert not other.finished
    assert not other.refit_weights.exists()
    other = resume_run(other.path)
    assert same(run.refit_weights, other.refit_weights)
    assert np.array_equal(run.predictions.logits, other.predictions.logits)


def test_others_start_from_the_weights_before(run):
    assert start_file(str(run.path)) == run.best_weights
    assert start_file(str(run.best_weights)) == run.best_weights


def test_a_derived_run_has_its_weights(config, tmp_path):  # noqa: F811
    plain = train_run(changed(config, objective="ce+cosine:lda=0.3:scale=20"), tmp_path / "plain")
    derived = derive_run(plain.path, changed(config), tmp_path / "derived")
    assert derived.refitted
    assert same(plain.refit_weights, derived.refit_weights)


def test_missing_predictions_are_made_again(run):
    before = run.predictions
    (run.path / "predictions.npz").unlink()
    found = evaluate_run(run.path).predictions
    assert np.array_equal(found.fitted_counts, before.fitted_counts)


@pytest.mark.parametrize(("update", "expected"), [({}, True), ({"select": "last"}, False), ({"objective": "ce"}, True)])
def test_which_runs_are_trained_again(update, expected, config, tmp_path):  # noqa: F811
    trainer = trainer_of(changed(config, **update), tmp_path / "run")
    assert trainer.refits == expected
    images = len(trainer.prepared.splits.train) + len(trainer.prepared.splits.val)
    many = config.head.model_copy(update={"refit_below": images})
    assert not trainer_of(changed(config, **update, head=many), tmp_path / "many").refits


@pytest.mark.parametrize(("most", "number"), [(None, 2), (32, 2), (2, 2), (1, 1)])
def test_batches_are_of_one_size_and_grow_with_the_number_of_images(most, number, config, tmp_path):  # noqa: F811
    head = config.head.model_copy(update={"most_steps": most})
    trainer = trainer_of(changed(config, head=head), tmp_path / "run")
    images = len(trainer.prepared.splits.train)
    assert 64 < images < 128
    sizes = trainer.batches("train", trainer.batch_size).batch_sizes()
    assert len(sizes) == number
    assert sum(sizes) == images
    assert max(sizes) - min(sizes) <= 1 if most else sizes[0] == config.batch_size == 64
