"""With many classes the trainer leaves the logits to the loss, and learns the same."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from evenhand.models.fused_head import DeferringLinear
from evenhand.objectives import build_objective, objective
from evenhand.training.run import train_run
from tests.training.runs import tiny, trainer_of


@pytest.mark.parametrize("spec", ["cce", "balanced-softmax+cce", "cce:share=0.3", "ldam+cce", "cce+drw"])
def test_a_run_is_the_same_with_and_without_logits(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In small steps: large ones make much of roundings, and each processor has its own."""
    config = tiny("optimizer.lr=0.001", objective=spec, epochs=2)
    begun = {name: value.clone() for name, value in trainer_of(config, tmp_path / "begun").model.state_dict().items()}
    runs = []
    for name, many in (("with", 11), ("without", 10)):
        monkeypatch.setattr(objective, "MANY_CLASSES", many)
        runs.append(train_run(config, tmp_path / name))
    one, other = (load_file(run.last_weights) for run in runs)
    for name, value in one.items():
        moved = (value - begun[name]).abs().max()
        assert moved > 0, name
        assert (other[name] - value).abs().max() <= 0.01 * moved, name
    for row, same in zip(runs[0].history, runs[1].history, strict=True):
        assert float(row["train_loss"]) == pytest.approx(float(same["train_loss"]), rel=1e-4)
    assert runs[1].predictions.num_classes == 10


def test_the_layer_is_deferring_in_training_and_saved_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objective, "MANY_CLASSES", 10)
    trainer = trainer_of(tiny(objective="cce"), tmp_path)
    layers = [module for module in trainer.model.modules() if isinstance(module, DeferringLinear)]
    assert len(layers) == 1
    assert trainer.card.head == "linear"
    logits = trainer.model.eval()(torch.zeros(2, 1, 8, 8))
    assert logits.shape == (2, 10)


@pytest.mark.parametrize(
    ("spec", "defers"),
    [("cce", True), ("ce", False), ("cce:spare=1", False), ("cce+mixup", False), ("cot", False), ("cce+cosine", False)],
)
def test_what_can_do_without_logits(spec: str, defers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not build_objective(spec, counts=[5, 4, 3, 2, 2]).defers_logits
    monkeypatch.setattr(objective, "MANY_CLASSES", 5)
    assert build_objective(spec, counts=[5, 4, 3, 2, 2]).defers_logits == defers
