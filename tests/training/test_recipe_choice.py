"""Which recipe suits a source: photos get a pretrained network, small images train from scratch as before."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from torchvision.models import get_model_weights

from evenhand.core.extras import how_to_install
from evenhand.training import recipe_choice as defaults
from evenhand.training.recipe_choice import FALLBACK, choose_recipe, make_run_config
from tests.data.pictures import encode, noise, write


def folder(root: Path, *sizes: tuple[int, int]) -> Path:
    for k in range(2):
        for i, (width, height) in enumerate(sizes):
            write(root, {f"{'ab'[k]}/{i}.png": encode(noise(height, width, seed=i))})
    return root


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return folder(tmp_path / "photos", (300, 200), (128, 96), (150, 100))


def test_photos_get_the_last_layer_of_a_pretrained_network(photos):
    config, why = make_run_config(data__source=str(photos), objective="ce")
    assert (config.model.name, config.model.pretrained, config.start.train) == ("lite0+lite1+lite2", True, "head")
    assert (config.epochs, config.objective) == (20, "ce")
    assert why == (
        "photos of 150 x 100 px in the median: the last layer of lite0+lite1+lite2 on their ImageNet features, one "
        "view (--model lite0 is quicker and less accurate, --train all for the whole network, --recipe small to train "
        "from scratch)"
    )


def test_the_networks_follow_from_the_number_of_photos_and_what_is_installed(photos, monkeypatch):
    def made(**flags):
        return make_run_config(data__source=str(photos), **flags)[0]

    assert made().objective == "ce+cosine:lda=0.3:scale=20+post-hoc:tau=1"
    assert made(start__train="all").objective == "balanced-softmax"
    assert made(start__train="all", objective="ce").objective == "ce"
    monkeypatch.setattr(defaults, "_run_of", lambda weights: SimpleNamespace(config=made()) if weights else None)
    assert made(start__train="all", start__weights="a/run").objective == "ce+cosine:scale=20+post-hoc:tau=1"
    assert made(model__name="lite1+resnet18").model.pretrained
    monkeypatch.setattr(defaults, "MANY_PHOTOS", 6)
    assert made().model.name == "lite0"
    monkeypatch.setattr(defaults, "MANY_PHOTOS", 7)
    assert made().model.name == "lite0+lite1+lite2"
    monkeypatch.setattr(defaults, "lite_package", lambda name: {"lite0": "numpy", "lite2": "torch"}.get(name, "none"))
    assert made().model.name == "lite0+lite2"


def test_a_manifest_of_photos_too(photos):
    rows = [f"{path.relative_to(photos)},{path.parent.name}" for path in sorted(photos.rglob("*.png"))]
    (photos / "list.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    assert choose_recipe(photos / "list.csv").recipe == "photos"


@pytest.mark.parametrize("sizes", [[(95, 300)] * 3, [(300, 300), (64, 64), (64, 64)]])
def test_small_images_train_from_scratch_as_before(sizes, tmp_path):
    config, why = make_run_config(data__source=str(folder(tmp_path, *sizes)))
    assert (config.model.name, config.model.pretrained, config.start.train, why) == ("resnet8", False, "all", "")


@pytest.mark.parametrize("source", ["digits", None, "nowhere", "cifar10"])
def test_benchmarks_and_what_is_not_there(source):
    assert choose_recipe(source) == defaults.Choice()


def test_what_is_asked_for_is_done(photos):
    def made(**flags):
        return make_run_config(data__source=str(photos), **flags)[0]

    assert made(recipe="small").model.name == "resnet8"
    assert made(settings=["model.name=resnet32"]).model.name == "resnet32"
    resnet = made(model__name="resnet50")
    assert (resnet.model.name, resnet.model.pretrained, resnet.start.train) == ("resnet50", True, "head")
    whole = made(start__train="all")
    assert (whole.model.name, whole.start.train, whole.optimizer.layer_decay) == ("lite0", "all", 0.1)
    scratch, why = make_run_config(data__source=str(photos), model__name="resnet8")
    assert (scratch.model.pretrained, scratch.start.train) == (False, "all")
    assert "resnet8 from scratch" in why
    assert "two views" in choose_recipe(photos, flip=True).why
    why = make_run_config(data__source=str(photos), start__weights="mine.pth", start__load="body")[1]
    assert "the last layer of lite0 on features by the weights of mine.pth, one view" in why
    assert "all of lite0 from the weights of a/run (" in choose_recipe(photos, train="all", weights="a/run").why
    head = make_run_config(data__source="digits", model__name="resnet18", start__train="head")[0]
    assert (head.model.pretrained, head.epochs) == (True, 30)
    tuned = make_run_config(data__source="digits", model__name="resnet18", model__pretrained=True, start__train="all")[
        0
    ]
    assert tuned.optimizer.layer_decay == 0.1


def without_the_package(monkeypatch: pytest.MonkeyPatch, torch_home: Path, url: str) -> None:
    monkeypatch.setattr(defaults, "lite_package", lambda _: "no_such_package")
    monkeypatch.setenv("TORCH_HOME", str(torch_home))
    monkeypatch.setattr(get_model_weights(FALLBACK).DEFAULT.value, "url", url)


def test_without_the_package_one_of_torchvision_is_taken_and_written_down(photos, tmp_path, monkeypatch):
    weights = tmp_path / "torch" / "hub" / "checkpoints" / "efficientnet_b0-12345678.pth"
    weights.parent.mkdir(parents=True)
    weights.touch()
    without_the_package(monkeypatch, tmp_path / "torch", f"https://nowhere.invalid/{weights.name}")
    config, why = make_run_config(data__source=str(photos))
    assert config.model.name == FALLBACK
    assert FALLBACK in why


def test_without_any_weights_it_says_how_to_get_them(photos, tmp_path, monkeypatch):
    without_the_package(monkeypatch, tmp_path / "torch", (tmp_path / "nowhere" / "b0-12345678.pth").as_uri())
    config, why = make_run_config(data__source=str(photos))
    assert (config.model.name, config.model.pretrained) == ("resnet8", False)
    assert f"{how_to_install('photos')} installs one" in why
    assert str(tmp_path / "torch") in why
    assert "training from scratch, which is slower and much less accurate" in why


def test_choosing_does_not_load_torch(photos):
    code = (
        "import sys; from evenhand.training.recipe_choice import choose_recipe; "
        f"assert choose_recipe({str(photos)!r}).recipe == 'photos'; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_to_start_from_does_not_change_the_recipe(photos):
    config, _ = make_run_config(
        data__source=str(photos), settings=["start.weights=somewhere", "start.load=body"], start__train="all"
    )
    assert (config.model.name, config.start.weights, config.start.train) == ("lite0", "somewhere", "all")
