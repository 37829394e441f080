"""One grammar for all sources."""

import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import find_data_root, load_source
from tests.real_data import DATA, needs


def test_the_default_is_digits() -> None:
    assert load_source().name == "digits"
    assert load_source("digits").labels.tolist() == load_source().labels.tolist()


@pytest.mark.parametrize("as_path", [True, False])
def test_folder_csv_and_npz(tmp_path: Path, as_path: bool) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "photos" / name / "1.png")
    (tmp_path / "photos" / "list.CSV").write_text("path,label\ncat/1.png,cat\ndog/1.png,dog\n")
    np.savez(tmp_path / "set.npz", train_images=np.zeros((2, 4, 4), np.uint8), train_labels=np.array([0, 1]))
    for place, name in (("photos", "photos"), ("photos/list.CSV", "list"), ("set.npz", "set")):
        source = tmp_path / place
        table = load_source(source if as_path else str(source))
        assert (table.name, len(table), table.num_classes) == (name, 2, 2)


def test_a_name_means_the_benchmark_and_a_path_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cat", "dog"):
        (tmp_path / "digits" / name).mkdir(parents=True)
        (tmp_path / "digits" / name / "1.png").touch()
    assert len(load_source("digits")) == 1797
    assert len(load_source("./digits")) == len(load_source(Path("digits"))) == 2


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("cifar", "'cifar' is neither a known data set nor a file or folder; did you mean cifar10 or cifar100?"),
        ("CIFAR10", "did you mean cifar10 or cifar100?"),
        ("mnist", "did you mean fashion-mnist"),
        ("zebra", "known are digits, fashion-mnist, cifar10, cifar100, svhn, tiny-imagenet, road-marking."),
        ("", "'' is neither a known data set nor a file or folder; known are"),
        ("~nobody-of-this-name", "neither a known data set nor a file or folder"),
        ("photos/none", "There is no file or folder photos/none."),
        ("list.csv", "There is no file or folder list.csv."),
        (Path("none"), "There is no file or folder none."),
        ("a\0b", "neither a known data set nor"),
        ("x" * 5000, "neither a known data set nor"),
        ("digits:classes=3", "Cannot read 'digits:classes=3': digits takes no options."),
        ("digits:3", "digits takes no options."),
        ("road-marking:runs", "road-marking takes the options classes and split."),
        ("road-marking:kind=runs", "road-marking takes the options classes and split."),
        ("road-marking:classes=9+digits", "road-marking takes the options classes and split."),
        ("road-marking:split=odd", "road-marking has split=random or runs, got 'odd'."),
        ("road-marking:classes=8", "road-marking has classes=9, 10 or all, got '8'."),
        ("road-marking:classes=", "Cannot read 'road-marking:classes='"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str | Path, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EvenhandError) as caught:
        load_source(source, data_root=tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").touch()
    with pytest.raises(
        EvenhandError, match=r"Cannot read .*photos\.zip: expected a folder, a \.csv, \.npz or \.parquet"
    ):
        load_source(tmp_path / "photos.zip")


def test_where_the_data_root_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENHAND_DATA", "/from/environment")
    assert find_data_root() == Path("/from/environment")
    assert find_data_root("~/mine") == Path.home() / "mine"
    monkeypatch.setenv("EVENHAND_DATA", "")
    assert find_data_root() == platformdirs.user_cache_path("evenhand", appauthor=False) / "data"


@pytest.mark.parametrize(
    ("name", "files"),
    [("cifar10", "cifar-10-python.tar.gz"), ("tiny-imagenet", "tiny-imagenet-200.zip")],
)
def test_a_machine_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: str) -> None:
    def urlopen(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError(socket.gaierror(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    with pytest.raises(EvenhandError) as caught:
        load_source(name, data_root=tmp_path)
    folders = f"class folders into {tmp_path / name}/train and /test"
    assert str(caught.value) == f"Cannot download {name} (no network); put {files} into {tmp_path}, or {folders}."
    assert os.listdir(tmp_path) == []


@needs("road-marking")
def test_options_reach_the_set_and_the_root_stays_untouched() -> None:
    def state() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in DATA.glob("*"))

    before = state()
    table = load_source("road-marking:classes=10:split=runs")
    assert (table.name, table.num_classes, table.groups is None) == ("road-marking:classes=10:split=runs", 10, False)
    assert load_source("road-marking:classes=9:split=random").name == "road-marking"
    assert state() == before


@given(source=st.text(max_size=30).filter(lambda text: text.strip("./~\\ ") != ""))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_any_text_gives_one_sentence(source: str) -> None:
    try:
        load_source(source, data_root="/nowhere", download=False)
    except EvenhandError as error:
        assert str(error)  # noqa: PT017
