"""Features: what a frozen network makes of every image, computed once and never reused wrongly."""

import contextlib
import logging
import os
import re
import resource
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from torchvision import transforms

from evenhand.core.errors import EvenhandError
from evenhand.data.table import ArrayPixels, FilePixels
from evenhand.models.backbone import Backbone, load_backbone
from evenhand.models.build import build_model
from evenhand.models.transform import InputTransform
from evenhand.models.weights import Weights
from evenhand.training import features as room
from evenhand.training.features import extract_features
from tests.data.memory import peak
from tests.data.pictures import encode, noise, smooth, write
from tests.processes import begin, call

TRANSFORM = InputTransform(resize_size=20, crop_size=16)


class Counting(Backbone):
    """A small network that counts the images it has seen, and can be made to stop."""

    def __init__(self, weights: str = "a", transform: InputTransform = TRANSFORM, most: int = 10**9) -> None:
        torch.manual_seed(0)
        network = build_model("resnet8", num_classes=2, image_size=transform.crop_size)
        super().__init__(network, transform, Weights(None, weights, "nowhere"))
        self.seen, self.most = 0, most

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.seen + len(images) > self.most:
            raise KeyboardInterrupt
        self.seen += len(images)
        return super().forward(images)


def folder_of(root: Path, number: int = 20) -> FilePixels:
    files = {f"{i}.png": noise(24, 30 + i, seed=i) for i in range(number)}
    write(root, files)
    return FilePixels(root, list(files))


