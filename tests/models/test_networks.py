"""Networks by name: published sizes, stems, features, and a step of training for each."""

import copy

import pytest
import torch
import torchvision
from torch import nn

from evenhand.core.errors import EvenhandError
from evenhand.models.build import NAMES, build_model
from evenhand.models.zoo import fit_channels

# Weights with 1,000 classes, as torchvision's documentation lists them.
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
OWN = ("resnet8", "resnet32", "resnet32x4")
TORCHVISION = {"squeezenet": "squeezenet1_1", "resnext50": "resnext50_32x4d"}


def count(model: nn.Module) -> int:
    return sum(weights.numel() for weights in model.parameters())


def cifar_resnet_weights(blocks: int, width: int, classes: int) -> int:
    """Count the weights of He et al.'s network for CIFAR: 3x3 convolutions, two numbers a channel for each norm."""
    total, channels = 3 * width * 9 + 2 * width, width
    for stage in (width, 2 * width, 4 * width):
        for _ in range(blocks):
            total += 9 * channels * stage + 9 * stage * stage + 4 * stage
            channels = stage
    return total + channels * classes + classes


def test_the_list_of_names() -> None:
    assert set(NAMES) == {*PUBLISHED, *OWN}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    with torch.device("meta"):
        assert count(build_model(name, num_classes=1000, stem="imagenet")) == PUBLISHED[name]


@pytest.mark.parametrize(("name", "blocks", "width"), [("resnet8", 1, 16), ("resnet32", 5, 16), ("resnet32x4", 5, 64)])
def test_sizes_of_the_networks_for_small_images(name: str, blocks: int, width: int) -> None:
    assert count(build_model(name, num_classes=10)) == cifar_resnet_weights(blocks, width, 10)


@pytest.mark.parametrize("name", [*PUBLISHED, *OWN])
@pytest.mark.parametrize("size", [32, 64])
def test_a_step_of_training(name: str, size: int) -> None:
    torch.manual_seed(0)
    model = build_model(name, num_classes=3, image_size=size)
    loss = nn.functional.cross_entropy(model(torch.randn(2, 3, size, size)), torch.tensor([0, 2]))
    loss.backward()
    assert loss.isfinite()
    assert all(weights.grad is not None for weights in model.parameters())
    if size == 32:
        before = next(model.parameters()).detach().clone()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        assert not torch.equal(before, next(model.parameters()))


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in ("resnet101", "efficientnet_b7")])
def test_the_imagenet_stem_changes_nothing_inside(name: str) -> None:
    torch.manual_seed(0)
    ours = build_model(name, num_classes=1000, stem="imagenet").eval()
    theirs = getattr(torchvision.models, TORCHVISION.get(name, name))(weights=None).eval()
    theirs.load_state_dict(dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True)))
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))


@pytest.mark.parametrize("name", ["resnet34", "squeezenet", "densenet121", "efficientnet_b0", "resnet8"])
def test_the_small_stem_keeps_every_pixel(name: str) -> None:
    model = build_model(name, num_classes=2, image_size=32).eval()
    first = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    sizes = []
    first.register_forward_hook(lambda *hooked: sizes.append(hooked[2].shape[-1]))
    with torch.no_grad():
        model(torch.randn(1, 3, 32, 32))
    assert (model.stem, first.kernel_size, first.stride, sizes) == ("small", (3, 3), (1, 1), [32])


def test_the_stem_follows_the_image_size() -> None:
    with torch.device("meta"):
        assert build_model("resnet34", num_classes=2, image_size=96).stem == "small"
        assert build_model("resnet34", num_classes=2, image_size=97).stem == "imagenet"


@pytest.mark.parametrize("name", ["resnet8", "resnet34", "densenet121", "efficientnet_b0"])
def test_features_make_the_logits(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(name, num_classes=5, channels=1, image_size=28).eval()
    with torch.no_grad():
        logits, features = model(torch.randn(3, 1, 28, 28), with_features=True)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    assert features.shape == (3, model.num_features)
    torch.testing.assert_close(last(features), logits)


def test_copies_and_states() -> None:
    model = build_model("resnet8", num_classes=4, channels=2, image_size=16).eval()
    images = torch.randn(2, 2, 16, 16)
    other = build_model("resnet8", num_classes=4, channels=2, image_size=16).eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(other(images), model(images))
        torch.testing.assert_close(copy.deepcopy(model)(images), model(images))


def test_a_grey_image_looks_to_a_summed_kernel_as_its_copy_in_colour_to_the_whole() -> None:
    kernel, grey = torch.randn(8, 3, 3, 3), torch.randn(1, 1, 9, 9)
    response = nn.functional.conv2d(grey, fit_channels(kernel, 1))
    torch.testing.assert_close(response, nn.functional.conv2d(grey.expand(-1, 3, -1, -1), kernel), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "resnet43"}, "resnet34"),
        ({"name": "resnet8", "num_classes": 1}, "got 1"),
        ({"name": "resnet8", "channels": 0}, "got 0"),
        ({"name": "resnet8", "stem": "imagenet"}, "no imagenet stem"),
        ({"name": "resnet34", "stem": "small", "pretrained": True}, "imagenet stem"),
        ({"name": "timm:no_such_network"}, "timm"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(EvenhandError, match=words):
        build_model(**{"num_classes": 2, **arguments})  # type: ignore[arg-type]
