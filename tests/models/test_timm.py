"""Networks of timm, where it is installed."""

import pytest
import torch
from torch.testing import assert_close

from evenhand.core.errors import EvenhandError
from evenhand.models.backbone import input_transform, load_backbone
from evenhand.models.build import build_model, require_model

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


def test_preprocessing_is_that_of_timm():
    for name in ("resnet18", "vit_base_patch16_clip_224.openai", "tf_efficientnet_lite0", "convnext_atto"):
        ours, theirs = input_transform(f"timm:{name}"), timm.data.resolve_data_config(model=timm.create_model(name))
        assert ours.crop_size == theirs["input_size"][-1]
        assert ours.resize_size == int(ours.crop_size / theirs["crop_pct"])
        assert (ours.interpolation, ours.mean, ours.std) == tuple(
            theirs[key] for key in ("interpolation", "mean", "std")
        )


def test_a_local_file_is_a_backbone(tmp_path):
    theirs = timm.create_model("resnet18", num_classes=7).eval()
    torch.save(theirs.state_dict(), tmp_path / "mine.pth")
    ours = load_backbone("timm:resnet18", tmp_path / "mine.pth")
    with torch.no_grad():
        expected = theirs.forward_head(theirs.forward_features(images(64)), pre_logits=True)
        assert_close(ours(images(64)), expected, rtol=0, atol=0)
    assert ours.weights.source == str(tmp_path / "mine.pth")


STRONG = {
    "timm:vit_small_patch14_dinov2.lvd142m": (518, 384),
    "timm:vit_small_patch16_dinov3.lvd1689m": (256, 384),
    "timm:vit_base_patch16_clip_224.openai": (224, 768),
}
"""Networks that docs/results/photos.md names, with their image size and number of features."""


@pytest.mark.parametrize("name", STRONG)
def test_strong_networks_have_the_preprocessing_of_their_weights(name):
    assert require_model(name) == name
    transform, config = input_transform(name), timm.get_pretrained_cfg(name.removeprefix("timm:"))
    assert (transform.crop_size, transform.mean, transform.std) == (STRONG[name][0], config.mean, config.std)
    assert require_model(f"lite0+{name}") == f"lite0+{name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", STRONG)
def test_strong_networks_give_features_by_weights_in_a_file(name, tmp_path):
    """The weights are random: the real ones are downloads."""
    size, num_features = STRONG[name]
    torch.manual_seed(0)
    theirs = timm.create_model(name.removeprefix("timm:"), pretrained=False, num_classes=0).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pth")
    backbone = load_backbone(name, tmp_path / "weights.pth")
    batch = images(size)
    with torch.no_grad():
        features = backbone(batch)
        assert features.shape == (2, num_features)
        assert_close(features, theirs(batch))
