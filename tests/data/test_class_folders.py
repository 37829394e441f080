"""Known data sets that are class folders in the data root."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.sources import load_source
from evenhand.data.standard import CIFAR10, FASHION_MNIST
from evenhand.paper.api import load_study_source


def write_classes(folder: Path, names: list[str], splits: tuple[str, ...] = ("train", "test")) -> None:
    for split in splits:
        for k, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            Image.fromarray(np.full((28, 28), k % 256, np.uint8)).save(folder / split / name / "1.png")


def test_folders_of_official_names_get_the_official_order(tmp_path: Path) -> None:
    write_classes(tmp_path / "fashion-mnist", [name.replace("/", "_") for name in FASHION_MNIST.class_names])
    table = load_source("fashion-mnist", data_root=tmp_path, download=False)
    assert (table.name, table.class_names) == ("fashion-mnist", FASHION_MNIST.class_names)
    for name, label in zip(table.ids.tolist(), table.labels.tolist(), strict=True):
        assert name.split("/")[1].replace("_", "/") == FASHION_MNIST.class_names[label]
    assert table.info == FASHION_MNIST.info
    assert "not checked against the official files" in table.notes[0]
    assert "10 of 60,000 training images" in table.notes[1]


def test_numbered_folders_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    write_classes(tmp_path / "tiny-imagenet", [str(k) for k in range(200)])
    table = load_source("tiny-imagenet", data_root=tmp_path, download=False)
    labels = [int(name.split("/")[1]) for name in table.ids.tolist()]
    assert table.labels.tolist() == labels


def test_other_names_are_sorted(tmp_path: Path) -> None:
    names = [f"n{k:02d}" for k in range(10)]
    write_classes(tmp_path / "cifar10", names)
    assert load_source("cifar10", data_root=tmp_path, download=False).class_names == tuple(names)


def test_too_few_classes_or_no_test_folder_is_one_sentence(tmp_path: Path) -> None:
    write_classes(tmp_path / "few" / "cifar10", list(CIFAR10.class_names[:9]))
    with pytest.raises(EvenhandError, match=r"cifar10 has 9 class folders, .* but CIFAR-10 has 10 classes; complete"):
        load_source("cifar10", data_root=tmp_path / "few", download=False)
    write_classes(tmp_path / "no" / "cifar10", list(CIFAR10.class_names), ("train", "val"))
    with pytest.raises(EvenhandError, match="but no test folder"):
        load_source("cifar10", data_root=tmp_path / "no", download=False)


def test_missing_data_name_the_folders_and_for_a_study_the_option(tmp_path: Path) -> None:
    folders = r"cifar-100-python\.tar\.gz into \S+, or class folders into \S+/cifar100/train and /test"
    with pytest.raises(EvenhandError, match=rf"^Cannot find cifar100, .*{folders}\.$"):
        load_source("cifar100", data_root=tmp_path, download=False)
    (tmp_path / "cifar100").mkdir()  # without classes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("https_proxy", "http://127.0.0.1:1")
        with pytest.raises(EvenhandError, match=rf"{folders}; or name other data with --source\.$"):
            load_study_source("cifar100", str(tmp_path))
