"""Give me that model: what a comparison recommends is loaded, averaged, used and exported."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.experiments.api import compare
from evenhand.experiments.comparison._comparison import Comparison, compare_runs, write_comparison
from evenhand.metrics.classification import balanced_accuracy, confusion_matrix
from evenhand.runs.config import make_config
from evenhand.runs.run import Run
from evenhand.training.export import export_onnx
from evenhand.training.model_folder import export_folder
from evenhand.training.predict import load
from evenhand.training.run import train_run

SETTINGS = ("compute.precision=float32", "compute.accelerator=cpu")


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    """Two objectives and three seeds on digits, whose networks are normalised each in its own way."""
    folder = tmp_path_factory.mktemp("comparison")
    runs = []
    for objective in ("ce", "cce"):
        for seed in range(3):
            config = make_config(objective=objective, seed=seed, epochs=2, data__imbalance="exp:5", settings=SETTINGS)
            runs.append(train_run(config, folder / f"{objective}-{seed}").path)
    found = compare_runs(runs)
    write_comparison(found, folder)
    return found, folder


def runs_of(found: Comparison) -> list[Run]:
    return [Run(run.folder) for run in found.runs if run.objective == found.recommended]


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.asarray(load_source("digits").pixels.images[:40])


def test_the_recommended_run_is_the_best_on_validation(comparison, images):
    found, folder = comparison
    assert json.loads((folder / "comparison.json").read_text())["recommended"] == found.recommended
    best = max(runs_of(found), key=lambda run: run.summary.selected.val_balanced_accuracy)
    assert_allclose(load(folder).predict(images), load(best).predict(images))


def test_an_ensemble_is_the_mean_of_probabilities(comparison, images):
    found, folder = comparison
    expected = np.mean([load(run).predict(images) for run in runs_of(found)], axis=0)
    assert len({load(run).card.preprocessing.mean for run in runs_of(found)}) == 3
    assert_allclose(load(folder, ensemble=True).predict(images), expected, atol=2e-6)


def test_its_test_score_is_in_the_notes(comparison):
    found, _ = comparison
    runs = runs_of(found)
    mean = np.mean([np.exp(run.predictions.log_probabilities()) for run in runs], axis=0)
    first = runs[0].predictions
    expected = balanced_accuracy(confusion_matrix(first.targets, mean.argmax(1), first.num_classes))
    assert found.ensemble == pytest.approx(expected)
    line = f"All 3 runs of {found.recommended} averaged (--ensemble) reach a balanced accuracy of {expected:.1%}"
    assert line in found.markdown()
    assert line in " ".join(found.table().split())


def test_an_ensemble_is_exported_as_one_graph(comparison, tmp_path):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    check = export_onnx(comparison[1], tmp_path / "model.onnx", ensemble=True)
    assert check.real
    assert check.largest < 1e-3


def test_missing_runs_are_one_sentence(comparison, tmp_path):
    found, folder = comparison
    content = json.loads((folder / "comparison.json").read_text())
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    with pytest.raises(EvenhandError, match=f"Runs of {found.recommended} in .* are missing or not finished, such as"):
        load(tmp_path)
    del content["recommended"]
    (tmp_path / "comparison.json").write_text(json.dumps(content))
    with pytest.raises(EvenhandError, match="recommends nothing; run evenhand compare again"):
        load(tmp_path)
    with pytest.raises(EvenhandError, match="An ensemble needs a comparison"):
        load(runs_of(found)[0], ensemble=True)


@pytest.mark.parametrize(("model", "bodies"), [pytest.param("lite0", 1, marks=pytest.mark.slow), ("lite0+lite1", 2)])
def test_heads_on_one_body_share_it(tmp_path, model, bodies):
    """With photos: features are computed once, and the body is kept once for all runs."""
    from tests.data.pictures import encode, noise, write

    for k, name in enumerate(("red", "green")):
        for i in range(16):
            image = noise(100, 100, seed=100 * k + i) // 2
            image[:, :, k] += 60
            write(tmp_path / "photos", {f"{name}/{i}.png": encode(image)})
    out = tmp_path / "comparison"
    settings = (*SETTINGS, "data.image_size=64")
    found = compare(
        tmp_path / "photos",
        objectives=["ce", "cce"],
        model=model,
        seeds=2,
        epochs=2,
        out=out,
        settings=settings,
        jobs=1,
    )
    assert found.model == model
    assert len(list((out / "backbones").iterdir())) == bodies
    files = [path for run in found.runs for path in run.folder.rglob("*.safetensors")]
    assert max(path.stat().st_size for path in files) < 100_000
    model = load(out, ensemble=True)
    assert model.network.shared
    images = [noise(100, 100, seed=9), noise(120, 100, seed=8)]
    expected = np.mean([load(run).predict(images) for run in runs_of(found)], axis=0)
    assert_allclose(model.predict(images), expected, atol=2e-6)
    assert isinstance(model.network, torch.nn.Module)


def test_the_card_of_a_folder_says_that_it_is_one_run_and_gives_the_mean_over_seeds(comparison, tmp_path, monkeypatch):
    found, folder = comparison
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # without ONNX
    card = (export_folder(folder, tmp_path / "model").path / "README.md").read_text("utf-8")
    mean = np.mean([run.summary.balanced_accuracy for run in runs_of(found)])
    assert f"mean balanced accuracy of all 3 seeds of the comparison is {mean:.1%}" in card.replace("\\", "")
    alone = (export_folder(runs_of(found)[0], tmp_path / "alone").path / "README.md").read_text("utf-8")
    assert "seeds of the comparison" not in alone
