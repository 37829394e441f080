"""Pipes, sockets, devices, folders and links in place of any file that a command reads: refused without waiting."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from evenhand.runs import filenames as names
from tests.trained import Trained, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
INPUTS = {
    "weights.pth": "train digits --model resnet18 --weights {odd}",
    "weights.safetensors": "train digits --weights {odd}",
    "weights.npz": "train digits --weights {odd}",
    "first": "train --from {odd} --stage crt",
    "config.yaml": "train --config {odd}",
    "comparison.yaml": "compare --config {odd} --objectives ce,cce",
    "source.csv": "train {odd}",
    "source.npz": "inspect {odd}",
    "source.parquet": "train {odd}",
    "other.csv": "evaluate {run} {odd}",
    "other.npz": "evaluate {run} {odd}",
    "other.parquet": "evaluate {run} {odd}",
    "costs.csv": "evaluate {run} --costs {odd}",
    "costs.json": "predict {run} {image} --costs {odd}",
    "prior.csv": "evaluate {run} --prior {odd}",
    "prior.json": "predict {run} {image} --prior {odd}",
    "image.jpg": "predict {run} {odd}",
    "run": "predict {odd} {image}",
    "run.safetensors": "predict {odd} {image}",
    "export.safetensors": "export {odd} --onnx {folder}/model.onnx",
    "resumed": "train --resume {odd}",
    "compared": "inspect {photos} --labels {odd}",
}


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # addresses are short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def folder_of_its_name(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.parent / "hidden")
    path.symlink_to("hidden")


KINDS = [pipe, bound_socket, device, terminal, folder_of_its_name, loop, dangling, link_to_a_pipe]


@pytest.fixture
def impatient() -> Iterator[None]:
    """Fail instead of waiting."""

    def fail(_: int, __: FrameType | None) -> None:
        raise AssertionError("it waited")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", INPUTS)
def test_no_input_is_waited_for(
    photos_run: Trained, tmp_path: Path, name: str, capsys: Capture, monkeypatch: Patch
) -> None:
    image = next(each for each in photos_run.photos.rglob("*") if each.is_file())
    monkeypatch.chdir(tmp_path)
    for make in KINDS:
        odd = tmp_path / make.__name__ / name
        odd.parent.mkdir()
        make(odd)
        places = {"odd": odd, "run": photos_run.run, "photos": photos_run.photos, "image": image, "folder": odd.parent}
        code, _, err = evenhand(capsys, monkeypatch, *(part.format(**places) for part in INPUTS[name].split()))
        assert code == 2, (make.__name__, err)
        assert "Traceback" not in err
        assert len(err.splitlines()) <= 2, err
    assert not any(tmp_path.rglob(names.SUMMARY))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("make", KINDS)
def test_an_odd_file_among_images(
    photos_run: Trained, tmp_path: Path, make, capsys: Capture, monkeypatch: Patch
) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(photos_run.photos, photos)
    make(photos / "dog" / "odd.png")
    code, _, err = evenhand(
        capsys, monkeypatch, "predict", photos_run.run, photos, "--skip-bad", "--out", tmp_path / "a.csv"
    )
    assert code in (0, 2), err
    assert "Traceback" not in err
    code, _, err = evenhand(capsys, monkeypatch, "evaluate", photos_run.run, photos, "--out", tmp_path / "out")
    assert code in (0, 2), err
    assert "Traceback" not in err