@pytest.fixture
def pixels(tmp_path: Path) -> FilePixels:
    return folder_of(tmp_path / "photos")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_features_are_those_of_torchvisions_transforms_on_the_file(tmp_path, cache):
    """The real network; sizes that leave an even rest, where all agree on what the centre is."""
    files = {"wide.jpg": encode(smooth(300, 400), "JPEG", quality=95), "high.png": noise(280, 256)}
    write(tmp_path, files)
    backbone = load_backbone("lite0")
    found = extract_features(FilePixels(tmp_path, list(files)), backbone, mirrored=True, cache=cache).values
    theirs = transforms.Compose(
        [
            transforms.Resize(256, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((127 / 255,) * 3, (128 / 255,) * 3),
        ]
    )
    for row, name in enumerate(files):
        image = theirs(Image.open(tmp_path / name).convert("RGB"))
        with torch.no_grad():
            expected = backbone(torch.stack([image, image.flip(2)])).numpy()
        # The resized width of 341.3 px is cut off here as there, and 8-bit rounding is the same.
        assert_allclose(found[row], expected, atol=2e-3, rtol=2e-3)
    assert found.dtype == np.float16


@pytest.mark.parametrize("rule", ["shorter", "stretch"])
def test_arrays_and_files_of_the_same_pixels_agree(tmp_path, cache, rule):
    images = np.stack([noise(30, 24, seed=i) for i in range(3)])
    write(tmp_path, {f"{i}.png": image for i, image in enumerate(images)})
    backbone = Counting(
        transform=InputTransform(resize_size=20, crop_size=16, resize_rule=rule, interpolation="bicubic")
    )
    files = extract_features(FilePixels(tmp_path, ["0.png", "1.png", "2.png"]), backbone, cache=cache)
    arrays = extract_features(ArrayPixels(images), backbone, cache=cache)
    assert_array_equal(files.values, arrays.values)
    other = Counting(transform=InputTransform(resize_size=20, crop_size=16, resize_rule=rule))
    assert not np.array_equal(extract_features(ArrayPixels(images), other, cache=cache).values, arrays.values)


def test_nothing_is_computed_twice(pixels, cache, tmp_path):
    first = Counting()
    before = extract_features(pixels, first, cache=cache)
    assert first.seen == 20
    second = Counting(most=0)
    assert_array_equal(extract_features(pixels, second, cache=cache).values, before.values)
    # By content: neither place nor name of a file matter, and one picture twice is one.
    moved = tmp_path / "moved"
    shutil.move(pixels.root, moved)
    (moved / "0.png").rename(moved / "zero.png")
    shutil.copy(moved / "3.png", moved / "again.png")
    names = ["zero.png", *pixels.paths[1:], "again.png"]
    after = extract_features(FilePixels(moved, names), Counting(most=0), cache=cache)
    assert_array_equal(after.values[:20], before.values)
    assert_array_equal(after.values[20], before.values[3])


def test_the_same_picture_twice_is_computed_once(pixels, cache):
    shutil.copy(pixels.root / "3.png", pixels.root / "twin.png")
    backbone = Counting()
    found = extract_features(FilePixels(pixels.root, [*pixels.paths, "twin.png"]), backbone, cache=cache)
    assert backbone.seen == 20
    assert_array_equal(found.values[20], found.values[3])


def test_whatever_changes_the_features_makes_them_anew(pixels, cache):
    extract_features(pixels, Counting(), cache=cache)
    for other in (
        Counting(weights="b"),
        Counting(transform=InputTransform(resize_size=21, crop_size=16)),
        Counting(transform=InputTransform(resize_size=20, crop_size=16, interpolation="bicubic")),
        Counting(transform=InputTransform(resize_size=20, crop_size=16, mean=(0.5, 0.5, 0.5))),
    ):
        extract_features(pixels, other, cache=cache)
        assert other.seen == 20
    write(pixels.root, {"7.png": noise(24, 37, seed=99)})
    changed = Counting()
    extract_features(pixels, changed, cache=cache)
    assert changed.seen == 1
    boxes = np.tile(np.array([2, 2, 22, 22]), (20, 1))
    boxed = Counting()
    extract_features(FilePixels(pixels.root, pixels.paths, boxes), boxed, cache=cache)
    assert boxed.seen == 20
    mirrored = Counting()
    values = extract_features(pixels, mirrored, mirrored=True, cache=cache).values
    assert mirrored.seen == 20
    assert values.shape == (20, 2, 64)
    assert not np.array_equal(values[:, 0], values[:, 1])


def test_a_mirrored_view_is_the_mirror_image(tmp_path, cache):
    image = noise(20, 20)
    both = extract_features(ArrayPixels(image[None]), Counting(), mirrored=True, cache=cache).values
    flipped = extract_features(ArrayPixels(image[None, :, ::-1]), Counting(), cache=tmp_path / "other").values
    assert_array_equal(both[0, 1], flipped[0, 0])


def test_an_interrupted_extraction_goes_on_where_it_stopped(pixels, cache):
    with pytest.raises(KeyboardInterrupt):
        extract_features(pixels, Counting(most=18), cache=cache)
    rest = Counting()
    found = extract_features(pixels, rest, cache=cache)
    assert rest.seen == 2
    assert_array_equal(found.values, extract_features(pixels, Counting(), cache=cache.parent / "fresh").values)


class Killed(Counting):
    """Ends its process after 24 images."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.seen >= 24:
            os._exit(9)
        return super().forward(images)


def extract_and_end(photos: Path, cache: Path) -> None:
    room.SAVE_EVERY = 0.0
    extract_features(folder_of(photos, 40), Killed(), cache=cache)


def test_a_killed_extraction_keeps_what_was_saved(tmp_path, cache):
    pixels = folder_of(tmp_path / "photos", 40)
    assert call(extract_and_end, pixels.root, cache, log=tmp_path / "log.txt") == 9
    rest = Counting()
    extract_features(pixels, rest, cache=cache)
    assert rest.seen == 16
    assert not list(cache.rglob("*.part"))


@pytest.mark.parametrize("damage", ["cut", "text", "empty", "flipped"])
def test_damaged_parts_are_computed_again(pixels, cache, damage, caplog):
    before = extract_features(pixels, Counting(), cache=cache)
    (part,) = cache.rglob("*.npz")
    content = part.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0xFF
    part.write_bytes({"cut": content[:-100], "text": b"<html>", "empty": b"", "flipped": bytes(flipped)}[damage])
    again = Counting()
    with caplog.at_level(logging.WARNING, "evenhand"):
        after = extract_features(pixels, again, cache=cache)
    assert again.seen == 20
    assert str(part) in caplog.text
    assert len(caplog.records) == 1
    assert_array_equal(after.values, before.values)
    extract_features(pixels, Counting(most=0), cache=cache)
    assert len(caplog.records) == 1  # told once


def test_a_foreign_part_is_not_used(pixels, cache, caplog):
    """Someone has put features to other weights where these would be."""
    extract_features(pixels, Counting(weights="b"), cache=cache)
    (foreign,) = cache.rglob("*.npz")
    store = room.open_store(cache, Counting(weights="a"), mirror=False)
    store.folder.mkdir()
    shutil.copy(foreign, store.folder)
    ours = Counting(weights="a")
    with caplog.at_level(logging.WARNING, "evenhand"):
        extract_features(pixels, ours, cache=cache)
    assert ours.seen == 20
    assert "to other weights" in caplog.text
    assert (store.folder / foreign.name).read_bytes() == foreign.read_bytes()  # good somewhere else, so not removed


def test_where_nothing_can_be_written_it_goes_on(pixels, cache, caplog):
    expected = extract_features(pixels, Counting(), cache=cache).values
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with caplog.at_level(logging.WARNING, "evenhand"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # any longer file fails, as on a full disk
        try:
            found = extract_features(pixels, Counting(), cache=cache.parent / "full")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_array_equal(found.values, expected)
    assert len(caplog.records) == 1
    assert "not stored for the next run" in caplog.text
    assert [path.name for path in (cache.parent / "full").rglob("*") if path.is_file()] in ([], ["lock"])
    (cache.parent / "file").touch()
    with caplog.at_level(logging.WARNING, "evenhand"):
        found = extract_features(pixels, Counting(), cache=cache.parent / "file" / "below")
    assert_array_equal(found.values, expected)


def test_damaged_pictures_are_named_and_the_others_kept(pixels, cache):
    write(pixels.root, {"4.png": b"", "5.png": b"no picture", "6.png": encode(noise(24, 36))[:200]})
    (pixels.root / "7.png").unlink()
    with pytest.raises(EvenhandError) as caught:
        extract_features(pixels, Counting(), cache=cache)
    text = str(caught.value)
    assert text.startswith("4 of 20 images cannot be read: 4.png (the file is empty), 5.png (it is not an image")
    assert text.endswith("--skip-bad leaves them out.")
    again = Counting(most=0)
    found = extract_features(pixels, again, skip_bad=True, cache=cache)
    assert sorted(found.bad) == [4, 5, 6, 7]
    assert not found.values[[4, 5, 6, 7]].any()
    assert found.values[[0, 1, 2, 3, *range(8, 20)]].any(axis=(1, 2)).all()


def test_weights_of_no_use_are_refused(pixels, cache):
    broken = Counting()
    for parameter in broken.parameters():
        parameter.fill_(np.nan)
    with pytest.raises(EvenhandError, match="resnet8 gives features that are NaN or beyond float16; use other weights"):
        extract_features(pixels, broken, cache=cache)
    assert not list(cache.rglob("*.npz"))


class Held(Counting):
    """Begins its first batch, and goes on when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = threading.Event(), threading.Event()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.begun.set()
        assert self.let_go.wait(60)
        return super().forward(images)


def some(pixels: FilePixels, start: int, end: int) -> FilePixels:
    return FilePixels(pixels.root, pixels.paths[start:end])


@contextlib.contextmanager
def holding(pixels: FilePixels, cache: Path) -> Iterator[Held]:
    """Another job that has claimed these images and does not get on until it is let go."""
    other = Held()
    thread = threading.Thread(target=extract_features, args=(pixels, other), kwargs={"cache": cache})
    thread.start()
    assert other.begun.wait(60)
    try:
        yield other
    finally:
        other.let_go.set()
        thread.join()


def test_two_at_once_share_the_work(pixels, cache, monkeypatch):
    monkeypatch.setattr("evenhand.training._feature_claims.FIRST_BATCHES", 1)
    backbones = [Counting(), Counting()]
    results = {}

    def work(number: int) -> None:
        results[number] = extract_features(pixels, backbones[number], cache=cache).values

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(backbone.seen for backbone in backbones) == 20
    assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(("first", "second"), [((0, 10), (10, 20)), ((0, 1), (1, 20)), ((5, 20), (0, 5))])
def test_jobs_on_other_images_do_not_wait(pixels, cache, caplog, first, second):
    with caplog.at_level(logging.INFO, "evenhand"), holding(some(pixels, *first), cache):
        mine = Counting()
        extract_features(some(pixels, *second), mine, cache=cache)
        assert mine.seen == second[1] - second[0]
    assert "Waiting" not in caplog.text


@pytest.mark.parametrize(("shared", "rest"), [(10, 5), (10, 0), (1, 9)])
def test_only_images_that_another_computes_are_waited_for(pixels, cache, caplog, shared, rest):
    mine = Counting()
    wanted = some(pixels, 10 - shared, 10 + rest)
    waiting = threading.Thread(target=extract_features, args=(wanted, mine), kwargs={"cache": cache})
    with caplog.at_level(logging.INFO, "evenhand"):
        with holding(some(pixels, 0, 10), cache) as other:
            waiting.start()
            deadline = time.monotonic() + 60
            while "Waiting" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.01)
        waiting.join()
    assert (other.seen, mine.seen) == (10, rest)
    images = f"{shared} image" + "s" * (shared != 1)
    named = rf"Waiting for features of resnet8 from process {os.getpid()} \({images}, since \d\d:\d\d:\d\d\)\."
    assert re.search(named, caplog.text)
    expected = extract_features(wanted, Counting(), cache=cache.parent / "fresh").values
    assert_array_equal(extract_features(wanted, Counting(most=0), cache=cache).values, expected)


