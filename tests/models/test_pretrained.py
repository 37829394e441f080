"""Pretrained weights go through torchvision's own loading, from files with random weights under the right names."""

import hashlib
import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torchvision.models import get_model, get_model_weights

from evenhand.core.errors import EvenhandError
from evenhand.models._zoo import fit_channels
from evenhand.models.build import build_model

from .networks import ORIGINALS, convolutions, images, last_layer

ONE_OF_EACH = ("resnet34", "squeezenet", "densenet121", "efficientnet_b0")


@pytest.fixture(autouse=True)
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give torch an empty folder of weights of its own."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    folder = tmp_path / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def save_random_weights(name: str, folder: Path) -> torch.nn.Module:
    """Make a network of torchvision and put its weights where its pretrained ones would be."""
    torch.manual_seed(0)
    network = get_model(ORIGINALS[name])
    state = network.state_dict()
    if name == "densenet121":  # the published file is from a time when its keys looked like this
        old = {key: re.sub(r"(denselayer\d+\.(?:norm|relu|conv))(\d)", r"\1.\2", key) for key in state}
        state = {old[key]: value for key, value in state.items() if "num_batches_tracked" not in key}
    torch.save(state, folder / Path(get_model_weights(ORIGINALS[name]).DEFAULT.url).name)
    return network.eval()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_all_weights_but_the_last_layer_are_loaded(name, checkpoints):
    theirs = save_random_weights(name, checkpoints)
    torch.manual_seed(1)
    ours = build_model(name, num_classes=7, pretrained=True)
    assert ours.stem == "imagenet"
    pairs = list(zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True))
    for (key, value), expected in pairs[:-2]:
        assert torch.equal(value, expected), key
    assert [value.shape[0] for (_, value), _ in pairs[-2:]] == [7, 7]
    seen = []
    last_layer(theirs).register_forward_pre_hook(lambda _module, arguments: seen.append(arguments[0]))
    with torch.no_grad():
        theirs(images(64))
        features = ours.eval()(images(64), with_features=True)[1]
    assert_close(features, seen[0].mean((2, 3)) if name == "squeezenet" else seen[0])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_grey_image_gives_what_it_gave_three_times_over(name, checkpoints):
    save_random_weights(name, checkpoints)
    colour = build_model(name, num_classes=4, pretrained=True).double().eval()
    grey = build_model(name, num_classes=4, channels=1, pretrained=True).double().eval()
    one = images(64, channels=1).double()
    with torch.no_grad():
        once = grey(one, with_features=True)[1]
        thrice = colour(one.repeat(1, 3, 1, 1), with_features=True)[1]
    assert_close(once, thrice, rtol=1e-5, atol=1e-5)  # all that is left is the rounding of the summed kernel


def test_a_thousand_classes_get_a_new_last_layer_too(checkpoints):
    theirs = save_random_weights("squeezenet", checkpoints)
    ours = build_model("squeezenet", num_classes=1000, pretrained=True)
    assert not torch.equal(last_layer(ours).weight, last_layer(theirs).weight)


def test_other_channels_repeat_the_kernel_and_keep_its_size(checkpoints):
    theirs = convolutions(save_random_weights("squeezenet", checkpoints))[0]
    for channels in (2, 4, 6):
        first = convolutions(build_model("squeezenet", num_classes=4, channels=channels, pretrained=True))[0]
        assert_close(first.weight, fit_channels(theirs.weight, channels))
        assert_close(first.bias, theirs.bias)
    kernel = theirs.weight.detach()
    assert_close(fit_channels(kernel, 2), kernel[:, :2] * 1.5)
    assert_close(fit_channels(kernel, 6).sum(1), kernel.sum(1))
    assert torch.equal(fit_channels(kernel, 3), kernel)


def test_small_images_keep_the_imagenet_stem(checkpoints):
    save_random_weights("squeezenet", checkpoints)
    assert build_model("squeezenet", num_classes=4, image_size=32, pretrained=True).stem == "imagenet"
    with pytest.raises(EvenhandError, match="imagenet stem takes images of 17 px or more, got 16; enlarge"):
        build_model("squeezenet", num_classes=4, image_size=16, pretrained=True)


def offer(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(get_model_weights("squeezenet1_1").DEFAULT.value, "url", url)


def test_a_download_is_checked_and_kept(tmp_path, checkpoints, monkeypatch, capsys):
    save_random_weights("squeezenet", tmp_path)
    (file,) = tmp_path.glob("*.pth")
    name = f"squeezenet1_1-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.pth"
    offer(monkeypatch, file.rename(tmp_path / name).as_uri())
    build_model("squeezenet", num_classes=4, pretrained=True)
    assert (checkpoints / name).is_file()
    assert capsys.readouterr().out == ""
    (tmp_path / name).unlink()
    build_model("squeezenet", num_classes=4, pretrained=True)


def sentence() -> str:
    with pytest.raises(EvenhandError) as caught:
        build_model("squeezenet", num_classes=4, pretrained=True)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_without_a_connection_it_names_the_file_and_its_place(tmp_path, checkpoints, monkeypatch):
    url = (tmp_path / "nowhere" / "squeezenet1_1-b8a52dc0.pth").as_uri()
    offer(monkeypatch, url)
    text = sentence()
    assert text.startswith("Cannot download the pretrained weights of squeezenet (")
    assert f"download {url} yourself and put the file into {checkpoints}." in text


def test_a_download_with_other_content_is_not_kept(tmp_path, checkpoints, monkeypatch):
    save_random_weights("squeezenet", tmp_path)
    (file,) = tmp_path.glob("*.pth")
    offer(monkeypatch, file.as_uri())
    assert "invalid hash value" in sentence()
    assert not list(checkpoints.iterdir())


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "other network"])
def test_a_damaged_file_is_named(checkpoints, damage):
    save_random_weights("squeezenet", checkpoints)
    (file,) = checkpoints.iterdir()
    if damage == "other network":
        torch.save(get_model("squeezenet1_0").state_dict(), file)
    else:
        content = file.read_bytes()
        file.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "text": b"<html>not found</html>"}[damage])
    text = sentence()
    assert text.startswith(f"Cannot use the pretrained weights of squeezenet in {file} (")
    assert "delete the file" in text
    assert file.exists()
