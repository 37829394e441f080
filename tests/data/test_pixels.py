"""Pictures as people have them in Python."""

import numpy as np
import pytest
import torch
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data.pixels import is_one_image, to_pixels

COLOUR = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
GREY = COLOUR[:, :, :1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (COLOUR, COLOUR),
        (GREY, GREY),
        (GREY[:, :, 0], GREY),
        (Image.fromarray(COLOUR), COLOUR),
        (Image.fromarray(GREY[:, :, 0]), GREY),
        (Image.fromarray(COLOUR).convert("RGBA"), COLOUR),
        (Image.fromarray(GREY[:, :, 0].astype(np.uint16) * 257), GREY),
        (torch.from_numpy(COLOUR).permute(2, 0, 1), COLOUR),
        (torch.from_numpy(COLOUR).permute(2, 0, 1).double() / 255, COLOUR),
        (torch.from_numpy(GREY[:, :, 0]), GREY),
        (torch.from_numpy(GREY).permute(2, 0, 1).float() / 255, GREY),
    ],
)
def test_all_forms_give_the_same_pixels(given: object, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(to_pixels(given), expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "got int"),
        (None, "got NoneType"),
        ([[1, 2]], "got list"),
        (np.zeros((4, 4, 3)), "float64"),
        (np.zeros((4, 4, 2), np.uint8), "(4, 4, 2)"),
        (np.zeros((0, 4, 3), np.uint8), "(0, 4, 3)"),
        (torch.full((3, 4, 4), 2.0), "from 0 to 1"),
        (torch.full((3, 4, 4), float("nan")), "from 0 to 1"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "torch.int64"),
        (torch.zeros(5, 4, 4), "(4, 4, 5)"),
    ],
)
def test_what_is_no_picture_is_told(given: object, words: str) -> None:
    with pytest.raises(EvenhandError) as caught:
        to_pixels(given)
    assert words in str(caught.value)


def test_turned_photos_are_turned_back() -> None:
    picture = Image.fromarray(COLOUR)
    exif = picture.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    picture.info["exif"] = exif.tobytes()
    assert to_pixels(picture).shape == (5, 6, 3)


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ("a.png", True), (Image.new("L", (2, 2)), True), (COLOUR, True), (torch.zeros(3, 4, 4), True),
        (torch.zeros(2, 3, 4, 4), False), (COLOUR[None], False), ([COLOUR], False), (GREY[:, :, 0], False),
    ],
)  # fmt: skip
def test_one_or_several(given: object, one: bool) -> None:
    assert is_one_image(given) is one
