"""Batches: every image once, each cut at its own place, the same whatever serves them."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evenhand.core.errors import EvenhandError
from evenhand.data.batches import Batch, Batches, Preprocessing, make_preprocessing, mirror_twins
from evenhand.data.images import Images, MemoryImages, StreamedImages, open_images
from evenhand.data.table import ArrayPixels, DatasetInfo, SampleTable
from tests.processes import call

from .pictures import encode, noise, table_of, write, written

PLAIN = Preprocessing(crop_size=16, mean=(0.0,) * 3, std=(1.0,) * 3)
"""Leaves pixels as they are, but for a factor of 255."""


def coordinates(height: int, width: int, blue: int = 255) -> NDArray[np.uint8]:
    """An image whose every pixel says where it is: red its line, green its column, both from 1."""
    y, x = np.mgrid[1 : height + 1, 1 : width + 1]
    return np.stack([y, x, np.full_like(x, blue)], 2).astype(np.uint8)


def array_table(images: NDArray[np.uint8], class_names: tuple[str, ...] = ("a", "b"), **info: object) -> SampleTable:
    count = len(images)
    labels, ids = np.arange(count) % len(class_names), np.arange(count).astype(str)
    return SampleTable("array", class_names, labels, ids, ArrayPixels(images), info=DatasetInfo(**info))


def pixels_of(images: torch.Tensor) -> NDArray[np.uint8]:
    """Back to uint8, (B, S, S, C)."""
    return (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def place(crop: NDArray[np.uint8]) -> tuple[int, int, bool]:
    """Read off a crop of `coordinates` where it was cut and whether it is mirrored."""
    y, x = np.argwhere(crop[..., 2])[len(crop) // 2]
    flipped = bool(np.any(np.diff(crop[..., 1].astype(int), axis=1)[y, 4:-4] < 0))
    upright = crop[:, ::-1] if flipped else crop
    y, x = np.argwhere(upright[..., 2])[0]
    return int(upright[y, x, 0]) - 1 - int(y), int(upright[y, x, 1]) - 1 - int(x), flipped


def reference(image: NDArray[np.uint8], top: int, left: int, flipped: bool, size: int) -> NDArray[np.uint8]:
    """Pad, cut and mirror one image in plain numpy."""
    padded = np.pad(image, ((size, size), (size, size), (0, 0)))
    crop = padded[size + top : 2 * size + top, size + left : 2 * size + left]
    return crop[:, ::-1] if flipped else crop


@pytest.fixture(params=["equal", "mixed"])
def sources(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SampleTable, Images, Images]:
    """300 images in memory and the same streamed."""
    shapes = [(16, 16)] * 5 if request.param == "equal" else [(16, 16), (16, 40), (30, 16), (16, 17), (16, 21)]
    files = {f"{i}.png": coordinates(*shape, blue=255 - i) for i, shape in enumerate(shapes)}
    write(tmp_path / "data", files)
    table = table_of(tmp_path / "data", list(files) * 60)
    memory = open_images(table, cache=tmp_path / "cache", image_size=16)
    streamed = open_images(table, cache=tmp_path / "cache", image_size=16, budget=0)
    assert isinstance(memory, MemoryImages)
    assert isinstance(streamed, StreamedImages)
    return table, memory, streamed


def epoch(images: Images, labels: NDArray[np.int64], seed: int = 0, number: int = 0, workers: int = 0) -> list[Batch]:
    batches = Batches(images, labels, np.arange(len(images)), PLAIN, batch_size=64, workers=workers)
    return list(batches.train(seed, number))


def joined(batches: list[Batch]) -> Batch:
    images, labels, rows = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels), torch.cat(rows)


def test_every_image_is_cut_at_its_own_place(sources: tuple[SampleTable, Images, Images]) -> None:
    table, memory, streamed = sources
    for images in (memory, streamed):
        crops, labels, rows = joined(epoch(images, table.labels))
        assert crops.dtype == torch.float32
        assert crops.is_contiguous()
        assert sorted(rows.tolist()) == list(range(300))
        assert (labels.numpy() == table.labels[rows]).all()
        places = [place(crop) for crop in pixels_of(crops)]
        for row, crop, (top, left, flipped) in zip(rows.tolist(), pixels_of(crops), places, strict=True):
            height, width = images.sizes[row]
            assert -4 <= top <= height + 4 - 16
            assert -4 <= left <= width + 4 - 16
            assert (crop == reference(images[row], top, left, flipped, 16)).all()
        # Within the first batch already, nearly all images have places of their own.
        assert len(set(places[:64])) > 40


def test_places_are_uniform_and_half_the_images_are_mirrored() -> None:
    table = array_table(np.tile(coordinates(16, 16), (4000, 1, 1, 1)))
    images = open_images(table)
    found = np.array([place(crop) for crop in pixels_of(joined(epoch(images, table.labels))[0])])
    counts = np.zeros((9, 9))
    np.add.at(counts, (found[:, 0] + 4, found[:, 1] + 4), 1)
    assert ((counts - 4000 / 81) ** 2 / (4000 / 81)).sum() < 120  # chi-square, 80 degrees of freedom: 99.7%
    assert abs(found[:, 2].mean() - 0.5) < 0.03


def test_the_border_is_black_before_normalisation() -> None:
    table = array_table(np.full((50, 16, 16, 3), 255, np.uint8))
    preprocessing = Preprocessing(crop_size=16, mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 2.0))
    crops, *_ = next(Batches(open_images(table), table.labels, np.arange(50), preprocessing).train(0, 0))
    for channel, (black, white) in enumerate([(-1.0, 1.0), (-1.0, 3.0), (0.0, 0.5)]):
        assert set(crops[:, channel].unique().tolist()) == {black, white}


def test_without_flip_and_padding_nothing_is_left_to_chance() -> None:
    table = array_table(noise(20 * 16, 16).reshape(20, 16, 16, 3))
    preprocessing = Preprocessing(crop_size=16, mean=(0.0,) * 3, std=(1.0,) * 3, padding=0, flip=False)
    crops, _, rows = next(Batches(open_images(table), table.labels, np.arange(20), preprocessing).train(0, 0))
    assert isinstance(table.pixels, ArrayPixels)
    assert (pixels_of(crops) == table.pixels.images[rows]).all()


def test_streamed_and_memory_images_give_the_same_batches(sources: tuple[SampleTable, Images, Images]) -> None:
    table, memory, streamed = sources
    for workers in (0, 2):
        for one, other in zip(
            epoch(memory, table.labels, 3, 1), epoch(streamed, table.labels, 3, 1, workers), strict=True
        ):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    tests = (Batches(images, table.labels, np.arange(300), PLAIN).test() for images in (memory, streamed))
    for one, other in zip(*tests, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_processes_share_a_batch(sources: tuple[SampleTable, Images, Images]) -> None:
    table, *both = sources
    for images in both:
        batches = Batches(images, table.labels, np.arange(300), PLAIN, batch_size=60)
        each = [Batches(images, table.labels, np.arange(300), PLAIN, 60, rank=rank, world=3) for rank in range(3)]
        shares = zip(*(own.train(0, 0) for own in each), strict=True)
        for whole, parts in zip(batches.train(0, 0), shares, strict=True):
            for rank, part in enumerate(parts):
                assert all(torch.equal(a[rank::3], b) for a, b in zip(whole, part, strict=True))
        tested = joined(list(batches.test()))
        for rank in range(3):
            part = joined(list(each[rank].test()))
            assert all(torch.equal(a[rank::3], b) for a, b in zip(tested, part, strict=True))


def test_a_seed_and_an_epoch_say_everything(sources: tuple[SampleTable, Images, Images]) -> None:
    table, memory, _ = sources
    first = joined(epoch(memory, table.labels, 0, 0))
    torch.rand(3), np.random.rand(3)  # noqa: NPY002 - other users of randomness change nothing
    again = joined(epoch(memory, table.labels, 0, 0))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, number in [(0, 1), (1, 0)]:
        assert not torch.equal(first[2], joined(epoch(memory, table.labels, seed, number))[2])


def test_global_randomness_is_left_alone(sources: tuple[SampleTable, Images, Images]) -> None:
    table, memory, streamed = sources
    before = torch.random.get_rng_state()
    epoch(memory, table.labels)
    epoch(streamed, table.labels)
    assert torch.equal(before, torch.random.get_rng_state())


FORTY = {f"{i}.png": noise(16, 16 + i % 2, seed=i) for i in range(40)}


def digest_of_batches(root: Path, budget: int | None = None) -> str:
    table, digest = table_of(root / "data", list(FORTY)), hashlib.sha256()
    images = open_images(table, cache=root / "cache", image_size=16, budget=budget)
    for batch in Batches(images, table.labels, np.arange(40), PLAIN, batch_size=16).train(5, 2):
        for part in batch:
            digest.update(part.numpy().tobytes())
    return digest.hexdigest()


def tell_digest(root: Path) -> None:
    torch.set_num_threads(2)
    (root / "digest").write_text(digest_of_batches(root))


def test_other_processes_give_the_same_batches(tmp_path: Path) -> None:
    written(tmp_path / "data", FORTY)
    streamed = digest_of_batches(tmp_path, budget=0)
    assert call(tell_digest, tmp_path, log=tmp_path / "log.txt") == 0, (tmp_path / "log.txt").read_text()
    assert (tmp_path / "digest").read_text() == streamed


@pytest.mark.slow
def test_names_are_hashed_otherwise_and_batches_are_the_same(tmp_path: Path) -> None:
    written(tmp_path / "data", FORTY)
    root = str(tmp_path)
    program = f"from pathlib import Path; from tests.data.test_batches import tell_digest; tell_digest(Path({root!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], env=environment, check=True)
    assert (tmp_path / "digest").read_text() == digest_of_batches(tmp_path, budget=0)


def test_test_batches_are_centred_and_in_order(sources: tuple[SampleTable, Images, Images]) -> None:
    table, memory, _ = sources
    rows = np.array([7, 3, 299, 4, 4])
    preprocessing = Preprocessing(crop_size=12, mean=(0.0,) * 3, std=(1.0,) * 3)
    crops, labels, served = joined(list(Batches(memory, table.labels, rows, preprocessing, batch_size=2).test()))
    assert served.tolist() == rows.tolist()
    assert labels.tolist() == table.labels[rows].tolist()
    for row, crop in zip(rows, pixels_of(crops), strict=True):
        height, width = memory.sizes[row]
        top, left = (height - 12) // 2, (width - 12) // 2
        assert (crop == memory[row][top : top + 12, left : left + 12]).all()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(count=st.integers(0, 20), batch_size=st.integers(1, 8))
def test_a_last_batch_of_one_is_joined_in_training_only(count: int, batch_size: int) -> None:
    table = array_table(np.zeros((20, 4, 4, 1), np.uint8))
    preprocessing = Preprocessing(crop_size=4, mean=(0.0,), std=(1.0,))
    batches = Batches(open_images(table), table.labels, np.arange(count), preprocessing, batch_size)
    train, test = [len(batch[2]) for batch in batches.train(0, 0)], [len(batch[2]) for batch in batches.test()]
    assert len(train) == len(batches)
    assert sum(train) == sum(test) == count
    assert max(test, default=0) <= batch_size
    assert max(train, default=0) <= batch_size + 1
    if batch_size > 1 and count > 1:
        assert min(train) > 1


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    table = written(tmp_path / "data", {"0.png": noise(16, 16), "1.png": b""})
    images = open_images(table, cache=tmp_path / "cache", image_size=16, skip_bad=True)
    with pytest.raises(ValueError, match="1 rows have no readable image, such as row 1"):
        Batches(images, table.labels, np.arange(2), PLAIN)
    with pytest.raises(ValueError, match="rows range from 0 to 2, the table from 0 to 1"):
        Batches(images, table.labels, np.array([0, 2]), PLAIN)
    with pytest.raises(ValueError, match="2 images and 1 labels"):
        Batches(images, table.labels[:1], np.arange(1), PLAIN)
    with pytest.raises(EvenhandError, match="batch size must be at least 1, got 0"):
        Batches(images, table.labels, np.arange(1), PLAIN, 0)
    with pytest.raises(ValueError, match="does not fit images"):
        Batches(images, table.labels, np.arange(1), Preprocessing(crop_size=17, mean=(0.0,) * 3, std=(1.0,) * 3))
    with pytest.raises(ValueError, match="std must be positive"):
        Preprocessing(crop_size=8, mean=(0.0,), std=(0.0,))


def test_a_view_from_statistics() -> None:
    array = noise(30 * 16, 16).reshape(30, 16, 16, 3) // 2
    array[..., 2] = 9
    table = array_table(array)
    rows = np.arange(20)
    preprocessing = make_preprocessing(table, open_images(table), rows)
    np.testing.assert_allclose(preprocessing.mean, array[:20].mean((0, 1, 2)) / 255)
    np.testing.assert_allclose(preprocessing.std[:2], array[:20, ..., :2].std((0, 1, 2)) / 255)
    assert preprocessing.std[2] == 1
    assert (preprocessing.crop_size, preprocessing.padding, preprocessing.flip) == (16, 2, True)
    crops, *_ = next(Batches(open_images(table), table.labels, rows, preprocessing).test())
    torch.testing.assert_close(crops.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(crops[:, :2].std((0, 2, 3), correction=0), torch.ones(2))
    assert (crops[:, 2].abs() < 1e-6).all()


def test_a_view_from_facts() -> None:
    table = array_table(
        noise(4 * 64, 64).reshape(4, 64, 64, 3), scaling="symmetric", flip=False, image_size=64, crop_size=56
    )
    preprocessing = make_preprocessing(table, open_images(table), np.arange(4))
    assert preprocessing == Preprocessing(crop_size=56, mean=(0.5,) * 3, std=(0.5,) * 3, flip=False)
    assert make_preprocessing(
        table, open_images(table), np.arange(4), flip=True, padding=2, crop_size=60
    ) == Preprocessing(crop_size=60, mean=(0.5,) * 3, std=(0.5,) * 3, padding=2)
    # The info' crop belongs to the info' size.
    assert make_preprocessing(table, open_images(table, image_size=96), np.arange(4)).crop_size == 96
    with pytest.raises(EvenhandError, match="from 1 to the image size of 64, got 65"):
        make_preprocessing(table, open_images(table), np.arange(4), crop_size=65)
    values = preprocessing.normalise(torch.tensor([0, 255], dtype=torch.uint8).view(1, 1, 1, 2).expand(1, 3, 1, 2))
    torch.testing.assert_close(values, torch.tensor([-1.0, 1.0]).expand(1, 3, 1, 2))


def test_images_larger_than_the_crop() -> None:
    """Tiny ImageNet: 56 x 56 out of 64 x 64 with a border of 4."""
    table = array_table(np.tile(coordinates(64, 64), (200, 1, 1, 1)), image_size=64, crop_size=56)
    images = open_images(table)
    preprocessing = Preprocessing(crop_size=56, mean=(0.0,) * 3, std=(1.0,) * 3)
    places = [
        place(crop)
        for crop in pixels_of(next(Batches(images, table.labels, np.arange(200), preprocessing, 200).train(0, 0))[0])
    ]
    tops = {top for top, _, _ in places}
    assert tops == set(range(-4, 13))


@pytest.mark.parametrize(
    ("names", "suspects"),
    [
        (["leftturn", "rightturn", "stop"], ["leftturn", "rightturn"]),
        (["Turn-Left", "turn right", "left over"], ["Turn-Left", "turn right"]),
        (["links", "rechts"], ["links", "rechts"]),
        (["pfeil_links", "pfeil_rechts", "stop"], ["pfeil_links", "pfeil_rechts"]),
        (["tourner à gauche", "tourner à droite"], ["tourner à gauche", "tourner à droite"]),
        (["a", "b", "d", "p", "q", "z"], ["b", "d", "p", "q"]),
        (["arrow_l", "arrow_r"], ["arrow_l", "arrow_r"]),
        (["clockwise", "counterclockwise"], ["clockwise", "counterclockwise"]),
        (["0", "1", "7"], ["0", "1", "7"]),
        (["zero", "nine", "cat"], ["zero", "nine"]),
        (["35", "40", "rail"], ["35", "40"]),
        (["speed limit 30", "Max 50", "30 km/h", "stop"], ["speed limit 30", "Max 50", "30 km/h"]),
        (["cat", "dog", "lamb"], []),
        (["left"], []),
        (["class 1", "grade 2 tumour", "boeing 747"], []),
        (["bright", "bleft", "db", "bd"], ["bright", "bleft"]),
        (["plate", "prate"], []),
    ],
)
def test_classes_that_a_mirror_confuses(names: list[str], suspects: list[str]) -> None:
    assert mirror_twins(names) == suspects


def test_the_user_is_warned_of_mirrors(caplog: pytest.LogCaptureFixture) -> None:
    images = noise(4 * 8, 8).reshape(4, 8, 8, 3)
    twins = array_table(images, ("left", "right"))
    with caplog.at_level(logging.WARNING, "evenhand"):
        assert make_preprocessing(twins, open_images(twins), np.arange(4)).flip
        (record,) = caplog.records
        assert "(left, right); --no-flip" in record.getMessage()
        make_preprocessing(twins, open_images(twins), np.arange(4), flip=True)
        make_preprocessing(twins, open_images(twins), np.arange(4), flip=False)
        make_preprocessing(array_table(images), open_images(twins), np.arange(4))
        off = array_table(images, ("left", "right"), flip=False)
        assert not make_preprocessing(off, open_images(off), np.arange(4)).flip
    assert len(caplog.records) == 1


def test_mirroring_against_the_facts_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """The paper's recipe mirrors road markings: a left turn then shows a right turn."""
    images = noise(4 * 8, 8).reshape(4, 8, 8, 3)
    for names, told in ((("leftturn", "rightturn"), " (leftturn, rightturn);"), (("cat", "dog"), "or none;")):
        caplog.clear()
        table = array_table(images, names, flip=False)
        with caplog.at_level(logging.WARNING, "evenhand"):
            assert make_preprocessing(table, open_images(table), np.arange(4), flip=True).flip
        (record,) = caplog.records
        assert told in record.getMessage()


def test_a_jpeg_streams_as_it_is_stored(tmp_path: Path) -> None:
    """Large files go through the same resizing on both ways."""
    files = {f"{i}.jpg": encode(noise(300, 200 + 9 * i, seed=i), "JPEG") for i in range(4)}
    table = written(tmp_path / "data", files)
    preprocessing = Preprocessing(crop_size=64, mean=(0.4,) * 3, std=(0.2,) * 3)
    served = [
        next(
            Batches(
                open_images(table, cache=tmp_path / "c", budget=budget), table.labels, np.arange(4), preprocessing
            ).train(1, 1)
        )
        for budget in (None, 0)
    ]
    assert torch.equal(served[0][0], served[1][0])


@pytest.mark.parametrize(("size", "padding"), [(8, 1), (16, 2), (28, 4), (32, 4), (64, 4)])
def test_padding_is_the_papers_four_but_never_drowns_a_small_image(size: int, padding: int) -> None:
    table = array_table(np.zeros((4, size, size, 1), np.uint8))
    assert make_preprocessing(table, open_images(table), np.arange(4)).padding == padding
    assert make_preprocessing(table, open_images(table), np.arange(4), padding=3).padding == 3
