"""Feature extraction by two real processes: they divide the same images, and a killed one holds up nobody."""

import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from evenhand.data.table import FilePixels
from evenhand.training import _feature_claims as claims
from evenhand.training import features
from evenhand.training.features import extract_features
from tests.data.pictures import noise, write
from tests.processes import begin, end_of
from tests.training.test_features import Counting

BY_TORCH = 10**9


class Slow(Counting):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        time.sleep(0.03)
        return super().forward(images)


@pytest.fixture(autouse=True)
def _by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph would not be counted, and its features may differ from torch's in the last digit of float16."""
    monkeypatch.setattr(features, "COMPILE_FROM", BY_TORCH)


def photos(root: Path, number: int) -> FilePixels:
    files = {f"{i:03}.png": noise(24, 30, seed=i) for i in range(number)}
    write(root, files)
    return FilePixels(root, list(files))


def extract(pixels: FilePixels, cache: Path, result: Path, batches: int) -> None:
    """Extract in chunks of so many batches; write the features and how many images were computed here."""
    claims.FIRST_BATCHES = claims.MOST_BATCHES = batches
    features.COMPILE_FROM = BY_TORCH  # in this process too
    backbone = Slow()
    values = extract_features(pixels, backbone, cache=cache, progress=False).values
    np.savez(result, values=values, computed=backbone.seen)


def start_two(pixels: list[FilePixels], tmp_path: Path, cache: Path, batches: int = 1) -> list:
    results = [tmp_path / f"{number}.npz" for number in range(2)]
    return [
        begin(extract, each, cache, result, batches, log=tmp_path / "log.txt")
        for each, result in zip(pixels, results, strict=True)
    ]


def computed(tmp_path: Path) -> list[int]:
    return [int(np.load(tmp_path / f"{number}.npz")["computed"]) for number in range(2)]


def test_two_processes_on_the_same_images_divide_them(tmp_path):
    pixels, cache = photos(tmp_path / "photos", 90), tmp_path / "cache"
    both = start_two([pixels, pixels], tmp_path, cache)
    assert [end_of(process) for process in both] == [0, 0]
    assert sum(computed(tmp_path)) == 90
    assert min(computed(tmp_path)) >= 12
    expected = extract_features(pixels, Counting(), cache=tmp_path / "fresh").values
    for number in range(2):
        assert_array_equal(np.load(tmp_path / f"{number}.npz")["values"], expected)
    assert not list(cache.rglob("claims/*.json"))


def test_two_processes_on_other_images_do_not_wait(tmp_path):
    pixels, cache = photos(tmp_path / "photos", 60), tmp_path / "cache"
    many, few = FilePixels(pixels.root, pixels.paths[12:]), FilePixels(pixels.root, pixels.paths[:12])
    long, short = start_two([many, few], tmp_path, cache, batches=100)
    assert end_of(short) == 0
    assert end_of(long) == 0
    assert computed(tmp_path) == [48, 12]
    assert not re.search("[Ww]aiting", (tmp_path / "log.txt").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_kills_while_two_processes_share_the_work(tmp_path, seed):
    """One of two is killed at a random moment, again and again; the other ends with the right features each time."""
    chance = random.Random(seed)
    pixels, cache = photos(tmp_path / "photos", 120), tmp_path / "cache"
    expected = extract_features(pixels, Counting(), cache=tmp_path / "fresh").values
    for _ in range(3):
        victim, other = start_two([pixels, pixels], tmp_path, cache, batches=chance.choice([1, 2, 5]))
        time.sleep(chance.uniform(0.05, 0.8))
        if victim.is_alive():
            os.kill(victim.pid, signal.SIGKILL)
        assert end_of(other) == 0
        victim.join()
        assert_array_equal(np.load(tmp_path / "1.npz")["values"], expected)
        stored = sorted(cache.rglob("*.npz"))
        for path in chance.sample(stored, len(stored) // 2):  # so that there is work for the next two
            path.unlink()
    extract_features(pixels, Counting(), cache=cache)
    assert not list(cache.rglob("claims/*.json"))
    assert_array_equal(extract_features(pixels, Counting(most=0), cache=cache).values, expected)
