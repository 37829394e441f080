"""Images of a table: sizes, channels, memory, streaming and statistics."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from evenhand.core.errors import EvenhandError
from evenhand.data import images as module
from evenhand.data.decode import read_image
from evenhand.data.images import Images, MemoryImages, StreamedImages, open_images
from evenhand.data.reading import Threads
from evenhand.data.table import ArrayPixels, DatasetInfo, FilePixels, SampleTable
from tests.processes import call
from tests.real_data import DATA, needs

from . import memory
from .pictures import noise, table_of, turned_late, write, written


def array_table(images: np.ndarray, **info: object) -> SampleTable:
    count = len(images)
    return SampleTable(
        "array",
        ("a",),
        np.zeros(count, np.int64),
        np.arange(count).astype(str),
        ArrayPixels(images),
        info=DatasetInfo(**info),
    )


@pytest.mark.parametrize(
    ("shapes", "wanted", "size", "stored"),
    [
        ([(28, 28), (28, 28)], None, 28, [(28, 28), (28, 28)]),
        ([(96, 96), (96, 96)], None, 96, [(96, 96), (96, 96)]),
        ([(97, 97), (97, 97)], None, 64, [(64, 64), (64, 64)]),
        ([(20, 30), (20, 30)], None, 64, [(64, 96), (64, 96)]),
        ([(32, 32), (32, 33)], None, 64, [(64, 64), (64, 66)]),
        ([(32, 32), (48, 32)], 32, 32, [(32, 32), (48, 32)]),
        ([(100, 200), (10, 5)], 16, 16, [(16, 32), (32, 16)]),
    ],
)
@pytest.mark.parametrize("budget", [None, 0])
def test_sizes(
    tmp_path: Path,
    shapes: list[tuple[int, int]],
    wanted: int | None,
    size: int,
    stored: list[tuple[int, int]],
    budget: int | None,
) -> None:
    table = written(tmp_path / "data", {f"{i}.png": noise(*shape, seed=i) for i, shape in enumerate(shapes)})
    images = open_images(table, image_size=wanted, cache=tmp_path / "cache", budget=budget)
    assert images.image_size == size
    assert images.sizes.tolist() == [list(shape) for shape in stored]
    assert isinstance(images, MemoryImages if budget is None else StreamedImages)
    for row, shape in enumerate(shapes):
        assert images[row].shape == (*stored[row], 3)
        if shape == stored[row]:
            assert (images[row] == noise(*shape, seed=row)).all()


def test_the_facts_say_the_size_unless_the_user_does() -> None:
    table = array_table(np.zeros((2, 20, 20, 1), np.uint8), image_size=10)
    assert open_images(table).image_size == 10
    assert open_images(table, image_size=12).image_size == 12
    with pytest.raises(EvenhandError, match="at least 1 pixel, got 0"):
        open_images(table, image_size=0)
    with pytest.raises(EvenhandError, match="has no images"):
        open_images(array_table(np.zeros((0, 20, 20, 1), np.uint8)))


def test_one_channel_only_if_every_image_is_grey(tmp_path: Path) -> None:
    grey = written(tmp_path / "grey", {"0.png": noise(8, 8, 1), "1.png": noise(8, 8, 1, seed=1)})
    images = open_images(grey, cache=tmp_path / "cache")
    assert images.channels == 1
    assert (images[1] == noise(8, 8, 1, seed=1)).all()
    both = written(tmp_path / "both", {"0.png": noise(8, 8, 1), "1.png": noise(8, 8, 3)})
    images = open_images(both, cache=tmp_path / "cache")
    assert images.channels == 3
    assert (images[0] == noise(8, 8, 1)).all()


def test_boxes(tmp_path: Path) -> None:
    write(tmp_path / "data", {"0.png": noise(30, 40)})
    boxes = np.array([[0, 0, 16, 16], [5, 6, 21, 22], [-4, 20, 12, 99]])
    images = open_images(table_of(tmp_path / "data", ["0.png"] * 3, boxes), cache=tmp_path / "cache", image_size=10)
    assert images.sizes.tolist() == [[10, 10], [10, 10], [10, 12]]
    assert (images[1] == read_image(tmp_path / "data/0.png", boxes[1], image_size=10)).all()
    outside = table_of(tmp_path / "data", ["0.png"] * 2, np.array([[0, 0, 5, 5], [50, 0, 60, 5]]))
    with pytest.raises(EvenhandError, match=r"0\.png \(the box \(50, 0, 60, 5\) is outside its 40 x 30 pixels\)"):
        open_images(outside, cache=tmp_path / "cache")


def test_a_turn_that_stands_behind_the_pixels(tmp_path: Path) -> None:
    """The header promises 4 x 6; only decoding shows that it is 6 x 4."""
    files = {"0.png": noise(4, 6, seed=1), "1.png": turned_late(noise(4, 6)), "2.png": noise(4, 6, seed=2)}
    table = written(tmp_path / "data", files)
    for budget in (None, 0):
        for _ in range(2):
            images = open_images(table, cache=tmp_path / str(budget), image_size=4, budget=budget)
            assert images.sizes.tolist() == [[4, 6], [6, 4], [4, 6]]
            assert (images[1] == np.rot90(noise(4, 6), -1)).all()
            assert (images[2] == noise(4, 6, seed=2)).all()


def test_an_array_is_used_as_it_is() -> None:
    array = noise(6 * 8, 8, 3).reshape(6, 8, 8, 3)
    images = open_images(array_table(array), budget=0)
    assert isinstance(images, MemoryImages)
    assert images.pixels.data_ptr() == array.ctypes.data
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_images(array_table(array)).statistics(np.arange(6))


def test_an_array_is_resized_in_memory_or_on_demand() -> None:
    array = noise(5 * 100, 120, 3).reshape(5, 100, 120, 3)
    memory, streamed = open_images(array_table(array)), open_images(array_table(array), budget=1000)
    assert isinstance(memory, MemoryImages)
    assert isinstance(streamed, StreamedImages)
    for row in range(5):
        assert memory[row].shape == (64, 76, 3)
        assert (memory[row] == streamed[row]).all()


@pytest.mark.parametrize("budget", [None, 0])
def test_statistics(tmp_path: Path, budget: int | None) -> None:
    shapes = [(16, 16), (16, 20), (40, 16)]
    files = {f"{i}.png": noise(*shape, seed=i) // (i + 1) for i, shape in enumerate(shapes)}
    images = open_images(written(tmp_path / "data", files), image_size=16, cache=tmp_path / "cache", budget=budget)
    pixels = np.concatenate([files["0.png"].reshape(-1, 3), files["2.png"].reshape(-1, 3)]) / 255
    mean, std = images.statistics(np.array([0, 2]))
    np.testing.assert_allclose(mean, pixels.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, pixels.std(0), rtol=1e-12)


def test_a_constant_channel_has_no_deviation() -> None:
    array = noise(4 * 8, 8, 3).reshape(4, 8, 8, 3).copy()
    array[..., 1] = 77
    mean, std = open_images(array_table(array)).statistics(np.arange(4))
    assert mean[1] == 77 / 255
    assert std[1] == 0
    assert min(std[0], std[2]) > 0.2


def test_statistics_of_many_streamed_images_are_those_of_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = written(tmp_path / "data", {f"{i}.png": noise(8, 8, seed=i) for i in range(40)})
    rows = np.arange(40)
    memory = open_images(table, cache=tmp_path / "cache").statistics(rows)
    streamed = open_images(table, cache=tmp_path / "cache", budget=0)
    assert streamed.statistics(rows) == memory
    monkeypatch.setattr(module, "STATISTICS_SAMPLE", 20)
    sample = streamed.statistics(rows)
    assert sample == streamed.statistics(rows) != memory
    np.testing.assert_allclose(sample, memory, atol=0.05)


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    table = written(tmp_path / "data", {f"{i}.png": noise(8 + i % 3, 9, seed=i) for i in range(100)})
    one, three = (open_images(table, cache=tmp_path / str(n), workers=n) for n in (1, 3))
    assert isinstance(one, MemoryImages)
    assert isinstance(three, MemoryImages)
    assert torch.equal(one.pixels, three.pixels)
    assert (one.sizes == three.sizes).all()


def test_nothing_is_printed_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    open_images(written(tmp_path / "data", {"0.png": noise(8, 8)}), cache=tmp_path / "cache")
    assert capfd.readouterr() == ("", "")


def test_progress_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    table = written(tmp_path / "data", {"0.png": noise(8, 8)})
    open_images(table, cache=tmp_path / "cache", progress=False)
    assert capsys.readouterr() == ("", "")
    open_images(table, cache=tmp_path / "other")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Decoding images" in printed.err


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_memory_stays_within_the_budget_and_a_batch(tmp_path: Path) -> None:
    """1,536 images of 64 x 64 and more: about 18 MB of pixels; a batch of 128 as floats: 6 MB."""
    log = tmp_path / "log.txt"
    assert call(memory.main, tmp_path, log=log) == 0, log.read_text()
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["kind"] for each in found] == 2 * ["MemoryImages", "MemoryImages", "StreamedImages"]
    batch = 128 * 64 * 64 * 3 * 4
    spare = 2**20 + 2**20  # the block in which the cache is read, and whatever else a process does
    for each in found:
        assert each["opened"] <= each["budget"] + spare
        # A batch is there as pixels and as floats for a moment.
        assert each["served"] <= each["budget"] + batch + batch // 4 + spare


@needs("road-marking")
def test_road_marking_boxes(tmp_path: Path) -> None:
    root = DATA / "road-marking"
    rows = [line.split(",") for line in (root / "dataset_annotations.txt").read_text().splitlines()[:24]]
    paths = ["images/" + Path(row[9].strip()).with_suffix(".jpg").name for row in rows]
    corners = np.array([[float(value) for value in row[:8]] for row in rows])
    x, y = corners[:, :4], corners[:, 4:]
    boxes = np.stack([x.min(1), y.min(1), x.max(1) + 1, y.max(1) + 1], 1).astype(np.int64)
    table = SampleTable(
        "road", ("all",), np.zeros(24, np.int64), np.arange(24).astype(str), FilePixels(root, paths, boxes)
    )
    for budget in (None, 0):
        images = open_images(table, cache=tmp_path, budget=budget)
        assert (images.image_size, images.channels, len(images.bad)) == (64, 3, 0)
        assert (images.sizes.min(1) == 64).all()
        assert len(np.unique(images.sizes)) > 3
    # Paint is brighter than the road: the middle of the cut-outs holds both.
    assert all(int(np.ptp(images[row])) > 60 for row in range(24))


@needs("samples/tiny-imagenet-200")
def test_tiny_imagenet_with_its_grey_images(tmp_path: Path) -> None:
    root = DATA / "samples/tiny-imagenet-200/train"
    paths = sorted(str(path.relative_to(root)) for path in root.glob("*/images/*.JPEG"))
    images: Images = open_images(table_of(root, paths), cache=tmp_path)
    assert (images.image_size, images.channels, len(images)) == (64, 3, len(paths))
    assert isinstance(images, MemoryImages)
    assert (images.sizes == 64).all()
    mean, std = images.statistics(np.arange(len(images)))
    assert all(0.3 < value < 0.6 for value in mean)
    assert all(0.2 < value < 0.35 for value in std)


def test_a_pipe_hears_how_far_it_is(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("evenhand.data.reading.EVERY", 0.0)
    with caplog.at_level("INFO", logger="evenhand"):
        threads = Threads(1, True)
        assert sum(threads.map(len, np.arange(100), "Counting")) == 100
        told = [record.getMessage() for record in caplog.records]
        assert [line.split(",")[0] for line in told] == [f"Counting: {done} of 100" for done in (32, 64, 96, 100)]
        assert told[-1].endswith(" images/s, 0 s left")
        caplog.clear()
        list(Threads(1, False).map(len, np.arange(100), "Counting"))
        assert not caplog.records
