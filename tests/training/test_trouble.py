"""What goes wrong on a user's machine is one sentence, and costs no finished epoch."""

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from evenhand.core import files
from evenhand.core.errors import EvenhandError
from evenhand.objectives import Objective
from evenhand.runs.config import save_config
from evenhand.runs.run import Run
from evenhand.training.checkpoint import load_classifier, load_state, load_weights, save_state, save_weights
from evenhand.training.run import resume_run, train_run
from tests.training.runs import Interrupted, StopAfter, assert_same_run, files_of, tiny, trainer_of


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its second epoch; tests work on copies."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Interrupted):
        train_run(tiny(), folder, callback=StopAfter(9))
    return folder


@pytest.fixture
def copy(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "copy"))


def sentence(work: Callable[[], object]) -> str:
    """What a user is told, which must be one line that ends like a sentence."""
    with pytest.raises(EvenhandError) as caught:
        work()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    assert not message.endswith("..")
    return message


def break_step(monkeypatch: pytest.MonkeyPatch, number: int, spoil: Callable[[Any, Tensor], Tensor]) -> None:
    """Change what a step of the run returns, or what it leaves."""
    real, count = Objective.step, iter(range(1, 10**6))

    def step(self: Objective, forward: Any, *args: Any, **options: Any) -> Tensor:
        loss = real(self, forward, *args, **options)
        return spoil(forward, loss) if next(count) == number else loss

    monkeypatch.setattr(Objective, "step", step)


# Divergence


def test_too_high_a_learning_rate(tmp_path: Path) -> None:
    message = sentence(
        lambda: train_run(tiny("optimizer.lr=1e4", "optimizer.weight_decay=100", "batch_size=8"), tmp_path / "run")
    )
    assert message.startswith("The loss became ")
    assert " at step " in message
    assert "no epoch was finished; try a lower learning rate (--set optimizer.lr=1000)" in message
    assert files_of(tmp_path / "run") == {"config.yaml", "environment.json", "splits.json"}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_step_is_named_and_the_state_is_kept(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        break_step(patch, 10, lambda _, loss: loss * 0 + float(value))
        message = sentence(lambda: train_run(tiny(), folder))
    assert message.startswith(f"The loss became {value} at step 10; the state after epoch 1 is kept; try ")
    assert load_state(folder / "state" / "state.pt")["epoch"] == 1
    resume_run(folder)
    assert_same_run(folder, whole)


def test_step_is_named_though_losses_are_seen_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = StopAfter(10**6)
    break_step(monkeypatch, 60, lambda _, loss: loss * float("nan"))
    message = sentence(lambda: train_run(tiny("batch_size=4"), tmp_path / "run", callback=callback))
    assert "at step 60; no epoch was finished" in message
    assert callback.done == 99  # the hundredth step ended it


def test_weights_that_the_last_step_broke_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: torch.nn.Module, loss: Tensor) -> Tensor:
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] = float("inf")
        return loss

    break_step(monkeypatch, 14, spoil)
    folder = tmp_path / "run"
    message = sentence(lambda: train_run(tiny(), folder))
    assert message.startswith("The weights became NaN or infinite at the last step of epoch 2; the state after epoch 1")
    state = load_state(folder / "state" / "state.pt")
    assert state["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in state["model"].values())


def test_logits_that_overflow_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: torch.nn.Module, loss: Tensor) -> Tensor:
        with torch.no_grad():
            list(model.parameters())[-2].mul_(1e38).mul_(10)
            list(model.parameters())[-2].clamp_(-3e38, 3e38)
        return loss

    break_step(monkeypatch, 7, spoil)
    message = sentence(lambda: train_run(tiny(), tmp_path / "run"))
    assert message.startswith("Validation logits became NaN or infinite in epoch 1; no epoch was finished")


# Disks

WRITTEN = (
    *("checksums.json", "validation.npz"),
    *("config.yaml", "environment.json", "splits.json", "best.safetensors", "history.csv", "state.pt"),
    *("last.safetensors", "predictions.npz", "features.npz", "thumbnails.npz", "summary.json"),
)


@pytest.mark.parametrize("name", WRITTEN)
def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real, folder = os.replace, tmp_path / "run"

    def full(source: str, target: str, **folders: int) -> None:
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target, **folders)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        message = sentence(lambda: train_run(tiny(epochs=1), folder))
    assert message.startswith("Cannot write ")
    assert f"{name}: No space left on device; free some space or choose another folder." in message
    assert not any(left.endswith((".part", name)) for left in files_of(folder))
    if name != "config.yaml":
        assert resume_run(folder).finished


