"""Near duplicates are found, and images that are only similar are not."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

from evenhand.data._near import MOST_BITS, _joined, find_near_duplicates
from evenhand.data.inspection import inspect_source
from evenhand.data.sources import load_source
from evenhand.data.splits import Splits
from evenhand.data.table import ArrayPixels, SampleTable

CHANGES = {
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.08),
    "less colour": lambda image: ImageEnhance.Color(image).enhance(0.6),
    "softer": lambda image: image.filter(ImageFilter.GaussianBlur(1)),
    "smaller": lambda image: image.resize((48, 48)).resize(image.size),
    "moved by a pixel": lambda image: image.transform(image.size, Image.Transform.AFFINE, (1, 0, 1, 0, 1, 0)),
    "a few grains": lambda image: Image.fromarray(
        (np.asarray(image, np.int16) + np.random.default_rng(1).integers(-6, 7, np.asarray(image).shape))
        .clip(0, 255)
        .astype(np.uint8)
    ),
}


def scene(seed: int, size: int = 64) -> Image.Image:
    """A picture of smooth shapes, as photographs are."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)


def tabled(pictures: list[Image.Image], labels: list[int] | None = None) -> SampleTable:
    images = np.stack([np.asarray(picture) for picture in pictures])
    numbers = np.zeros(len(images), np.int64) if labels is None else np.array(labels)
    ids = np.array([f"{k:03}" for k in range(len(images))])
    return SampleTable("scenes", ("a", "b"), numbers, ids, ArrayPixels(images))


def found(table: SampleTable, train: list[int], test: list[int]):
    images = table.pixels.images
    splits = Splits(np.array(train), np.arange(0), np.array(test), table.counts(np.array(train)))
    return find_near_duplicates(table, lambda row: images[row], splits)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_is_found(change: str) -> None:
    pictures = [scene(seed) for seed in range(20)]
    near = found(tabled([*pictures, CHANGES[change](pictures[7])]), list(range(20)), [20])
    assert near is not None
    assert (near.images, near.groups, near.across) == (2, 1, 1)
    assert near.examples == (("007", "020"),)
    assert near.per_class == (20, 0)


def test_other_images_are_no_duplicates() -> None:
    assert found(tabled([scene(seed) for seed in range(300)]), list(range(200)), list(range(200, 300))) is None


def test_flat_images_are_no_duplicates() -> None:
    flat = [Image.new("RGB", (64, 64), (value, value, value)) for value in range(0, 200, 10)]
    assert found(tabled(flat), list(range(10)), list(range(10, 20))) is None


