"""A trained model loaded and put to work."""

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.special import softmax

import evenhand
from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Preprocessing
from evenhand.data.decode import read_image
from evenhand.metrics.predictions import load_predictions
from evenhand.runs.run import Run
from evenhand.training.checkpoint import Card, load_weights, save_weights
from evenhand.training.predict import TrainedModel, load, selected_weights
from evenhand.training.run import train_run
from tests import trained
from tests.trained import Trained


@pytest.fixture(scope="module")
def photos_run(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return trained.make(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def model(photos_run: Trained) -> TrainedModel:
    return evenhand.load(photos_run.run)


def test_predictions_are_those_of_training(photos_run: Trained, model: TrainedModel) -> None:
    known = load_predictions(photos_run.run / "predictions.npz")
    paths = [photos_run.photos / name for name in photos_run.ids()]
    probabilities = model.predict(paths, batch_size=5).probabilities
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities, softmax(known.logits, axis=1), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
    assert model.class_names == known.class_names
    assert not model.network.training


def test_one_image_alone_is_like_one_among_many(photos_run: Trained, model: TrainedModel) -> None:
    paths = [str(photos_run.photos / name) for name in photos_run.ids()]
    together = model.predict(paths).probabilities
    np.testing.assert_allclose(model.predict(paths[3]), together[3:4], atol=1e-5)


def test_arrays_are_seen_as_files_are(photos_run: Trained, model: TrainedModel) -> None:
    paths = [photos_run.photos / name for name in photos_run.ids()[:4]]
    arrays = [read_image(path) for path in paths]
    np.testing.assert_array_equal(model.predict(arrays), model.predict(paths))
    np.testing.assert_array_equal(model.predict(arrays[0]), model.predict(paths[:1]))
    equal = np.stack([arrays[0], arrays[0][::-1]])
    np.testing.assert_array_equal(model.predict(equal).probabilities[:1], model.predict(list(equal)).probabilities[:1])


def test_grey_images_for_a_network_of_colours(model: TrainedModel, tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (30, 20), dtype=np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    expected = model.predict(tmp_path / "grey.png")
    np.testing.assert_array_equal(model.predict([grey]), expected)
    np.testing.assert_array_equal(model.predict([grey[:, :, None]]), expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_stretching_is_part_of_the_card(tmp_path: Path, channels: int) -> None:
    preprocessing = Preprocessing(crop_size=10, mean=(0.5,) * channels, std=(0.25,) * channels)
    card = Card("resnet8", "small", ("a", "b"), channels, 12, preprocessing, stretch=True)
    torch.manual_seed(0)
    save_weights(tmp_path / "w.safetensors", card.build(), card)
    model = load(tmp_path / "w.safetensors")
    wide = np.random.default_rng(0).integers(0, 256, (9, 400, 3), dtype=np.uint8)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert model.read(tmp_path / "wide.png").shape == (12, 12, channels)
    np.testing.assert_array_equal(model.read(wide), model.read(tmp_path / "wide.png"))


def test_the_centre_is_cut(model: TrainedModel) -> None:
    image = np.arange(16 * 20 * 3).reshape(16, 20, 3).astype(np.uint8)
    np.testing.assert_array_equal(model.cut(image), image[:, 2:18])


def test_best_or_last_as_the_run_selected(photos_run: Trained, tmp_path: Path) -> None:
    assert selected_weights(photos_run.run).name == "best.safetensors"
    last = train_run(trained.config(photos_run.photos, select="last", epochs=1), tmp_path / "last").path
    assert selected_weights(last).name == "last.safetensors"
    known = load_predictions(last / "predictions.npz")
    paths = [photos_run.photos / str(name) for name in known.ids]
    np.testing.assert_allclose(load(last).predict(paths), softmax(known.logits, axis=1), atol=1e-5)


def test_a_file_of_weights_needs_nothing_else(photos_run: Trained, model: TrainedModel, tmp_path: Path) -> None:
    alone = shutil.copy(photos_run.run / "weights" / "best.safetensors", tmp_path / "model.safetensors")
    path = photos_run.photos / photos_run.ids()[0]
    np.testing.assert_array_equal(load(alone, device="cpu").predict(path), model.predict(path))


def test_bad_files_are_named_or_skipped(
    photos_run: Trained, model: TrainedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = photos_run.photos / photos_run.ids()[0]
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    with pytest.raises(EvenhandError, match=r"bad\.png: it is not an image.*--skip-bad"):
        model.predict([good, bad])
    with pytest.raises(EvenhandError, match=r"^2 images cannot be read: .*bad\.png .*missing\.png"):
        model.predict([bad, good, tmp_path / "missing.png"])
    lost = [str(tmp_path / name) for name in ("1.png", "2.png")]
    for given, sentence in ((lost[:1], "There is no file {}."), (lost, "There are no files {}, {}.")):
        with pytest.raises(EvenhandError, match=f"^{re.escape(sentence.format(*map(repr, given)))}$"):
            model.predict([good, *given])
    with caplog.at_level(logging.WARNING, "evenhand"):
        rows = model.predict([bad, good, bad, good], batch_size=3, skip_bad=True).probabilities
    assert "2 of 4 images" in caplog.text
    assert "bad.png" in caplog.text
    assert np.isnan(rows[[0, 2]]).all()
    np.testing.assert_allclose(rows[[1, 3]], model.predict([good, good]), atol=1e-6)
    unread = model.predict([bad], skip_bad=True)
    assert np.isnan(unread.probabilities).all()
    assert (unread.labels, unread.predicted.tolist()) == ([None], [-1])


def test_a_stream_never_reads_far_ahead(photos_run: Trained, model: TrainedModel) -> None:
    path, taken = photos_run.photos / photos_run.ids()[0], 0

    def paths() -> Iterator[Path]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield path

    answers = model.stream(paths(), batch_size=8)
    assert next(answers).probabilities.shape == (8, 3)
    assert taken == 16
    answers.close()
    assert model.predict([]).probabilities.shape == (0, 3)


def test_pictures_in_any_form_are_seen_alike(photos_run: Trained, model: TrainedModel) -> None:
    paths = [photos_run.photos / name for name in photos_run.ids()[:3]]
    pictures = [Image.open(path) for path in paths]
    arrays = [np.asarray(picture) for picture in pictures]
    tensors = [torch.from_numpy(array.copy()).permute(2, 0, 1) for array in arrays]
    expected = model.predict(arrays).probabilities
    for given in (pictures, tensors, [tensor.float() / 255 for tensor in tensors]):
        np.testing.assert_allclose(model.predict(given), expected, rtol=1e-5)
    np.testing.assert_allclose(model.predict(pictures[0]), expected[:1], rtol=1e-5)
    np.testing.assert_allclose(model.predict(tensors[0]), expected[:1], rtol=1e-5)
    np.testing.assert_allclose(load(Run(photos_run.run)).predict(arrays), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([np.zeros((4, 4, 3))], "float64"),
        ([np.zeros((4, 4, 2), np.uint8)], "(4, 4, 2)"),
        ([np.zeros((0, 4, 3), np.uint8)], "(0, 4, 3)"),
        (np.zeros((5, 4, 4), np.uint8), "(N, H, W, C)"),
        ([7], "got int"),
    ],
)
def test_what_is_no_image(model: TrainedModel, images: object, words: str) -> None:
    with pytest.raises(EvenhandError) as error:
        model.predict(images)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_no_such_run_and_an_unfinished_one(photos_run: Trained, tmp_path: Path) -> None:
    with pytest.raises(EvenhandError, match="There is no run"):
        load(tmp_path / "nowhere")
    with pytest.raises(EvenhandError, match=r"is no run: it has no config\.yaml"):
        load(tmp_path)
    run = Path(shutil.copytree(photos_run.run, tmp_path / "run"))
    with pytest.raises(EvenhandError, match=r"no config\.yaml; it holds 'run', give one of these\.\Z"):
        load(tmp_path)
    with pytest.raises(EvenhandError, match=re.escape(f"{tmp_path / 'runn'}; did you mean {run}?")):
        load(tmp_path / "runn")
    (run / "weights" / "last.safetensors").unlink()
    with pytest.raises(EvenhandError, match=r"not finished; continue it with .*--resume.*best\.safetensors"):
        load(run)
    assert load(run / "weights" / "best.safetensors").class_names
    shutil.rmtree(run / "weights")
    with pytest.raises(EvenhandError, match="not finished"):
        load(run)


def test_damaged_weights(photos_run: Trained, tmp_path: Path) -> None:
    content = (photos_run.run / "weights" / "best.safetensors").read_bytes()
    path = tmp_path / "w.safetensors"
    for damaged in (content[: len(content) // 2], b"", b"\x00" * 100):
        path.write_bytes(damaged)
        with pytest.raises(EvenhandError, match=r"w\.safetensors are damaged"):
            load(path)
    tensors, card = load_weights(photos_run.run / "weights" / "best.safetensors")
    network = card.build()
    network.load_state_dict({name: tensor * torch.nan for name, tensor in tensors.items()}, strict=False)
    save_weights(path, network, card)
    with pytest.raises(EvenhandError, match="NaN or infinite"):
        load(path).predict(np.zeros((4, 4, 3), np.uint8))


def test_a_device_that_is_not_there(photos_run: Trained) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(EvenhandError, match="Cannot compute on cuda"):
        load(photos_run.run, device="cuda")
    with pytest.raises(EvenhandError, match="Cannot compute on abacus"):
        load(photos_run.run, device="abacus")
    with pytest.raises(EvenhandError, match="batch size"):
        load(photos_run.run).predict([], batch_size=0)
