"""Networks side by side: trained on their joined features, and used as one network, with their real weights."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from safetensors.torch import load_file

from evenhand.core.errors import EvenhandError
from evenhand.data.table import ArrayPixels
from evenhand.models.backbone import find_weights, input_transform, load_backbone
from evenhand.models.build import build_model, require_model
from evenhand.models.classifier import BodyAndHead, Classifier
from evenhand.models.joined import JoinedBody, Member, members_of
from evenhand.runs.config import Config, make_config
from evenhand.runs.run import Run
from evenhand.training import features as extraction
from evenhand.training import frozen_body
from evenhand.training.compiled_backbone import compile_backbone
from evenhand.training.evaluate import evaluate_run
from evenhand.training.export import _export, export_onnx
from evenhand.training.features import extract_features
from evenhand.training.predict import load
from evenhand.training.run import resume_run, train_run
from tests.data.pictures import encode, noise, write
from tests.training.runs import Interrupted, StopAfter

NAME = "lite0+lite2"
SIZE = 64
"""Small squares: 64 px for lite2, 55 for lite0."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for k, (name, number) in enumerate({"red": 24, "green": 16, "blue": 12}.items()):
        for i in range(number):
            image = noise(100, 130, seed=1000 * k + i) // 2
            image[:, :, k] = np.minimum(image[:, :, k].astype(int) + 60, 255)
            write(root, {f"{name}/{i}.png": encode(image)})
    return root


def config_of(photos: Path) -> Config:
    settings = ("compute.precision=float32", "compute.accelerator=cpu")
    flags = {"data__source": str(photos), "data__image_size": SIZE, "epochs": 2, "batch_size": 16}
    return make_config("photos", settings=settings, model__name=NAME, **flags)


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_run(config_of(photos), tmp_path_factory.mktemp("runs") / "whole")


def test_a_run_keeps_its_last_layer_and_every_network_once(whole):
    assert all(name.startswith("network.head.") for name in load_file(whole.best_weights))
    weights = find_weights(NAME)
    assert whole.environment.weights == {"sha256": weights.sha256, "source": weights.source}
    for member in weights.members:
        kept = frozen_body.cache_root() / frozen_body.FOLDER / f"{member.sha256}.pth"
        assert kept.read_bytes() == member.file.read_bytes()


def test_loaded_it_sees_pictures_as_it_saw_features(whole, photos):
    predictions, model = whole.predictions, load(whole)
    found = model.predict([photos / name for name in predictions.ids])
    assert_allclose(found, np.exp(predictions.log_probabilities()), atol=5e-3)  # features are kept in float16
    assert np.array_equal(evaluate_run(whole.path).predictions.logits, predictions.logits)


def test_resumed_it_is_what_it_would_have_been(photos, whole, tmp_path):
    with pytest.raises(Interrupted):
        train_run(config_of(photos), tmp_path / "run", callback=StopAfter(4))
    run = resume_run(tmp_path / "run")
    assert np.array_equal(run.predictions.logits, whole.predictions.logits)


@pytest.mark.slow
def test_exported_it_is_one_graph_of_one_image(whole, photos, tmp_path):
    assert export_onnx(whole.path, tmp_path / "model.onnx").largest < 1e-3
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("images", [3, SIZE, SIZE])]
    model = load(whole)
    paths = [photos / name for name in whole.predictions.ids]
    pixels = np.stack([model.cut(model.read(path)) for path in paths])
    images = model.card.preprocessing.normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    logits = torch.from_numpy(session.run(None, {"images": images.contiguous().numpy()})[0])
    if model.adjustment is not None and "adjustment" not in str(session.get_modelmeta().custom_metadata_map):
        logits = logits + model.adjustment
    assert_allclose(logits.softmax(1), model.predict(paths), atol=1e-3)


def test_small_networks_become_one_graph_of_any_batch_size(tmp_path):
    """One of them gets its images smaller and normalised by other numbers, which is in the graph."""
    torch.manual_seed(0)
    given = input_transform("lite0").at(40)
    other = replace(given.at(32), mean=(0.2, 0.4, 0.6), std=(0.3, 0.2, 0.1))
    members = [
        Member(build_model("resnet8", num_classes=2, image_size=own.crop_size), own, given) for own in (given, other)
    ]
    features = sum(member.num_features for member in members)
    body = BodyAndHead(JoinedBody(members), torch.nn.Linear(features, 3))
    network = Classifier(body, name="resnet8+resnet8", stem="auto", num_features=features).eval()
    card = SimpleNamespace(model=network.name, channels=3, preprocessing=SimpleNamespace(crop_size=40))
    _export(SimpleNamespace(card=card, network=network, adjustment=None), tmp_path / "model.onnx")
    session, images = onnxruntime.InferenceSession(tmp_path / "model.onnx"), torch.rand(5, 3, 40, 40)
    with torch.inference_mode():
        assert_allclose(session.run(None, {"images": images.numpy()})[0], network(images), atol=1e-5)
    assert [each.name for each in session.get_inputs()] == ["images"]


