"""`evenhand export` as a person types it."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.data.decode import read_image
from evenhand.training import export
from evenhand.training.predict import load
from tests.trained import Trained, assert_one_sentence, draw, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "onnxscript"])
def test_without_the_extra(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path, name: str) -> None:
    monkeypatch.setattr(export, "import_module", lambda each: _missing(each, name))
    command = ["export", photos_run.run, "--onnx", tmp_path / "m.onnx"]
    assert_one_sentence(evenhand(capsys, monkeypatch, *command), "pip install 'onnx>=")


def _missing(name: str, lacking: str) -> object:
    if name == lacking:
        raise ModuleNotFoundError(name)
    return sys


@pytest.fixture(scope="module")
def extra() -> None:
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name)


@pytest.fixture(scope="module")
def exported(request: pytest.FixtureRequest, photos_run: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    request.getfixturevalue("extra")
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    check = export.export_onnx(photos_run.run, path)
    assert check.real
    assert check.images == 12
    assert list(check.differences) == ["cat, tabby", "dog", "öwl [bold]"]
    assert check.largest < 1e-4
    assert list(path.parent.iterdir()) == [path], "weights stand in a second file"
    return path


def test_it_answers_like_torch_on_files(photos_run: Trained, exported: Path) -> None:
    """Everything that is used here stands in the file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(exported)
    info = session.get_modelmeta().custom_metadata_map
    model = load(photos_run.run)
    assert tuple(json.loads(info["class_names"])) == model.class_names
    paths = [photos_run.photos / name for name in photos_run.ids()]
    size, crop = json.loads(info["image_size"]), json.loads(info["crop_size"])
    mean, std = np.array(json.loads(info["mean"])), np.array(json.loads(info["std"]))
    images = []
    for path in paths:
        image = read_image(path, channels=json.loads(info["channels"]), image_size=size)
        top, left = (image.shape[0] - crop) // 2, (image.shape[1] - crop) // 2
        image = (image[top : top + crop, left : left + crop] / 255 - mean) / std
        images.append(image.transpose(2, 0, 1).astype(np.float32))
    for count in (1, 5, 12):
        (logits,) = session.run(None, {"images": np.stack(images[:count])})
        probabilities = torch.from_numpy(logits).softmax(1).numpy()
        np.testing.assert_allclose(probabilities, model.predict(paths[:count]), atol=1e-5)


@pytest.fixture
def exported_before(monkeypatch: Patch, exported: Path) -> None:
    """The same weights give the same graph, so torch's exporter need not make it again."""
    monkeypatch.setattr(export, "_export", lambda _, path: shutil.copy(exported, path))


@pytest.mark.usefixtures("exported_before")
def test_noise_where_the_images_are_gone_and_one_line_is_said(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    target = tmp_path / "m.onnx"
    weights = photos_run.run / "weights" / "best.safetensors"
    code, out, err = evenhand(capsys, monkeypatch, "export", weights, "--onnx", target)
    assert (code, err) == (0, "")
    assert out.startswith(f"{target}: on 64 noise images (the run's own are missing) of ")
    assert out.count("\n") == 1
    assert target.is_file()


def test_a_file_that_is_replaced_is_named(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    target = tmp_path / "m.onnx"

    def write(_: Path, path: Path, **__: object) -> export.Check:
        path.write_bytes(b"")
        return export.Check(1, True, {"cat": 0.0})

    monkeypatch.setattr(export, "export_onnx", write)
    for expected in ("", f"evenhand: replaced {target}\n"):
        code, _, err = evenhand(capsys, monkeypatch, "export", photos_run.run, "--onnx", target)
        assert (code, err) == (0, expected)


@pytest.mark.usefixtures("exported_before")
def test_a_difference_is_refused_and_leaves_no_file(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    monkeypatch.setattr(export, "MOST_DIFFERENT", -1.0)
    target = tmp_path / "new" / "m.onnx"
    result = evenhand(capsys, monkeypatch, "export", photos_run.run, "--onnx", target)
    assert_one_sentence(result, "differs from torch")
    assert list(target.parent.iterdir()) == []


@pytest.mark.usefixtures("extra")
def test_mistakes_are_one_sentence(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path) -> None:
    def refused(words: str, run: Path) -> None:
        command = ["export", run, "--onnx", tmp_path / "m.onnx"]
        assert_one_sentence(evenhand(capsys, monkeypatch, *command), words)

    refused("There is no run", tmp_path / "nowhere")
    unfinished = shutil.copytree(photos_run.run, tmp_path / "copy", ignore=shutil.ignore_patterns("last.*"))
    refused("not finished", Path(unfinished))
    (tmp_path / "w").write_bytes(b"no weights")
    refused("damaged", tmp_path / "w")
    assert not (tmp_path / "m.onnx").exists()


@pytest.mark.usefixtures("undrawn")
def test_what_was_followed_in_training_is_followed_after_it(
    capsys: Capture, monkeypatch: Patch, tmp_path: Path
) -> None:
    photos = draw(tmp_path / "elsewhere", {"cat": 12, "dog": 12})
    (tmp_path / "linked").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "linked" / name).symlink_to(photos / name)
    asked = (
        "--allow-outside",
        "--recipe",
        "small",
        "--objective",
        "cce",
        "--epochs",
        "1",
        "--out",
        tmp_path / "run",
        "--quiet",
    )
    for command in (
        ("train", tmp_path / "linked", *asked),
        ("evaluate", tmp_path / "run"),
        ("evaluate", tmp_path / "run", "--adjust", "auto"),
        ("export", tmp_path / "run", "--onnx", tmp_path / "x.onnx"),
    ):
        code, out, err = evenhand(capsys, monkeypatch, *command)
        assert code == 0, err
    assert "test images of 2 classes" in out, "noise only where the images are gone"