@pytest.mark.parametrize("kind", ["state.pt", "best.safetensors"])
def test_disk_that_fills_while_a_file_is_written(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """torch and safetensors would each report it in words of their own."""
    real, folder, count = files._write_new, tmp_path / "run", iter(range(1, 100))

    def full(name: str, content: bytes, above: int | None) -> None:
        if name.startswith(f".{kind}.") and next(count) == 2:
            real(name, content[:100], above)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(name, content, above)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_write_new", full)
        message = sentence(lambda: train_run(tiny(), folder))
    assert f"{kind}: No space left on device" in message
    assert load_state(folder / "state" / "state.pt")["epoch"] >= 1
    resume_run(folder)
    assert_same_run(folder, whole)


def test_impossible_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "Not a directory" in sentence(lambda: train_run(tiny(), tmp_path / "file" / "run"))
    assert "Cannot read" in sentence(lambda: train_run(tiny(), tmp_path / ("long" * 100)))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in sentence(lambda: train_run(tiny(), tmp_path / "run"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("evenhand.core.files._write_new", refuse)
    message = sentence(lambda: train_run(tiny(), tmp_path / "run"))
    assert f"{os.strerror(number)}; choose another folder." in message


# Damaged files


@dataclass
class Malice:
    """Makes a folder when it is unpickled."""

    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "code", "list", "other dict", "flipped"])
def test_damaged_state_is_named(copy: Path, damage: str) -> None:
    path = copy / "state" / "state.pt"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("no state at all")
    elif damage == "flipped":
        path.write_bytes(content[:40] + bytes(60) + content[100:])
    else:
        torch.save({"code": Malice(str(copy / "made")), "list": [1, 2], "other dict": {"epoch": 1}}[damage], path)
    message = sentence(lambda: resume_run(copy))
    assert message.startswith(f"The state in {path} is damaged: ")
    assert message.endswith("; start the run anew.")
    assert not (copy / "made").exists()
    assert "summary.json" not in files_of(copy)


@pytest.mark.parametrize("change", ["model", "optimizers", "rng", "shapes"])
def test_state_that_does_not_fit(copy: Path, change: str) -> None:
    path = copy / "state" / "state.pt"
    state = load_state(path)
    if change == "optimizers":
        state["optimizers"] *= 2
    elif change == "shapes":
        state["model"] = {name: tensor[..., :1] for name, tensor in state["model"].items() if tensor.ndim}
    else:
        state[change] = torch.zeros(3) if change == "rng" else {}
    save_state(path, state)
    assert sentence(lambda: resume_run(copy)) == f"The state in {copy} does not fit its config; start the run anew."


def _first(state: dict[str, Any]) -> Any:
    return state["optimizers"][0]["state"][0]


def _row(**changed: object) -> Callable[[dict[str, Any]], object]:
    return lambda state: state["history"][0].update(changed)


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "momentum of another shape": lambda state: _first(state).update(momentum_buffer=torch.zeros(3)),
    "momentum that is a text": lambda state: _first(state).update(momentum_buffer="x"),
    "momentum that is NaN": lambda state: _first(state)["momentum_buffer"].mul_(float("nan")),
    "no momentum": lambda state: _first(state).update(momentum_buffer=None),
    "momenta of nobody": lambda state: state["optimizers"][0].update(state={"a": {}}),
    "one weight many times": lambda state: state["optimizers"][0]["param_groups"][0].update(params=[0] * 5),
    "weights that are NaN": lambda state: next(iter(state["model"].values())).mul_(float("nan")),
    "weights of another kind": lambda state: state.update(model={k: v.half() for k, v in state["model"].items()}),
    "complex weights": lambda state: state.update(model={k: v + 0j for k, v in state["model"].items()}),
    "a loss that is a text": _row(train_loss="x"),
    "a loss that is a list": _row(lr=[1]),
    "an epoch that is True": _row(epoch=True),
    "endless seconds": _row(seconds=10**400),
    "few columns": lambda state: state.update(history=[{"epoch": 1}]),
}


@pytest.mark.parametrize("kind", STATES)
def test_a_state_with_other_content_is_refused_before_an_epoch(copy: Path, kind: str) -> None:
    path = copy / "state" / "state.pt"
    state = torch.load(path, weights_only=True)
    STATES[kind](state)
    save_state(path, state)  # with its checksum
    message = sentence(lambda: resume_run(copy))
    assert message.endswith("; start the run anew.")
    assert "summary.json" not in files_of(copy)


@pytest.mark.parametrize("changed", [{"lr": "x"}, {"rate": "x"}, {"momentum": 5.0}, {"weight_decay": float("nan")}])
def test_the_settings_of_an_optimizer_are_those_of_the_config(
    copy: Path, whole: Path, changed: dict[str, object]
) -> None:
    path = copy / "state" / "state.pt"
    state = torch.load(path, weights_only=True)
    state["optimizers"][0]["param_groups"][0].update(changed)
    save_state(path, state)
    resume_run(copy)
    assert_same_run(copy, whole)


