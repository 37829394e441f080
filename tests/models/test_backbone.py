"""Backbones: every network of torchvision gives features, and weights are found, named and refused."""

import hashlib
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.testing import assert_close
from torchvision.models import get_model, get_model_weights

from evenhand.core.errors import EvenhandError
from evenhand.models._zoo import torchvision_names
from evenhand.models.backbone import find_weights, input_transform, load_backbone
from evenhand.models.build import build_model, list_models
from evenhand.models.transform import InputTransform

from .networks import images, last_layer

# The smallest network of each kind that torchvision has and the paper has not.
OTHERS = (
    "alexnet",
    "convnext_tiny",
    "googlenet",
    "inception_v3",
    "maxvit_t",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "swin_t",
    "vit_b_32",
)
QUICK = ("googlenet", "mobilenet_v3_small", "resnet18")


@pytest.fixture(autouse=True)
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give torch an empty folder of weights of its own."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def save_official(name: str, folder: Path) -> tuple[torch.nn.Module, Path]:
    """Put random weights where the official ones would be, in the layout of torchvision's file."""
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    network = get_model(name, **options)  # both of these with the heads in their middle, as in the file
    file = folder / Path(get_model_weights(name).DEFAULT.url).name
    torch.save(network.state_dict(), file)
    return network.eval(), file


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in OTHERS]
)
def test_features_are_what_enters_the_last_layer(name, checkpoints):
    theirs, file = save_official(name, checkpoints)
    backbone = load_backbone(name)
    assert backbone.weights.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert backbone.weights.source == get_model_weights(name).DEFAULT.url
    if name in ("googlenet", "inception_v3"):
        theirs.transform_input = True  # torchvision sets it where it loads official weights
    seen = []
    last_layer(theirs).register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    batch = images(backbone.transform.crop_size)
    with torch.no_grad():
        theirs(batch)
        features = backbone(batch)
    assert features.shape == (2, backbone.num_features)
    assert not features.requires_grad
    assert_close(features, seen[0].mean((2, 3)) if name == "squeezenet1_0" else seen[0])


@pytest.mark.parametrize("name", torchvision_names())
def test_preprocessing_is_that_of_torchvision(name):
    ours, theirs = input_transform(name), get_model_weights(name).DEFAULT.transforms()
    assert (ours.resize_size, ours.crop_size) == (theirs.resize_size[0], theirs.crop_size[0])
    assert (ours.interpolation, ours.resize_rule) == (theirs.interpolation.value, "shorter")
    assert (list(ours.mean), list(ours.std)) == (list(theirs.mean), list(theirs.std))


def test_the_list_holds_torchvisions_names_and_ours():
    assert {"resnet8", "lite0", "resnet18", "squeezenet", "vit_b_16"} <= set(list_models())
    assert set(list_models()) - set(list_models(pretrained=True)) == {"resnet8", "resnet32", "resnet32x4"}
    assert len(list_models()) == len(set(list_models()))


@pytest.mark.parametrize("kind", ["safetensors", "pth", "nested", "parallel", "run"])
def test_a_local_file_gives_the_same_features(kind, tmp_path, checkpoints):
    theirs, official = save_official("resnet18", checkpoints)
    file = tmp_path / f"mine.{'safetensors' if kind in ('safetensors', 'run') else 'pth'}"
    state = theirs.state_dict()
    if kind == "safetensors":
        save_file(state, file)
    elif kind == "run":
        run = build_model("resnet18", num_classes=5, image_size=224, pretrained=True)
        save_file(run.state_dict(), file)
    elif kind == "nested":
        torch.save({"state_dict": state, "epoch": 3}, file)
    elif kind == "parallel":
        torch.save({f"module.{key}": value for key, value in state.items()}, file)
    else:
        shutil.copy(official, file)
    ours = load_backbone("resnet18", file)
    assert ours.weights.source == str(file)
    assert ours.weights.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    with torch.no_grad():
        assert_close(ours(images(64)), load_backbone("resnet18")(images(64)), rtol=0, atol=0)


class Malicious:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("damage", ["missing", "other network", "cut", "text", "list", "empty", "code"])
def test_a_file_of_no_use_is_refused_in_one_sentence(damage, tmp_path):
    file = tmp_path / "mine.pth"
    torch.save(get_model("mobilenet_v3_small" if damage == "other network" else "resnet18").state_dict(), file)
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    elif damage == "text":
        file.write_text("<html>not found</html>")
    elif damage in ("list", "empty", "code"):
        torch.save({"list": [1, 2], "empty": {}, "code": {"a": Malicious(tmp_path / "ran")}}[damage], file)
    with pytest.raises(EvenhandError) as caught:
        load_backbone("resnet18", file)
    text = str(caught.value)
    assert str(file) in text
    assert text.endswith(".")
    assert "\n" not in text
    assert ("another network" in text) == (damage == "other network")
    assert not (tmp_path / "ran").exists()


def test_weights_that_cannot_be_fetched_are_told_with_address_and_folder(tmp_path, checkpoints, monkeypatch):
    url = (tmp_path / "nowhere" / "resnet18-f37072fd.pth").as_uri()
    monkeypatch.setattr(get_model_weights("resnet18").DEFAULT.value, "url", url)
    with pytest.raises(EvenhandError) as caught:
        find_weights("resnet18")
    text = str(caught.value)
    assert f"download {url} yourself and put the file into {checkpoints}." in text


@pytest.mark.parametrize("ask", [find_weights, input_transform, load_backbone])
def test_networks_without_pretrained_weights_are_refused(ask):
    with pytest.raises(EvenhandError, match="no pretrained weights for resnet8; choose"):
        ask("resnet8")
    with pytest.raises(EvenhandError, match="no network 'lite7'; did you mean lite"):
        ask("lite7")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("vit_b_16", 96, "vit_b_16 takes images of 224 px and no others, got 96"),
        ("maxvit_t", 256, "maxvit_t takes images of 224 px and no others, got 256"),
        ("alexnet", 32, "takes images of 63 px or more, got 32; enlarge them"),
    ],
)
def test_images_that_do_not_fit_are_refused(name, size, message):
    with pytest.raises(EvenhandError, match=message):
        build_model(name, num_classes=3, image_size=size)


def test_other_networks_keep_their_stem():
    assert build_model("mobilenet_v3_small", num_classes=3, image_size=32).stem == "imagenet"
    assert build_model("resnet18", num_classes=3, image_size=32).stem == "small"
    with pytest.raises(EvenhandError, match="mobilenet_v3_small has no small stem"):
        build_model("mobilenet_v3_small", num_classes=3, stem="small")


def test_a_transform_is_named_by_all_that_it_does():
    base = InputTransform(resize_size=256, crop_size=224)
    others = [
        InputTransform(resize_size=257, crop_size=224),
        InputTransform(resize_size=256, crop_size=223),
        InputTransform(resize_size=256, crop_size=224, interpolation="bicubic"),
        InputTransform(resize_size=256, crop_size=224, resize_rule="stretch"),
        InputTransform(resize_size=256, crop_size=224, mean=(0.5, 0.5, 0.5)),
        InputTransform(resize_size=256, crop_size=224, std=(0.5, 0.5, 0.5)),
    ]
    prints = {each.fingerprint() for each in [base, *others]}
    assert len(prints) == 7
    with pytest.raises(EvenhandError, match="from 1 to the resize size of 200, got 224"):
        InputTransform(resize_size=200, crop_size=224)
