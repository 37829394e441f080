"""Figures are drawn alike from predictions, runs, folders and comparisons."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from evenhand.core.errors import EvenhandError
from evenhand.experiments.comparison import judge_differences
from evenhand.report.figures import (
    class_distribution,
    complement_entropy_curves,
    confusion_matrices,
    coverage_by_class,
    error_curves,
    error_study,
    feature_embeddings,
    history_curves,
    recall_by_count,
    recall_difference,
    reliability,
    verdict_picture,
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


def test_counts_are_drawn_from_whatever_has_them(run: Run, compared: Path) -> None:
    counts = run.predictions.train_counts
    for given in (run, str(run.path), run.predictions, compared, {"mine": [run]}):
        bars = class_distribution(given).axes[0].patches
        assert sorted(bar.get_height() for bar in bars) == sorted(counts.tolist())
    with pytest.raises(EvenhandError, match="Figures are drawn from predictions, runs or a comparison, not from int64"):
        class_distribution(counts)


def test_histories_are_of_runs_in_a_mapping_too(run: Run, compared: Path) -> None:
    expected = [run.history[0]["train_loss"]]
    for given in ({"a": run}, {"a": [run, str(run.path)]}, {"a": [run.history, run]}):
        [line] = history_curves(given, "train_loss", label="loss").axes[0].get_lines()
        assert line.get_ydata().tolist() == expected
    with pytest.raises(EvenhandError, match="'mine' is a comparison of several objectives"):
        history_curves({"mine": compared}, "train_loss", label="loss")
    for given in (run.predictions, [run.predictions], {"a": run.predictions}):
        with pytest.raises(EvenhandError, match="more than predictions hold; give the run or its folder"):
            complement_entropy_curves(given)


def test_maps_and_errors_are_drawn_from_runs(run: Run, compared: Path) -> None:
    for given, titles in ((run, ["cce"]), (compared, ["all objectives (equal features)"]), ({"mine": run}, ["mine"])):
        assert [title for axes in feature_embeddings(given).axes if (title := axes.get_title(loc="left"))] == titles
    with pytest.raises(EvenhandError, match="more than predictions hold"):
        feature_embeddings(run.predictions)
    kept = run.thumbnails
    expected = [text.get_text() for text in error_study(run.predictions, kept.images, kept.ids.tolist()).texts]
    for given in (run, str(run.path)):
        assert [text.get_text() for text in error_study(given).texts] == expected
    with pytest.raises(EvenhandError, match="Predictions hold no images"):
        error_study(run.predictions)


def test_the_verdict_is_drawn_from_a_comparison(run: Run, tmp_path: Path) -> None:
    differences = judge_differences({"balanced_accuracy": {"ce": [0.5, 0.6, 0.55], "cce": [0.7, 0.8, 0.72]}}, "ce")
    folder = write_comparison(tmp_path, differences=[each.model_dump(mode="json") for each in differences])
    assert Comparison.read(folder).baseline == "ce"
    for given in (folder, str(folder), Comparison.read(folder)):
        axes = verdict_picture(given).axes[0]
        assert [text.get_text() for text in axes.get_yticklabels()] == ["cce"]
        assert "vs. ce" in axes.get_xlabel()
    with pytest.raises(EvenhandError, match="name of the baseline is missing"):
        verdict_picture(differences)
    with pytest.raises(EvenhandError, match="is no comparison: it is a run"):
        verdict_picture(run)


def test_the_coverage_of_a_folder_is_that_of_its_run(run: Run) -> None:
    with pytest.raises(EvenhandError, match="has no calibration images"):
        coverage_by_class(str(run.path))


def test_what_is_no_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="is neither a run nor a comparison"):
        reliability(tmp_path)
    write_run(tmp_path / "going", finished=False)
    with pytest.raises(EvenhandError, match="going is not finished; continue it first"):
        reliability(tmp_path / "going")