def test_features_are_those_of_each_network_of_one_length():
    images = torch.rand(2, 3, 260, 260)
    backbone = load_backbone(NAME)
    with torch.inference_mode():
        found = backbone(images).split(1280, dim=1)
        alone = load_backbone("lite2")(images)
        small = F.interpolate(images, (224, 224), mode="bilinear", antialias=True)
        other = load_backbone("lite0")(small)
    assert_allclose(found[1], 16 / 2**0.5 * F.normalize(alone), atol=1e-4)
    assert_allclose(found[0], 16 / 2**0.5 * F.normalize(other), atol=1e-4)


def test_a_network_gets_its_own_normalisation(tmp_path):
    """A network of torchvision beside lite0, with random weights where the official ones would be."""
    torch.manual_seed(0)
    plain = build_model("resnet18", num_classes=2, image_size=224, stem="imagenet")
    file = tmp_path / "resnet18.pth"
    state = {key.removeprefix("network.body."): value for key, value in plain.state_dict().items()}
    torch.save({key: value for key, value in state.items() if not key.startswith("network.head")}, file)
    joined = load_backbone("lite0+resnet18", (None, file))
    lite, resnet = (input_transform(name) for name in ("lite0", "resnet18"))
    pixels = torch.rand(2, 3, 224, 224)

    def normalised(transform):
        return (pixels - torch.tensor(transform.mean).view(3, 1, 1)) / torch.tensor(transform.std).view(3, 1, 1)

    with torch.inference_mode():
        expected = plain.eval().features(normalised(resnet))
        found = joined(normalised(lite))[:, 1280:]
    assert_allclose(F.normalize(found), F.normalize(expected), atol=1e-5)


def test_a_network_of_timm_gets_its_own_size(tmp_path):
    """A transformer of timm beside lite0, with random weights in a file."""
    pytest.importorskip("timm")
    name = "timm:test_vit.r160_in1k"
    plain = build_model(name, num_classes=2, image_size=160).eval()
    state = {key.removeprefix("network."): value for key, value in plain.state_dict().items()}
    file = tmp_path / "vit.pth"
    torch.save({key: value for key, value in state.items() if not key.startswith("head.")}, file)
    joined, own = load_backbone(f"lite0+{name}", (None, file)), input_transform(name)
    assert joined.transform == input_transform("lite0")
    pixels = torch.rand(2, 3, 224, 224)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (own.mean, own.std))
    small = F.interpolate((pixels - mean) / std, (160, 160), mode="bilinear", antialias=True)
    given = (pixels - 127 / 255) / (128 / 255)
    with torch.inference_mode():
        found, expected = joined(given)[:, 1280:], plain.features(small)
    assert_allclose(F.normalize(found), F.normalize(expected), atol=1e-4)


def test_graphs_of_each_network_give_the_features_of_torch():
    backbone, images = load_backbone(NAME, image_size=96), torch.randn(3, 3, 96, 96)
    compiled = compile_backbone(backbone, images)
    assert all(compile_backbone(member, images) is not member for member in backbone.members())
    with torch.inference_mode():
        assert_allclose(compiled(images), backbone(images), rtol=1e-4, atol=1e-4)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The networks of each extraction."""
    seen: list[list[str]] = []
    compute = extraction._compute
    monkeypatch.setattr(
        extraction,
        "_compute",
        lambda work, *arguments, **options: (
            seen.append([member.name for member in work.members]),
            compute(work, *arguments, **options),
        )[1],
    )
    return seen


def test_each_network_has_its_own_cache(counted, tmp_path):
    pixels = ArrayPixels(np.random.default_rng(0).integers(0, 256, (3, 260, 280, 3), np.uint8))
    pair = extract_features(pixels, load_backbone(NAME), cache=tmp_path)
    assert np.array_equal(extract_features(pixels, load_backbone(NAME), cache=tmp_path).values, pair.values)
    alone = extract_features(pixels, load_backbone("lite2"), cache=tmp_path).values.astype(np.float64)
    third = extract_features(pixels, load_backbone("lite0+lite1+lite2"), cache=tmp_path).values
    assert counted == [["lite0", "lite2"], ["lite1"]]
    block = pair.values[..., 1280:].astype(np.float64)
    for one, other in ((block, alone), (third[..., 2560:].astype(np.float64), alone)):
        directions = [each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (one, other)]
        assert_allclose(*directions, atol=1e-3)
    assert_allclose(np.linalg.norm(third.astype(np.float64), axis=-1), 16, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lite0+lite9", "There is no network 'lite9'"),
        ("lite0+", "There is no network ''"),
        ("lite0+lite0", "has lite0 twice"),
        ("lite0+resnet8", "need pretrained weights, which resnet8 has not"),
    ],
)
def test_names_are_checked(name, message):
    with pytest.raises(EvenhandError, match=message):
        require_model(name)


def test_one_file_is_not_enough_for_two_networks(tmp_path):
    with pytest.raises(EvenhandError, match="2 networks"):
        load_backbone(NAME, tmp_path / "weights.pth")


def test_all_layers_can_be_trained_and_gray_images_taken():
    network = build_model(NAME, num_classes=3, channels=1, image_size=65)
    logits = network(torch.rand(2, 1, 65, 65))
    logits.sum().backward()
    assert logits.shape == (2, 3)
    assert [member.size for member in members_of(network)] == [56, 65]
    assert all(weight.grad is not None for weight in network.parameters())