def drawn(kind: str, seed: int) -> Image.Image:
    """A thin object on white, of a size and place of its own, as in a catalogue."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (512, 512), "white")
    draw = ImageDraw.Draw(image)
    x, length, width = 256 + int(rng.integers(-16, 17)), int(rng.integers(170, 240)), int(rng.integers(8, 20))
    colour = tuple(rng.integers(30, 180, 3).tolist())
    tilt = float(rng.uniform(-0.08, 0.08)) * length
    if kind == "sword":
        draw.line([x - length, 256 + length + tilt, x + length, 256 - length - tilt], (170, 170, 190), width)
        draw.line([x - length, 256 + length + tilt, x - length // 2, 256 + (length + tilt) // 2], colour, width + 6)
    elif kind == "chopsticks":
        gap = int(rng.integers(12, 40))
        draw.line([x - gap - tilt, 256 - length, x - gap + tilt, 256 + length], colour, width)
        draw.line([x + gap + tilt, 256 - length, x + gap - tilt, 256 + length], colour, width)
    elif kind == "bowling pin":
        draw.ellipse([x - 2 * width, 256, x + 2 * width, 256 + length], (215, 210, 200), (150, 150, 150))
        draw.ellipse([x - width, 256 - length, x + width, 300], (215, 210, 200), (150, 150, 150))
        draw.rectangle([x - width, 200, x + width, 200 + width], colour)
    elif kind == "pen":
        draw.line([256 - length, x + tilt, 256 + length // 2, x], colour, width)
        draw.line([256 + length // 2, x, 256 + length, x - tilt], (60, 60, 60), width // 2)
    else:
        draw.line([x, 256 - length // 2, x + tilt, 256 + length], (160, 160, 160), width)
        draw.ellipse([x - 2 * width, 256 - length, x + 2 * width, 256 - length // 2], (150, 150, 160), (90, 90, 90))
    return image.resize((96, 96), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("kind", ["bowling pin", "chopsticks", "sword", "pen", "spoon"])
def test_thin_objects_on_white_are_no_duplicates(kind: str) -> None:
    pictures = [drawn(kind, seed) for seed in range(60)]
    near = found(tabled(pictures), list(range(40)), list(range(40, 60)))
    assert near is None or near.images <= 15  # a few of 1,770 pairs are alike by chance; all 60 were one group
    copies = [CHANGES["less colour"](pictures[row]) for row in (7, 8)]  # a group of all would hide them
    near = found(tabled([*pictures, *copies]), list(range(60)), [60, 61])
    assert near is not None
    assert all(
        any({first, copy} <= set(names) for names in near.examples) for first, copy in (("007", "060"), ("008", "061"))
    )
    assert near.across == 2


def test_small_images_are_not_compared() -> None:
    small = [scene(0, 16)] * 4
    assert found(tabled(small), [0, 1], [2, 3]) is None


def test_frames_of_a_video_are_one_group() -> None:
    start, end = scene(1), scene(2)
    frames = [Image.blend(start, end, share) for share in np.linspace(0, 0.5, 26)]
    near = found(tabled([*frames, scene(3)], [0] * 26 + [1]), list(range(0, 27, 2)), list(range(1, 27, 2)))
    assert near is not None
    assert (near.groups, near.across, near.images) == (1, 1, 26)
    assert near.per_class == (1, 1)


def test_groups_are_those_of_all_pairs() -> None:
    """Against the slow way: every pair compared."""
    rng = np.random.default_rng(0)
    base = rng.integers(1, 2**63, 60, dtype=np.uint64)
    flips = [sum(1 << int(bit) for bit in rng.choice(64, rng.integers(0, 7), replace=False)) for _ in range(240)]
    hashes = np.concatenate([base, rng.choice(base, 240) ^ np.array(flips, np.uint64)])
    greys = np.zeros((len(hashes), 256), np.float32)
    expected = np.arange(len(hashes))
    for _ in range(10):
        for left in range(len(hashes)):
            for right in range(left):
                if bin(int(hashes[left] ^ hashes[right])).count("1") <= MOST_BITS:
                    expected[[left, right]] = min(expected[left], expected[right])
    assert _joined(hashes, greys).tolist() == expected.tolist()


def test_inspect_suggests_a_group_column(tmp_path: Path) -> None:
    for track in range(12):
        name = ("cat", "dog")[track % 2]
        (tmp_path / name).mkdir(exist_ok=True)
        start, end = scene(2 * track), scene(2 * track + 1)
        for frame in range(8):
            Image.blend(start, end, frame / 40).save(tmp_path / name / f"{track:05}_{frame:05}.png")
    result = inspect_source(tmp_path)
    near = result.near_duplicates
    assert near is not None
    assert near.groups == 12
    assert near.across > 0
    assert near.named_by == "the part before the last '_'"
    assert [row.groups for row in result.classes] == [6, 6]
    [advice] = [line for line in result.advice if "near duplicate" in line]
    assert "column `group`" in advice
    lines = [
        f"{path.relative_to(tmp_path).as_posix()},{path.parent.name},{path.name[:5]}"
        for path in sorted(tmp_path.rglob("*.png"))
    ]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,group", *lines]) + "\n")
    grouped = inspect_source(tmp_path / "list.csv")
    assert grouped.near_duplicates is not None
    assert grouped.near_duplicates.across == 0
    assert [row.groups for row in grouped.classes] == [6, 6]


def test_known_data_have_few_near_duplicates() -> None:
    assert inspect_source("digits").near_duplicates is None  # too small to tell
    assert load_source("digits").groups is None
