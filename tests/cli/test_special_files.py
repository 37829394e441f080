"""Files that are no files, and files of a run that are not its own: refused in a sentence, without waiting."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from evenhand.core.errors import EvenhandError, reason
from evenhand.runs import filenames as names
from evenhand.training.predict import load
from tests.trained import Trained, evenhand

VERBS = {
    "weights": ["train", "digits", "--model", "resnet18", "--weights", "{pipe}"],
    "start": ["train", "digits", "--from", "{pipe}"],
    "source": ["train", "{pipe}"],
    "config": ["train", "--config", "{pipe}"],
    "image": ["predict", "{run}", "{pipe}"],
    "run": ["evaluate", "{pipe}"],
    "report": ["report", "{pipe}"],
    "inspect": ["inspect", "{pipe}"],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_no_verb_waits_for_a_pipe_or_a_device(
    photos_run: Trained,
    tmp_path: Path,
    verb: str,
    kind: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe = tmp_path / "file.pth"
    if kind == "pipe":
        os.mkfifo(pipe)
    else:
        pipe.symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path)
    arguments = [each.format(pipe=pipe, run=photos_run.run) for each in VERBS[verb]]
    code, _, err = evenhand(capsys, monkeypatch, *arguments)
    assert code != 0
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").rglob(names.SUMMARY))


@pytest.mark.parametrize("name", [names.CONFIG, names.SUMMARY, names.BEST_WEIGHTS, names.PREDICTIONS, names.CHECKSUMS])
def test_a_pipe_inside_a_run_is_refused(photos_run: Trained, tmp_path: Path, name: str) -> None:
    run = shutil.copytree(photos_run.run, tmp_path / "run")
    (run / name).unlink()
    os.mkfifo(run / name)
    if name in (names.CONFIG, names.BEST_WEIGHTS):
        with pytest.raises(EvenhandError):
            load(run)
    else:
        assert load(run).class_names  # it needs none of these


@pytest.mark.parametrize("name", [names.SUMMARY, "report.html"])
def test_other_names_of_a_file_keep_its_content(
    photos_run: Trained,
    tmp_path: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = shutil.copytree(photos_run.run, tmp_path / "run")
    other = tmp_path / "other"
    other.write_bytes((run / name).read_bytes() if (run / name).exists() else b"mine")
    (run / name).unlink(missing_ok=True)
    os.link(other, run / name)
    before = other.read_bytes()
    assert evenhand(capsys, monkeypatch, "evaluate", str(run), "--adjust", "0.5")[0] == 0
    assert evenhand(capsys, monkeypatch, "report", str(run))[0] == 0
    assert other.read_bytes() == before


def test_a_report_replaces_a_link_to_nothing(
    photos_run: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(photos_run.run, tmp_path / "run")
    (run / "report.html").unlink(missing_ok=True)
    (run / "report.html").symlink_to(tmp_path / "elsewhere.html")
    code, _, err = evenhand(capsys, monkeypatch, "report", str(run))
    assert code in (0, 2), err
    assert not (tmp_path / "elsewhere.html").exists()


def rewrite(path: Path, **changes: object) -> None:
    """Write weights again, changed by `dtype` or with another `model` in their card."""
    tensors = load_file(path)
    header = path.read_bytes()
    size = int.from_bytes(header[:8], "little")
    metadata = json.loads(header[8 : 8 + size])["__metadata__"]
    if "dtype" in changes:
        tensors = {name: tensor.to(changes["dtype"]) for name, tensor in tensors.items()}  # type: ignore[arg-type]
    if "model" in changes:
        metadata["evenhand"] = json.dumps(json.loads(metadata["evenhand"]) | {"model": changes["model"]})
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("change", [{"dtype": torch.int8}, {"dtype": torch.float16}, {"model": "resnet14"}])
@pytest.mark.parametrize("verb", ["predict", "evaluate", "export"])
def test_weights_of_another_type_or_run_are_refused(
    photos_run: Trained,
    tmp_path: Path,
    change: dict[str, object],
    verb: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = shutil.copytree(photos_run.run, tmp_path / "run")
    (run / names.CHECKSUMS).unlink()
    for path in run.rglob("*.safetensors"):
        rewrite(path, **change)
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    more = {"predict": [str(image)], "evaluate": ["--adjust", "auto"], "export": [str(tmp_path / "model.onnx")]}
    if verb == "evaluate":
        (run / names.PREDICTIONS).unlink()
    code, _, err = evenhand(capsys, monkeypatch, verb, str(run), *more[verb])
    assert code == 2, err
    assert len(err) < 700


LONG = ["x" * 3000, "é" * 2000, "../" * 900, "ce+" * 900, "ce:" + "gamma=1:" * 300, "a b " * 700, "\x1b[31m" * 400]
TAKING_NAMES = [
    "train {}",
    "train digits --objective {}",
    "train {} --objective {}",
    "train --resume {}",
    "train --from {} --stage crt",
    "train --config {}",
    "train digits --weights {}",
    "train digits --model {}",
    "compare {} --objectives ce,cce",
    "compare digits --objectives {}",
    "compare {} --objectives {}",
    "compare digits --costs {}",
    "inspect {}",
    "inspect {} --labels {}",
    "evaluate {}",
    "evaluate {} {}",
    "predict {} {}",
    "predict {} a.png",
    "report {}",
    "export {} --onnx {}",
    "export {} {}",
    "cache clear {}",
    "train digits --epochs {}",
    "train --{}",
    "{}",
]


@pytest.mark.parametrize("number", range(len(TAKING_NAMES)), ids=lambda number: TAKING_NAMES[number])
def test_refusals_are_short(number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    every = LONG if number < 2 else [LONG[0], LONG[number % len(LONG)]]
    for given in every:
        arguments = [part.format(given) for part in TAKING_NAMES[number].split()]
        code, _, err = evenhand(capsys, monkeypatch, *arguments)
        assert code == 2, err
        assert len(err) < 700, (len(err), err)
        assert "Traceback" not in err
        assert "\x1b" not in err


def test_no_message_advises_to_load_code() -> None:
    advice = (
        "Weights only load failed. In PyTorch 2.6, we changed the default value of the `weights_only` argument in "
        "`torch.load` from `False` to `True`. Re-running `torch.load` with `weights_only` set to `False` will succeed."
    )
    assert reason(RuntimeError(advice)) == "Weights only load failed"


def test_the_example_of_onnx_has_help() -> None:
    example = Path(__file__).parents[2] / "examples" / "onnx_predict.py"
    done = subprocess.run([sys.executable, example, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "usage" in done.stdout.lower()
