"""Published files of the ResNet for CIFAR, whose names differ from ours, give the network that was published."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Preprocessing
from evenhand.data.sources import load_source
from evenhand.metrics.classification import accuracy, class_recall, confusion_matrix
from evenhand.metrics.priors import subtract_prior
from evenhand.models.build import build_model
from evenhand.models.cifar import fill_head
from evenhand.models.classifier import Classifier
from evenhand.models.heads import replace_head
from evenhand.training.card import Card
from evenhand.training.predict import TrainedModel
from tests.real_data import DATA, needs, needs_cifar10
from tests.training.runs import tiny, trainer_of

CHECKPOINT = "checkpoints/imbalanced-dl_resnet32_cifar10-lt100.pth.tar"
COUNTS = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]


def reference(state: dict[str, Tensor], images: Tensor) -> Tensor:
    """ResNet-32 with option A, written down from its paper, by the names in the file of imbalanced-DL."""

    def layer(maps: Tensor, block: str, number: int, stride: int = 1) -> Tensor:
        maps = F.conv2d(maps, state[f"{block}conv{number}.weight"], stride=stride, padding=1)
        mean, var, scale, shift = (
            state[f"{block}bn{number}.{name}"].reshape(1, -1, 1, 1)
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        return (maps - mean) / torch.sqrt(var + 1e-5) * scale + shift

    maps = F.relu(layer(images, "backbone.", 1))
    for stage in (1, 2, 3):
        for block in range(5):
            name, halves = f"backbone.layer{stage}.{block}.", stage > 1 and block == 0
            change = layer(F.relu(layer(maps, name, 1, 2 if halves else 1)), name, 2)
            if halves:
                zeros = torch.zeros_like(change[:, : change.shape[1] // 4])
                maps = torch.cat([zeros, maps[:, :, ::2, ::2], zeros], 1)
            maps = F.relu(maps + change)
    return maps.mean((2, 3)) @ state["classifier.weight"].T


def load_published() -> Classifier:
    model = build_model("resnet32", num_classes=10, pretrained=DATA / CHECKPOINT)
    fill_head(model, DATA / CHECKPOINT)
    return model.eval()


@needs(CHECKPOINT)
def test_logits_are_those_of_an_independent_network() -> None:
    state = torch.load(DATA / CHECKPOINT, map_location="cpu", weights_only=True)["state_dict"]
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = load_published()(images)
        expected = reference({key: value.double() for key, value in state.items()}, images.double())
    assert expected.std() > 1
    assert_close(logits.double(), expected, atol=1e-5, rtol=1e-5)


@needs(CHECKPOINT)
@needs_cifar10
def test_cifar10_is_classified_as_published() -> None:
    """The file states its accuracy itself, as `best_acc1`; logits are adjusted by the shares of CIFAR-10-LT 100."""
    seen = Preprocessing(crop_size=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010))
    table = load_source("cifar10", data_root=DATA)
    card = Card("resnet32", "small", table.class_names, channels=3, image_size=32, preprocessing=seen)
    model = TrainedModel(load_published().to(memory_format=torch.channels_last), card, torch.device("cpu"))
    test = table.rows("test")
    logits = np.log(model.predict(table.pixels.images[test], batch_size=500).probabilities)
    confusion = confusion_matrix(table.labels[test], logits.argmax(1), 10)
    assert accuracy(confusion) == pytest.approx(0.7192, abs=1e-9)
    recalls = [0.964, 0.984, 0.847, 0.790, 0.807, 0.603, 0.669, 0.607, 0.434, 0.487]
    assert class_recall(confusion).tolist() == pytest.approx(recalls, abs=1e-9)
    adjusted = confusion_matrix(table.labels[test], subtract_prior(logits, COUNTS).argmax(1), 10)
    assert accuracy(adjusted) == pytest.approx(0.7808, abs=1e-9)


def ldam_drw(model: Classifier) -> dict[str, Tensor]:
    """Return the weights of a network by the names of LDAM-DRW, trained on several devices."""
    state = {}
    for key, value in model.state_dict().items():
        name = key.removeprefix("network.").replace("head.", "linear.").replace("norm", "bn")
        name = re.sub(r"^(conv|bn)\.", r"\g<1>1.", name)
        name = re.sub(r"^stages\.(\d)", lambda found: f"layer{int(found[1]) + 1}", name)
        state[f"module.{name}"] = value
    return state


def small(head: str = "linear") -> Classifier:
    """Return what is trained on digits in these tests, with random weights."""
    torch.manual_seed(3)
    model = replace_head(build_model("resnet8", num_classes=10, channels=1, image_size=8), head)
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            value.uniform_(0.1, 1)
    return model


def begun(folder: Path, state: dict[str, Tensor], *settings: str) -> dict[str, Tensor]:
    """Return the weights that a run begins with which starts from this state dict."""
    torch.save({"epoch": 200, "state_dict": state}, folder / "published.pth.tar")
    start = f"start.weights={folder / 'published.pth.tar'}"
    return dict(trainer_of(tiny(start, *settings), folder / "run").model.state_dict())


@pytest.mark.parametrize("load", ["all", "body"])
def test_a_run_begins_with_a_published_file(tmp_path: Path, load: str) -> None:
    model = small()
    found = begun(tmp_path, ldam_drw(model), f"start.load={load}")
    for key, value in model.state_dict().items():
        assert torch.equal(found[key], value) == (load == "all" or not key.startswith("network.head.")), key


def test_a_missing_bias_is_zero(tmp_path: Path) -> None:
    state = ldam_drw(small())
    del state["module.linear.bias"]
    found = begun(tmp_path, state)
    assert torch.equal(found["network.head.weight"], state["module.linear.weight"])
    assert not found["network.head.bias"].any()


def test_a_normalised_last_layer_goes_into_a_cosine_head_only(tmp_path: Path) -> None:
    state = ldam_drw(small("cosine"))
    state["module.linear.weight"] = state["module.linear.weight"].T.contiguous()  # as LDAM-DRW keeps it
    found = begun(tmp_path, state, "objective=ldam")
    assert torch.equal(found["network.head.weight"], state["module.linear.weight"].T)
    with pytest.raises(
        EvenhandError, match=r"a last layer of 64 x 10, but this run needs one of 10 x 64 .* start\.load=body"
    ):
        begun(tmp_path, state)
    begun(tmp_path, state, "start.load=body")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer1.0.bn1.weight": "layer1.0.gn1.weight"}, "the file lacks 'stages.0.0.norm1.weight'."),
        ({"layer1.0.bn1.weight": None}, "the file lacks 'stages.0.0.norm1.weight'."),
        ({None: "layer4.0.conv1.weight"}, "the file has an unknown 'layer4.0.conv1.weight'."),
        ({None: "layer2.0.shortcut.0.weight"}, "the file has an unknown 'stages.1.0.shortcut.0.weight'."),
    ],
)
def test_a_file_of_another_network_is_refused(
    tmp_path: Path, change: dict[str | None, str | None], reason: str
) -> None:
    state = ldam_drw(small())
    for old, new in change.items():
        value = torch.zeros(1) if old is None else state.pop(f"module.{old}")
        if new is not None:
            state[f"module.{new}"] = value
    with pytest.raises(EvenhandError) as caught:
        begun(tmp_path, state)
    assert str(caught.value) == (f"The weights in {tmp_path / 'published.pth.tar'} belong to another network: {reason}")


def test_a_file_without_a_last_layer_fills_the_body(tmp_path: Path) -> None:
    state = {key: value for key, value in ldam_drw(small()).items() if "linear" not in key}
    with pytest.raises(EvenhandError, match=r"has no last layer, .*; set start\.load=body"):
        begun(tmp_path, state)
    begun(tmp_path, state, "start.load=body")
