"""The networks are the published ones; only stem, channels and classifier differ, and those are right."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torchvision.models import get_model

from evenhand.models.build import NAMES, build_model

from .networks import CIFAR, FAMILIES, LARGE, NINE, ORIGINALS, convolutions, count, each_network, images, last_layer

PUBLISHED = {
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "squeezenet": 1_235_496,
    "resnext50": 25_028_904,
    "densenet121": 7_978_856,
    "efficientnet_b0": 5_288_548,
    "efficientnet_b1": 7_794_184,
    "efficientnet_b7": 66_347_960,
}


@pytest.mark.parametrize("name", NINE)
def test_weights_of_the_imagenet_configuration(name):
    with torch.device("meta"):
        assert count(build_model(name, num_classes=1000, stem="imagenet")) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("name", "blocks", "width", "published"),
    [("resnet8", 1, 16, None), ("resnet32", 5, 16, 0.46e6), ("resnet32x4", 5, 64, 7.4e6)],
)
def test_weights_of_the_cifar_networks(name, blocks, width, published):
    kernels = width * 3 * 9
    norms = 2 * width
    for stage, (before, after) in enumerate([(width, width), (width, 2 * width), (2 * width, 4 * width)]):
        kernels += 9 * after * (before + (2 * blocks - 1) * after)
        norms += 2 * blocks * 2 * after
        assert after == width * 2**stage
    model = build_model(name, num_classes=10)
    assert count(model) == kernels + norms + 10 * (4 * width + 1)
    assert published is None or count(model) == pytest.approx(published, rel=0.01)
    assert len(convolutions(model)) + 1 == 6 * blocks + 2


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in NINE])
def test_with_the_imagenet_stem_it_is_torchvisions_network(name):
    """The same seed gives the same weights, and those the same logits."""
    torch.manual_seed(0)
    theirs = get_model(ORIGINALS[name], num_classes=5).eval()
    torch.manual_seed(0)
    ours = build_model(name, num_classes=5, stem="imagenet").eval()
    with torch.no_grad():
        assert_close(ours(images(64)), theirs(images(64)), rtol=0, atol=0)


def sizes_seen(model: nn.Module, size: int) -> tuple[int, int]:
    """Return the sides of what the first convolution returns and of what the second one is given."""
    sides = []
    first, second = convolutions(model)[:2]
    first.register_forward_hook(lambda _module, _arguments, output: sides.append(output.shape[-1]))
    second.register_forward_pre_hook(lambda _module, arguments: sides.append(arguments[0].shape[-1]))
    with torch.no_grad():
        model.eval()(images(size, number=1))
    return sides[0], sides[1]


@each_network
def test_the_small_stem_keeps_the_image_size(name):
    model = build_model(name, num_classes=2, stem="small")
    assert model.stem == "small"
    assert sizes_seen(model, 32) == (32, 32)
    assert convolutions(model)[0].kernel_size == (3, 3)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("resnet34", (32, 16)),
        ("resnext50", (32, 16)),
        ("squeezenet", (31, 15)),
        ("densenet121", (32, 16)),
        ("efficientnet_b0", (32, 32)),
    ],
)
@pytest.mark.parametrize("channels", [3, 1])
def test_the_imagenet_stem_shrinks_it(name, sides, channels):
    model = build_model(name, num_classes=2, channels=channels, stem="imagenet")
    assert model.stem == "imagenet"
    if channels == 3:
        assert sizes_seen(model, 64) == sides
    with torch.device("meta"):
        original = convolutions(get_model(ORIGINALS[name]))[0]
    first = convolutions(model)[0]
    assert first.in_channels == channels
    for setting in ("out_channels", "kernel_size", "stride", "padding"):
        assert getattr(first, setting) == getattr(original, setting)


@pytest.mark.parametrize("name", ["resnet34", "squeezenet", "densenet121", "efficientnet_b0"])
def test_auto_chooses_by_image_size(name):
    with torch.device("meta"):
        assert build_model(name, num_classes=2).stem == "small"
        assert build_model(name, num_classes=2, image_size=96).stem == "small"
        assert build_model(name, num_classes=2, image_size=97).stem == "imagenet"
        assert build_model(name, num_classes=2, image_size=97, stem="small").stem == "small"


@pytest.mark.parametrize("channels", [3, 8])
@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("resnet8", lambda channels: math.sqrt(2 / (9 * channels))),
        ("resnet34", lambda _channels: math.sqrt(2 / (9 * 64))),
        ("squeezenet", lambda channels: math.sqrt(2 / (9 * channels))),
        ("densenet121", lambda channels: math.sqrt(2 / (9 * channels))),
        ("efficientnet_b0", lambda _channels: math.sqrt(2 / (9 * 32))),
    ],
)
def test_a_new_first_kernel_starts_as_its_family_does(name, deviation, channels):
    torch.manual_seed(0)
    first = convolutions(build_model(name, num_classes=2, channels=channels, stem="small"))[0]
    assert first.weight.std().item() == pytest.approx(deviation(channels), rel=0.15)
    assert first.bias is None or not first.bias.any()
    assert (first.bias is not None) == (name == "squeezenet")


@each_network
def test_features_are_what_the_last_layer_is_given(name):
    """In training mode too, where dropout has been at them."""
    torch.manual_seed(0)
    model = build_model(name, num_classes=5)
    seen = []
    last = last_layer(model)
    last.register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    with torch.no_grad():
        logits, features = model(images(), with_features=True)
        assert logits.shape == (2, 5)
        assert features.shape == (2, model.num_features)
        if name == "squeezenet":
            assert_close(features, seen[0].mean((2, 3)))
            assert_close(logits, last(seen[0]).relu().mean((2, 3)))
        else:
            assert_close(features, seen[0], rtol=0, atol=0)
            assert_close(logits, features @ last.weight.T + last.bias)


@pytest.mark.parametrize("name", FAMILIES)
def test_asking_for_features_does_not_change_the_logits(name):
    model = build_model(name, num_classes=5).eval()
    with torch.no_grad():
        assert_close(model(images(), with_features=True)[0], model(images()), rtol=0, atol=0)


@each_network
def test_grey_images_of_28_px(name):
    model = build_model(name, num_classes=10, channels=1, image_size=28).eval()
    with torch.no_grad():
        logits = model(images(28, channels=1))
    assert logits.shape == (2, 10)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("channels", "num_classes"), [(2, 37), (13, 2)])
@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_any_channels_and_any_classes(name, channels, num_classes, stem):
    if name in CIFAR and stem == "imagenet":
        pytest.skip("has none")
    model = build_model(name, num_classes=num_classes, channels=channels, stem=stem).eval()
    with torch.no_grad():
        assert model(images(channels=channels)).shape == (2, num_classes)


def test_images_need_not_be_square():
    for name in FAMILIES:
        model = build_model(name, num_classes=4, image_size=24).eval()
        with torch.no_grad():
            assert model(torch.randn(2, 3, 24, 41)).shape == (2, 4)


def test_shortcuts_skip_positions_and_fill_channels_with_zeros():
    """Where a block adds nothing, its shortcut alone comes out."""
    block = build_model("resnet8", num_classes=2).network.stages[1][0].eval()
    nn.init.zeros_(block.norm2.weight)
    maps = torch.rand(2, 16, 7, 8)
    with torch.no_grad():
        out = block(maps)
    assert out.shape == (2, 32, 4, 4)
    assert_close(out[:, 8:24], maps[:, :, ::2, ::2])
    assert not out[:, :8].any()
    assert not out[:, 24:].any()


def test_every_name_is_tested():
    assert set(NAMES) - {"lite0", "lite1", "lite2"} == set(CIFAR + NINE)
