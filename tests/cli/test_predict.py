"""`evenhand predict` as a person types it."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.cli import main
from evenhand.training.predict import load
from tests.trained import Trained, assert_one_sentence, evenhand

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
HEADING = ["file", "class", "probability", "class_2", "probability_2", "class_3", "probability_3"]


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def give(monkeypatch: Patch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_files_as_csv(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    paths = [str(photos_run.photos / name) for name in photos_run.ids()[:4]]
    code, out, err = evenhand(capsys, monkeypatch, "predict", photos_run.run, *paths)
    assert (code, err) == (0, "")
    rows = read(out)
    assert list(rows[0]) == HEADING
    assert [row["file"] for row in rows] == paths
    model = load(photos_run.run)
    for row, probabilities in zip(rows, model.predict(paths).probabilities, strict=True):
        order = np.argsort(-probabilities)
        assert [row["class"], row["class_2"], row["class_3"]] == [model.class_names[k] for k in order]
        found = [float(row[name]) for name in HEADING[2::2]]
        np.testing.assert_allclose(found, probabilities[order], rtol=1e-4)


def test_a_folder_is_searched_for_images(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    code, out, _ = evenhand(capsys, monkeypatch, "predict", photos_run.run, photos_run.photos, "--batch-size", "7")
    assert code == 0
    found = [row["file"] for row in read(out)]
    assert sorted(found) == sorted(str(path) for path in photos_run.photos.rglob("*.png"))


def test_what_is_no_image_or_hidden_is_left_out(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    image = photos_run.photos / photos_run.ids()[0]
    for name in ("a/b/1.PNG", "a/notes.txt", ".hidden/2.png", "a/.3.png", 'a/q"u,ote\n.png'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, tmp_path / name)
    code, out, _ = evenhand(capsys, monkeypatch, "predict", photos_run.run, tmp_path)
    assert code == 0
    assert [row["file"] for row in read(out)] == [str(tmp_path / name) for name in ('a/q"u,ote\n.png', "a/b/1.PNG")]
    named = tmp_path / "a" / "notes.txt"
    code, out, _ = evenhand(capsys, monkeypatch, "predict", photos_run.run, named)
    assert [row["file"] for row in read(out)] == [str(named)], "a file that is named is read whatever its ending"


def test_a_list_on_stdin_as_json_lines(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    paths = [str(photos_run.photos / name) for name in photos_run.ids()[:3]]
    give(monkeypatch, "\r\n".join([*paths, "", str(photos_run.photos / "dog")]).encode())
    code, out, _ = evenhand(capsys, monkeypatch, "predict", photos_run.run, "-", "--json")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["file"] for line in lines[:3]] == paths
    assert len(lines) == 3 + 20
    for line in lines:
        assert line["top"][0] == {"class": line["class"], "probability": line["probability"]}
        assert [each["probability"] for each in line["top"]] == sorted(
            (each["probability"] for each in line["top"]), reverse=True
        )
    give(monkeypatch, os.fsencode(paths[0]) + b"\n" + os.fsencode(tmp_path) + b"/b\xff.png\n")
    code, out, err = evenhand(capsys, monkeypatch, "predict", photos_run.run, "-", "--skip-bad")
    assert code == 0
    assert len(read(out)) == 1
    assert "b\\udcff.png" in err


def test_out_is_written_whole_or_not_at_all(
    capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path
) -> None:
    good, bad, target = photos_run.photos / photos_run.ids()[0], tmp_path / "bad.jpg", tmp_path / "new" / "rows.csv"
    bad.write_bytes(b"")
    command = ["predict", photos_run.run, good, bad, "--batch-size", "1", "--out", target]
    assert_one_sentence(
        evenhand(capsys, monkeypatch, *command), "bad.jpg: the file is empty; leave it out with --skip-bad"
    )
    assert not target.exists()
    code, out, err = evenhand(capsys, monkeypatch, *command, "--skip-bad")
    assert (code, out) == (0, "")
    assert f"left out {bad}: the file is empty" in err
    assert [row["file"] for row in read(target.read_text())] == [str(good)]
    assert list(target.parent.iterdir()) == [target]
    assert err.splitlines()[-1] == f"evenhand: wrote {target}, 1 image"
    _, _, err = evenhand(capsys, monkeypatch, *command, "--skip-bad")
    assert err.splitlines()[-1] == f"evenhand: replaced {target}, 1 image"


def test_mistakes_are_one_sentence(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path) -> None:
    image = photos_run.photos / photos_run.ids()[0]

    def refused(words: str, *args: str | Path) -> None:
        assert_one_sentence(evenhand(capsys, monkeypatch, "predict", *args), words)

    refused("There is no run", tmp_path / "nowhere", image)
    refused("is no run: it has no config.yaml", tmp_path, image)
    refused("There is no file or folder", photos_run.run, image, tmp_path / "nowhere.png")
    refused("There are no images in", photos_run.run, tmp_path)
    give(monkeypatch, b"\n")
    refused("no images in the list on stdin", photos_run.run, "-")
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes((photos_run.run / "weights" / "best.safetensors").read_bytes()[:5000])
    refused("damaged", damaged, image)
    unfinished = shutil.copytree(photos_run.run, tmp_path / "unfinished", ignore=shutil.ignore_patterns("last.*"))
    refused("not finished", unfinished, image)


def test_all_bad(capsys: Capture, monkeypatch: Patch, photos_run: Trained, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no")
    code, _, err = evenhand(capsys, monkeypatch, "predict", photos_run.run, tmp_path, "--skip-bad")
    assert code == 2
    assert "None of the 1 images can be read." in err


def test_a_closed_pipe_is_no_error(capsys: Capture, monkeypatch: Patch, photos_run: Trained) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    closed = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr(sys, "argv", ["evenhand", "predict", str(photos_run.run), str(photos_run.photos / "dog")])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        with pytest.raises(SystemExit):
            main()
    assert capsys.readouterr().err == ""
    with pytest.raises(BrokenPipeError):  # so it was closed
        closed.close()


@pytest.mark.slow
def test_a_closed_pipe_of_a_shell_is_no_error(photos_run: Trained, tmp_path: Path) -> None:
    Image.new("RGB", (20, 20)).save(tmp_path / "black.png")
    (tmp_path / "list").write_text(f"{tmp_path / 'black.png'}\n" * 3000)
    command = f"{sys.executable} -m evenhand predict {photos_run.run} - < {tmp_path / 'list'} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout.strip().split(",") == HEADING
    assert done.stderr == ""
