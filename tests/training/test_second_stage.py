"""A second stage begins with the weights it names, trains what it says, and names its parent by content."""

import contextlib
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from evenhand.core.errors import EvenhandError
from evenhand.core.files import read_json
from evenhand.models.build import build_model
from evenhand.models.heads import CosineHead, last_layer, replace_head
from evenhand.models.weights import describe_file
from evenhand.objectives import build_objective
from evenhand.runs.config import load_config
from evenhand.training.checkpoint import load_classifier, load_weights
from evenhand.training.predict import selected_weights
from evenhand.training.run import resume_run, train_run
from evenhand.training.second_stage import second_stage
from tests.training.runs import Interrupted, StopAfter, assert_same_run, tiny, trainer_of


def changed(first: Path, second: Path) -> set[str]:
    """The weights that the second run has otherwise than the first."""
    before, after = (load_weights(selected_weights(run))[0] for run in (first, second))
    return {key for key in after if key not in before or not torch.equal(before[key], after[key])}


def sentence(*settings: str, folder: Path) -> str:
    with pytest.raises(EvenhandError) as caught:
        train_run(tiny(*settings), folder / "refused")
    assert not (folder / "refused" / "config.yaml").exists()
    return str(caught.value)


def test_crt_trains_a_fresh_last_layer(whole: Path, tmp_path: Path) -> None:
    config = second_stage(whole, "crt", epochs=2)
    assert (config.objective, config.epochs, config.start.load, config.start.train) == (
        "cce+crt:epochs=2",
        2,
        "body",
        "head",
    )
    run = train_run(config, tmp_path / "second").path
    assert changed(whole, run) == {"network.head.weight", "network.head.bias"}
    kept = load_config(run / "config.yaml")
    assert kept.start.sha256 == describe_file(selected_weights(whole)).sha256
    assert kept.data == load_config(whole / "config.yaml").data
    parent = read_json(run / "summary.json")["parent"]
    assert (parent["weights"], parent["sha256"]) == (str(whole), kept.start.sha256)


def test_lws_learns_a_scale_for_each_class(whole: Path, tmp_path: Path) -> None:
    run = train_run(second_stage(whole, "lws:epochs=2"), tmp_path / "second").path
    assert changed(whole, run) == {"network.head.scale"}
    (first, _), (second, _) = (load_classifier(selected_weights(each)) for each in (whole, run))
    images = torch.randn(3, 1, 8, 8)
    scale = second.get_parameter("network.head.scale")
    assert len(scale.unique()) > 1
    torch.testing.assert_close(second.eval()(images), first.eval()(images) * scale)


def test_it_begins_where_the_first_ended(whole: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny(f"start.weights={whole}"), tmp_path / "run")
    tensors, _ = load_weights(selected_weights(whole))
    assert all(torch.equal(tensors[key], value) for key, value in trainer.model.state_dict().items())
    assert all(weight.requires_grad for weight in trainer.model.parameters())


def test_resumed_equals_uninterrupted(whole: Path, tmp_path: Path) -> None:
    config = second_stage(whole, "crt", epochs=3)
    train_run(config, tmp_path / "plain")
    with contextlib.suppress(Interrupted):
        train_run(config, tmp_path / "stopped", callback=StopAfter(10))
    resume_run(tmp_path / "stopped")
    assert_same_run(tmp_path / "plain", tmp_path / "stopped")


def test_weights_of_others_fill_the_body(tmp_path: Path) -> None:
    network = build_model("resnet8", num_classes=7, channels=1, image_size=8)
    plain = {key.removeprefix("network."): value for key, value in network.state_dict().items()}
    save_file(plain, tmp_path / "foreign.safetensors")
    start = f"start.weights={tmp_path / 'foreign.safetensors'}"
    trainer = trainer_of(tiny(start, "start.load=body", "start.train=head"), tmp_path / "run")
    for key, value in trainer.model.state_dict().items():
        assert torch.equal(value, network.state_dict()[key]) == (not key.startswith("network.head.")), key
    assert "set start.load=body" in sentence(start, folder=tmp_path)


def test_mistakes_are_told_before_anything_is_written(whole: Path, tmp_path: Path) -> None:
    told = {
        "There is no run": ["start.weights=nowhere"],
        "crt is a second stage of a finished run": ["objective=ce+crt"],
        "but this run trains a resnet32": [f"start.weights={whole}", "model.name=resnet32"],
        "changed since this run began": [f"start.weights={whole}", f"start.sha256={'a' * 64}"],
        "do not fit": [f"start.weights={whole}", "objective=ldam"],
    }
    for reason, settings in told.items():
        assert reason in sentence(*settings, folder=tmp_path)
    for stage in ("mixup", "post-hoc", "crt+balanced-softmax", "foo", ""):
        with pytest.raises(
            EvenhandError, match=re.escape(f"A second stage is crt or lws, with its settings, got {stage!r}")
        ):
            second_stage(whole, stage)
    for stage, epochs, reason in (("crt", 0, "got '0'"), ("crt", -3, "got '-3'"), ("crt:epochs=5", 2, "give one")):
        with pytest.raises(EvenhandError, match=reason):
            second_stage(whole, stage, epochs=epochs)


def test_what_made_up_for_the_counts_in_the_first_stage_rests_in_the_second(tmp_path: Path) -> None:
    """Sampling makes up for them there, and nothing else."""
    first = train_run(tiny(objective="balanced-softmax+cce", epochs=1), tmp_path / "first").path
    run = train_run(second_stage(first, "crt:epochs=1"), tmp_path / "second")
    assert run.config.objective == "balanced-softmax+cce+crt:epochs=1"
    assert [line["part"] for line in read_json(run.path / "summary.json")["parts"]] == ["cce", "crt:epochs=1"]
    trainer = trainer_of(run.config, tmp_path / "again")
    assert trainer.objective.offset is None
    with pytest.raises(EvenhandError, match=r"is a second stage itself .* start from its own first stage, .*first"):
        second_stage(run.path, "crt")


def test_an_adjustment_after_training_is_left_out_of_a_second_stage(tmp_path: Path) -> None:
    first = train_run(tiny(objective="ce+post-hoc:tau=1", epochs=1), tmp_path / "first").path
    assert second_stage(first, "crt").objective == "ce+crt"
    with pytest.raises(EvenhandError, match="crt and post-hoc both correct"):
        build_objective("ce+crt+post-hoc", counts=[5, 2])


def test_a_second_stage_is_continued_from_anywhere(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole.parent)
    config = second_stage(whole.name, "crt:epochs=2")
    with contextlib.suppress(Interrupted):
        train_run(config, tmp_path / "stopped", callback=StopAfter(1))
    monkeypatch.chdir(tmp_path)
    assert resume_run(tmp_path / "stopped").finished


@pytest.mark.parametrize("name", ["resnet8", "resnet18", "lite0"])
def test_a_cosine_head_takes_the_place_of_the_last_layer(name: str) -> None:
    model = build_model(name, num_classes=5, image_size=32)
    replaced = replace_head(model, "cosine:scale=16").get_submodule(last_layer(model))
    assert isinstance(replaced, CosineHead)
    assert not any(isinstance(module, nn.Linear) and module.out_features == 5 for module in model.modules())
    logits, features = model.eval()(torch.randn(2, 3, 32, 32), with_features=True)
    f, w = (each / each.norm(dim=1, keepdim=True) for each in (features.double(), replaced.weight.double()))
    torch.testing.assert_close(logits.double(), 16 * f @ w.T, atol=1e-4, rtol=1e-4)
    with torch.autocast("cpu", torch.bfloat16):
        assert replaced(features).dtype == torch.float32