def test_config_of_another_model(copy: Path) -> None:
    save_config(tiny(model__name="resnet32"), copy / "config.yaml")
    assert "does not fit its config" in sentence(lambda: resume_run(copy))


@pytest.mark.parametrize("content", [b"epochs: [", b"\x00\xff", b"", b"epochz: 3\n"])
def test_damaged_config(copy: Path, content: bytes) -> None:
    (copy / "config.yaml").write_bytes(content)
    assert str(copy / "config.yaml") in sentence(lambda: resume_run(copy))


def test_damaged_splits(copy: Path) -> None:
    (copy / "splits.json").write_text("{")
    assert str(copy / "splits.json") in sentence(lambda: resume_run(copy))


def test_no_run(tmp_path: Path) -> None:
    assert sentence(lambda: resume_run(tmp_path)) == f"{tmp_path} is no run: it has no config.yaml."
    nothing = tmp_path / "nothing"
    assert sentence(lambda: resume_run(nothing)) == f"{nothing} is no run: there is no such folder."
    message = sentence(lambda: load_state(tmp_path / "state" / "state.pt"))
    assert message == f"There is nothing to resume in {tmp_path}: it has finished no epoch."


def test_unfinished_run_has_no_summary(copy: Path) -> None:
    assert f"continue it with evenhand train --resume {copy}" in sentence(lambda: Run(copy).summary)
    (copy / "summary.json").write_text("{")
    assert str(copy / "summary.json") in sentence(lambda: Run(copy).summary)


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "foreign", "card", "no dict", "gone"])
def test_damaged_weights_are_named(whole: Path, tmp_path: Path, damage: str) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "summary.json").unlink()
    path = run / "weights" / "best.safetensors"
    content = path.read_bytes()
    tensors = {"weight": torch.zeros(2)}
    if damage == "cut":
        path.write_bytes(content[:-50])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("no weights at all")
    elif damage == "foreign":
        save_file(tensors, path)
    elif damage == "card":
        save_file(tensors, path, metadata={"evenhand": '{"view": {}, "model": "resnet8"}'})
    elif damage == "no dict":
        save_file(tensors, path, metadata={"evenhand": '"resnet8"'})
    else:
        path.unlink()
    told = "There are no weights in " if damage == "gone" else "The weights in "
    for read in (lambda: load_weights(path), lambda: load_classifier(path), lambda: resume_run(run)):
        message = sentence(read)
        assert message.startswith(f"{told}{path}")
        if damage == "foreign":
            assert "not of evenhand" in message


def test_weights_of_another_network(whole: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    (run / "summary.json").unlink()
    other = trainer_of(tiny(model__name="resnet32"), tmp_path)
    path = run / "weights" / "best.safetensors"
    save_weights(path, other.model, other.card)
    assert sentence(lambda: resume_run(run)) == f"The best weights in {run} are not those of its resnet8."
    save_weights(path, other.model, trainer_of(tiny(), tmp_path).card)
    assert "do not fit resnet8" in sentence(lambda: load_classifier(path))


def test_weights_travel_with_all_that_is_needed_to_use_them(whole: Path) -> None:
    model, card = load_classifier(whole / "weights" / "best.safetensors")
    assert (card.model, card.stem, card.channels, card.image_size, card.stretch) == ("resnet8", "small", 1, 8, False)
    assert card.class_names == tuple("0123456789")
    assert card.preprocessing == trainer_of(tiny(), whole).prepared.preprocessing
    assert not np.isnan(model(torch.zeros(2, 1, 8, 8)).detach().numpy()).any()


# Devices


def test_impossible_devices(tmp_path: Path) -> None:
    assert "needs GPUs" in sentence(lambda: train_run(tiny("compute.sync_batchnorm=true"), tmp_path / "run"))
    assert "abacus" in sentence(lambda: tiny("compute.accelerator=abacus"))
    if not torch.cuda.is_available():
        assert "cuda" in sentence(lambda: train_run(tiny("compute.accelerator=cuda"), tmp_path / "run"))


def test_every_objective_trains_in_every_precision(tmp_path: Path) -> None:
    for objective in ("ce", "focal", "cce", "cot", "cot:forwards=1"):
        config = tiny("compute.precision=bfloat16", objective=objective, epochs=1, data__imbalance="exp:100")
        run = train_run(config, tmp_path / objective)
        assert run.summary.objective == objective


@pytest.mark.parametrize("wrong", [{"objective": "cse"}, {"model__name": "resnet9"}])
def test_a_wrong_name_is_told_before_any_data_are_read(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(EvenhandError, match="There is no"):
        train_run(tiny(data__source="/there/is/no/such/folder", **wrong), tmp_path / "run")