def extract_without_end(photos: Path, cache: Path, begun: Path) -> None:
    class Endless(Counting):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            begun.touch()
            time.sleep(600)
            return super().forward(images)

    extract_features(folder_of(photos), Endless(), cache=cache)


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
def test_a_killed_or_suspended_process_holds_up_nobody(pixels, cache, tmp_path, monkeypatch, signal_name):
    other = begin(extract_without_end, pixels.root, cache, tmp_path / "begun", log=tmp_path / "log.txt")
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(other.pid, getattr(signal, signal_name))
        if signal_name == "SIGSTOP":
            monkeypatch.setattr("evenhand.training._feature_claims.PATIENCE", 0.3)
        mine = Counting()
        extract_features(pixels, mine, cache=cache)
        assert mine.seen == 20
        if signal_name == "SIGKILL":
            assert not list(cache.rglob("claims/*.json"))  # tidied up
    finally:
        other.kill()
        other.join()


@pytest.mark.parametrize(
    "trouble", [OSError(5, "Input/output error"), PermissionError(13, "no"), OSError(24, "many"), MemoryError()]
)
def test_a_part_that_is_unreadable_for_now_is_kept(pixels, cache, monkeypatch, caplog, trouble):
    before = extract_features(pixels, Counting(), cache=cache)
    (part,) = cache.rglob("*.npz")
    again = Counting()
    with monkeypatch.context() as now, caplog.at_level(logging.WARNING, "evenhand"):
        now.setattr("zipfile.ZipFile.__init__", lambda *_, **__: (_ for _ in ()).throw(trouble))
        now.setattr("evenhand.training._feature_cache.FeatureStore.add", lambda *_: True)
        assert_array_equal(extract_features(pixels, again, cache=cache).values, before.values)
    assert again.seen == 20
    assert str(part) in caplog.text
    assert_array_equal(extract_features(pixels, Counting(most=0), cache=cache).values, before.values)


