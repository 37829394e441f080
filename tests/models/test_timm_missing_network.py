"""What timm would wait for, or find out late, is told at once: shown with a stand-in for timm and its hub."""

import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.core.errors import EvenhandError
from evenhand.models import _from_timm
from evenhand.models.build import build_model, require_model
from evenhand.training.run import train_run
from tests.training.runs import tiny

KINDS = ("a1_in1k", "a2_in1k")


def _config(name: str, **_: object) -> SimpleNamespace:
    network, dot, kind = name.partition(".")
    if dot and kind not in KINDS:
        raise RuntimeError(f"Invalid pretrained tag ({kind}) for {network}.")
    return SimpleNamespace(hf_hub_id=f"timm/{network}.{kind or KINDS[0]}", url="", input_size=(3, 224, 224))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    """timm with one network, and a hub that nobody can reach."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it would retry for a minute")

    timm, found = types.ModuleType("timm"), types.ModuleType("huggingface_hub")
    own = {
        "__version__": "1.0",
        "is_model": lambda name: name.split(".")[0] == "resnet18",
        "list_models": lambda: ["resnet18"],
        "list_pretrained": lambda _: [f"resnet18.{kind}" for kind in KINDS],
        "get_pretrained_cfg": _config,
        "create_model": never,
    }
    for name, value in own.items():
        setattr(timm, name, value)
    constants = types.ModuleType("huggingface_hub.constants")
    constants.HF_HUB_OFFLINE = False  # type: ignore[attr-defined]
    found.try_to_load_from_cache = lambda *_: None  # type: ignore[attr-defined]
    for module in (timm, found, constants):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    return found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("timm:resnt18", "timm 1.0 has no network 'resnt18'; did you mean timm:resnet18?"),
        ("timm:ResNet18x", "did you mean timm:resnet18?"),
        ("timm:qqqq", "timm.list_models"),
        ("timm:", "timm.list_models"),
        ("timm:resnet18.a99", "has no weights 'a99' of resnet18; there are 'resnet18.a1_in1k', 'resnet18.a2_in1k'."),
        ("resnt18", "There is no network 'resnt18'; did you mean resnet18"),
    ],
)
@pytest.mark.usefixtures("hub")
def test_a_typo_is_told_before_any_data_are_read(tmp_path: Any, name: str, words: str) -> None:
    for call in (
        lambda: require_model(name),
        lambda: train_run(tiny(data__source="/there/is/no/such/folder", model__name=name), tmp_path / "run"),
    ):
        with pytest.raises(EvenhandError) as caught:
            call()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:resnet18.a2_in1k"])
@pytest.mark.usefixtures("hub")
def test_weights_of_a_hub_that_is_not_there(name: str) -> None:
    with pytest.raises(EvenhandError, match=r"cannot be reached; download http://.*model\.safetensors yourself"):
        build_model(name, num_classes=2, pretrained=True)


def test_weights_on_this_machine_need_no_hub(hub: Any) -> None:
    hub.try_to_load_from_cache = lambda *_: "/some/file"
    constants = sys.modules["huggingface_hub.constants"]
    with _from_timm._without_retries("resnet18", sys.modules["timm"]):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE


def test_without_timm_the_hint_comes_first(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(EvenhandError, match=r"need one more package: pip install 'timm"):
        train_run(tiny(data__source="/there/is/no/such/folder", model__name="timm:resnet18"), tmp_path / "run")
