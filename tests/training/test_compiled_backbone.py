"""Features by a compiled graph against those of the plain network in torch."""

import numpy as np
import pytest
import torch

from evenhand.data.table import ArrayPixels
from evenhand.models.backbone import Backbone, load_backbone
from evenhand.models.build import build_model
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights
from evenhand.training import compiled_backbone, features
from evenhand.training.compiled_backbone import compile_backbone
from evenhand.training.features import extract_features

SMALL = InputTransform(resize_size=64, crop_size=64)
NETWORKS = ("lite0", "resnet18", "mobilenet_v3_small", "efficientnet_b0", "squeezenet", "shufflenet_v2_x0_5")


def backbone_of(name: str) -> Backbone:
    if name == "lite0":
        return Backbone(load_backbone(name).network, SMALL, Weights(None, "0" * 64, "the package"))
    torch.manual_seed(0)
    network = build_model(name, num_classes=2, image_size=64, stem="imagenet")
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():  # statistics of real activations: with the initial ones features vanish in deep networks
        network.train()(torch.randn(16, 3, 64, 64))
    return Backbone(network, SMALL, Weights(None, "0" * 64, "random"))


@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_those_of_torch(name):
    backbone = backbone_of(name)
    images = torch.randn(3, 3, 64, 64)
    compiled = compile_backbone(backbone, images)
    assert compiled is not backbone
    other = torch.randn(5, 3, 64, 64)  # another batch size
    with torch.inference_mode():
        expected = backbone(other)
    assert expected.std() > 0.01
    assert torch.allclose(compiled(other), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "size"), [("lite0", 83), ("lite1", 240)])
def test_maps_of_odd_sizes(name, size):
    backbone = Backbone(load_backbone(name).classifier, SMALL, Weights(None, "0" * 64, "the package"))
    images = torch.randn(2, 3, size, size)
    compiled = compile_backbone(backbone, images)
    assert compiled is not backbone
    with torch.inference_mode():
        assert torch.allclose(compiled(images), backbone(images), rtol=1e-4, atol=1e-4)


def test_a_graph_with_other_features_is_not_used(monkeypatch):
    backbone, images = backbone_of("resnet18"), torch.randn(2, 3, 64, 64)
    monkeypatch.setattr(compiled_backbone._Graph, "__call__", lambda _, images: backbone(images) + 3e-3)
    assert compile_backbone(backbone, images) is backbone


def test_a_network_that_cannot_be_exported_is_used_as_it_is(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("unsupported operator")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    backbone = backbone_of("resnet18")
    assert compile_backbone(backbone, torch.randn(2, 3, 64, 64)) is backbone


def test_without_onnxruntime_torch_computes(monkeypatch):
    def no_runtime(name):
        raise ImportError(name)

    monkeypatch.setattr(compiled_backbone, "import_module", no_runtime)
    backbone = backbone_of("resnet18")
    assert compile_backbone(backbone, torch.randn(2, 3, 64, 64)) is backbone


def test_extraction_uses_the_graph_for_many_images_only(monkeypatch, tmp_path):
    made = []
    monkeypatch.setattr(features, "compile_backbone", lambda backbone, _: made.append(backbone) or backbone)
    pixels = np.random.default_rng(0).integers(0, 256, (70, 64, 64, 3), dtype=np.uint8)
    backbone = backbone_of("mobilenet_v3_small")
    few = extract_features(ArrayPixels(pixels[:10]), backbone, cache=tmp_path / "few").values
    assert not made
    many = extract_features(ArrayPixels(pixels), backbone, cache=tmp_path / "many").values
    assert made == [backbone]
    assert np.allclose(few, many[:10], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("stored", [1, 40, 69, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 64))])
def test_an_extraction_that_goes_on_gives_the_same_features_bit_for_bit(tmp_path, stored):
    """Whether few or many images are left: torch and the graph differ in the last digit of float16."""
    pixels = np.random.default_rng(0).integers(0, 256, (70, 64, 64, 3), dtype=np.uint8)
    backbone = backbone_of("lite0")
    whole = extract_features(ArrayPixels(pixels), backbone, cache=tmp_path / "whole").values
    store = next((tmp_path / "whole").iterdir())
    parts = [dict(np.load(path)) for path in sorted(store.glob("*.npz"))]
    for path in store.glob("*.npz"):
        path.unlink()
    kept = {name: np.concatenate([part[name] for part in parts])[:stored] for name in ("digests", "features")}
    np.savez(store / "part.npz", key=parts[0]["key"], **kept)
    np.testing.assert_array_equal(
        extract_features(ArrayPixels(pixels), backbone, cache=tmp_path / "whole").values, whole
    )


def test_extracted_features_are_those_of_torch(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (70, 64, 64, 3), dtype=np.uint8)
    backbone = backbone_of("lite0")
    found = extract_features(ArrayPixels(pixels), backbone, cache=tmp_path).values[:, 0]
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    images = (images - torch.tensor(SMALL.mean)[:, None, None]) / torch.tensor(SMALL.std)[:, None, None]
    with torch.inference_mode():
        expected = backbone(images).half().numpy()
    assert np.allclose(found, expected, rtol=2e-3, atol=1e-4)  # float16 has 11 bits