def test_without_a_terminal_lines_say_how_far_it_is(pixels, cache, caplog, monkeypatch):
    monkeypatch.setattr("evenhand.data.reading.EVERY", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with caplog.at_level(logging.INFO, "evenhand"):
        extract_features(pixels, Counting(), cache=cache)
    lines = [record.message for record in caplog.records if record.message.startswith("Computing features")]
    assert re.fullmatch(r"Computing features: 6 of 20, [\d,]+ images/s, [\d,]+ s left", lines[0])
    assert lines[-1].startswith("Computing features: 20 of 20, ")
    assert lines[-1].endswith(" images/s, 0 s left")
    caplog.clear()
    with caplog.at_level(logging.INFO, "evenhand"):
        extract_features(pixels, Counting(), cache=cache.parent / "quiet", progress=False)
    assert not caplog.records


def test_grey_pictures_are_shown_three_times_over(tmp_path, cache):
    write(tmp_path, {"grey.png": noise(24, 24, channels=1)})
    grey = extract_features(FilePixels(tmp_path, ["grey.png"]), Counting(), cache=cache).values
    colour = extract_features(ArrayPixels(noise(24, 24, channels=1)[None].repeat(3, axis=3)), Counting(), cache=cache)
    assert_array_equal(grey, colour.values)


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    """Beyond the features themselves, 800 images take no more than 80: their pixels would be 150 MB."""
    assert call(measure_memory, tmp_path, log=tmp_path / "log.txt") == 0, (tmp_path / "log.txt").read_text()


def measure_memory(root: Path) -> None:
    torch.set_num_threads(1)
    content = encode(noise(256, 256), "JPEG", quality=20)
    for i in range(800):
        (root / f"{i}.jpg").write_bytes(content + i.to_bytes(4, "big"))
    backbone = Counting(transform=InputTransform(resize_size=256, crop_size=32))
    peaks: list[int] = []
    for number in (80, 80, 800):
        pixels = FilePixels(root, [f"{i}.jpg" for i in range(number)])
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        extract_features(pixels, backbone, cache=root / f"cache{len(peaks)}")
        peaks.append(peak() - before)
    assert peaks[2] < peaks[1] + 12e6, peaks
