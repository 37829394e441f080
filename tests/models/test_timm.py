"""Networks of timm, where it is installed."""

import pytest
import torch
from torch.testing import assert_close

from evenhand.core.errors import EvenhandError
from evenhand.models.build import build_model

from .networks import images

timm = pytest.importorskip("timm")


@pytest.mark.parametrize(
    ("name", "num_features"),
    [
        ("resnet18", 512),
        ("mobilenetv3_small_050", 1024),
        ("convnext_atto", 320),
        ("test_vit", 64),
        ("deit_tiny_distilled_patch16_224", 192),
        ("levit_128s", 384),
        ("vgg11", 4096),
    ],
)
def test_logits_and_features(name, num_features):
    size = timm.get_pretrained_cfg(name).input_size[-1]
    model = build_model(f"timm:{name}", num_classes=5, channels=1, image_size=size)
    assert (model.name, model.stem, model.num_features) == (f"timm:{name}", "auto", num_features)
    assert model.training
    model.eval()
    grey = images(size, channels=1)
    with torch.no_grad():
        logits, features = model(grey, with_features=True)
        assert logits.shape == (2, 5)
        assert features.shape == (2, num_features)
        assert_close(logits, model.network(grey), rtol=0, atol=0)
        assert_close(model(grey), logits, rtol=0, atol=0)


def test_a_step_reaches_every_weight():
    model = build_model("timm:resnet18", num_classes=3)
    model(images()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm:resnet19", "has no network 'resnet19'; did you mean timm:resnet"),
        ("timm:qqqqqqqq", "timm.list_models"),
        ("timm:resnet18.nosuchtag", "timm cannot build 'resnet18.nosuchtag'"),
        ("timm:local-dir:/nowhere", "timm cannot build 'local-dir:/nowhere'"),
        ("timm:vit_tiny_patch16_224", "does not take 3 x 32 x 32 images"),
    ],
)
def test_one_sentence(name, message):
    with pytest.raises(EvenhandError, match=message) as caught:
        build_model(name, num_classes=4, pretrained="nosuchtag" in name)
    assert "\n" not in str(caught.value)
