"""What cannot be built is refused in one sentence that says what to do."""

import subprocess
import sys

import pytest
import torch

from evenhand.core.errors import EvenhandError
from evenhand.models.build import NAMES, build_model

from .networks import each_network, images

REFUSED = [
    ({"num_classes": 1}, "at least 2 classes, got 1"),
    ({"num_classes": 0}, "at least 2 classes, got 0"),
    ({"channels": 0}, "at least 1 channel, got 0"),
    ({"image_size": 0}, "at least 1 px wide, got 0"),
    ({"stem": "large"}, "auto, small or imagenet, got 'large'"),
    ({"name": "resnet19"}, "no network 'resnet19'; did you mean resnet"),
    ({"name": "ResNet-34"}, "did you mean resnet34"),
    ({"name": "efficientnet-b0"}, "did you mean efficientnet_b0"),
    ({"name": "squeezenet1_2"}, "did you mean squeezenet"),
    ({"name": "qqqq"}, "known are resnet8, .*efficientnet_b7, lite0, lite1, lite2, and timm:NAME"),
    ({"name": ""}, "no network ''"),
    ({"name": "resnet32", "stem": "imagenet"}, "resnet32 has no imagenet stem"),
    ({"name": "resnet8", "pretrained": True}, "no pretrained weights for resnet8"),
    ({"name": "resnet50", "stem": "small", "pretrained": True}, "need the imagenet stem"),
    ({"name": "timm:resnet18", "stem": "small"}, "timm:resnet18 has its own stem.*got small"),
    ({"name": "timm:resnet18", "stem": "imagenet"}, "timm:resnet18 has its own stem.*got imagenet"),
    ({"name": "densenet121", "stem": "imagenet", "image_size": 28}, "takes images of 29 px or more, got 28"),
    ({"name": "densenet121", "image_size": 7}, "takes images of 8 px or more, got 7; enlarge them"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_one_sentence(arguments, message):
    with pytest.raises(EvenhandError, match=message) as caught:
        build_model(**{"name": "resnet34", "num_classes": 10, **arguments})
    assert "\n" not in str(caught.value)
    assert str(caught.value)[-1] in ".?"


def test_without_timm_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(EvenhandError, match=r"pip install 'timm>=1\.0\.3'"):
        build_model("timm:resnet18", num_classes=10)


@pytest.mark.parametrize(
    ("name", "stem", "smallest"),
    [
        ("squeezenet", "small", 4),
        ("squeezenet", "imagenet", 17),
        ("densenet121", "small", 8),
        ("densenet121", "imagenet", 29),
        ("resnet34", "imagenet", 1),
        ("efficientnet_b0", "imagenet", 1),
    ],
)
def test_the_smallest_images_are_where_the_network_itself_gives_up(name, stem, smallest):
    model = build_model(name, num_classes=2, stem=stem, image_size=smallest).eval()
    with torch.no_grad():
        model(images(smallest))
        if smallest > 1:
            with pytest.raises(RuntimeError):
                model(images(smallest - 1))
            with pytest.raises(EvenhandError, match=f"{smallest} px or more"):
                build_model(name, num_classes=2, stem=stem, image_size=smallest - 1)


@each_network
def test_name_and_stem_build_the_same_network_again(name):
    """A run keeps both, and must find its weights a home."""
    with torch.device("meta"):
        model = build_model(name, num_classes=3, image_size=200)
        again = build_model(model.name, num_classes=3, image_size=200, stem=model.stem)
    assert {key: value.shape for key, value in model.state_dict().items()} == {
        key: value.shape for key, value in again.state_dict().items()
    }
    assert (again.name, again.stem, again.num_features) == (name, model.stem, model.num_features)


def test_the_same_seed_gives_the_same_weights():
    twins = []
    for _ in range(2):
        torch.manual_seed(3)
        twins.append(build_model("squeezenet", num_classes=4, channels=1).state_dict())
    assert all(torch.equal(twins[0][key], twins[1][key]) for key in twins[0])


def test_names_stand_in_the_order_of_size_for_help_texts():
    assert NAMES[0] == "resnet8"
    assert "name='resnet8', stem='small'" in repr(build_model("resnet8", num_classes=2))


def test_importing_the_room_does_not_import_torch():
    code = "import sys, evenhand.models; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
