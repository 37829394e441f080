"""Figures are drawn alike from predictions, runs, folders and comparisons."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.report.figures import (
    confusion_matrices,
    error_curves,
    history_curves,
    recall_by_count,
    recall_difference,
    reliability,
)
from evenhand.report.figures.given import predictions_of
from evenhand.runs.comparison import Comparison
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.training.run import train_run
from tests.report.served_runs import write_comparison, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = make_config(objective="cce", epochs=1, settings=["compute.precision=float32"])
    return train_run(config, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def compared(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    named = [{"objective": name, "seed": seed, "folder": f"{name}{seed}"} for name in ("ce", "cce") for seed in (0, 1)]
    for each in named:
        shutil.copytree(run.path, folder / str(each["folder"]))
    return write_comparison(folder, runs=named, seeds=[0, 1])


def test_a_run_is_its_predictions_however_it_is_given(run: Run) -> None:
    for given in (run, run.path, str(run.path), [run], [str(run.path)], {"cce": run}, {"cce": [run.path]}):
        found = predictions_of(given)
        assert list(found) == ["cce"]
        (one,) = found["cce"]
        np.testing.assert_array_equal(one.logits, run.predictions.logits)
    assert predictions_of(run.predictions) == {"model": [run.predictions]}
    assert predictions_of([run.predictions]) == {"model": [run.predictions]}
    mine = {"mine": [run.predictions]}
    assert predictions_of(mine) == mine


def test_a_comparison_is_its_objectives_and_seeds(compared: Path) -> None:
    for given in (compared, str(compared), Comparison.read(compared)):
        found = predictions_of(given)
        assert {name: len(seeds) for name, seeds in found.items()} == {"ce": 2, "cce": 2}
    with pytest.raises(EvenhandError, match="'mine' is a comparison of several objectives; give it alone"):
        predictions_of({"mine": compared})


def test_every_figure_takes_them(run: Run, compared: Path) -> None:
    for figure in (reliability, confusion_matrices, recall_by_count):
        drawn = [figure(given) for given in (run, {"cce": [run.predictions]})]
        titles = [[axes.get_title(loc="left") for axes in each.axes] for each in drawn]
        assert titles[0] == titles[1]
        assert figure(compared).axes
    assert recall_difference(run, [run.predictions], names=("cce", "ce")).axes
    for given in (run, compared, Comparison.read(compared), {"cce": [run.history]}):
        lines = history_curves(given, "train_loss", label="loss").axes[0].get_lines()
        assert lines[0].get_ydata().tolist() == [run.history[0]["train_loss"]]
    assert error_curves(run, column="val_accuracy").axes


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="is neither a run nor a comparison"):
        reliability(tmp_path)
    write_run(tmp_path / "going", finished=False)
    with pytest.raises(EvenhandError, match="going is not finished; continue it first"):
        reliability(tmp_path / "going")
