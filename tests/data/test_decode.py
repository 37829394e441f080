"""Whatever kind of picture a file holds, the right pixels come out, the right way up."""

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from evenhand.data import decode
from evenhand.data.decode import BadImage, ImageInfo, probe_image, read_image, resize_array, stored_size

from .pictures import encode, noise, picture, png, smooth, turned_late


def save(folder: Path, content: bytes | Image.Image, name: str = "picture", **options: object) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else encode(content, **options))
    return path


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_files_come_out_bit_for_bit(tmp_path: Path, kind: str, channels: int) -> None:
    image = noise(9, 7, channels)
    path = save(tmp_path, encode(image, kind))
    assert probe_image(path) == ImageInfo(7, 9, "L" if channels == 1 else "RGB")
    assert (read_image(path) == image).all()
    assert read_image(path).shape == (9, 7, channels)


def test_the_number_of_channels_can_be_chosen(tmp_path: Path) -> None:
    grey, colour = save(tmp_path, encode(noise(5, 5, 1)), "grey"), save(tmp_path, encode(noise(5, 5, 3)), "colour")
    assert (read_image(grey, channels=3) == noise(5, 5, 1)).all()
    assert read_image(colour, channels=1).shape == (5, 5, 1)
    with pytest.raises(ValueError, match="got 2"):
        read_image(grey, channels=2)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_transparency_is_laid_on_white(tmp_path: Path, kind: str) -> None:
    image = Image.new("RGBA", (3, 1))
    image.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (255, 0, 0, 51)])
    path = save(tmp_path, image, kind=kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert read_image(path).tolist() == [[[255, 0, 0], [255, 255, 255], [255, 204, 204]]]


def test_grey_with_transparency_stays_grey(tmp_path: Path) -> None:
    image = Image.new("LA", (3, 1))
    image.putdata([(0, 255), (0, 0), (0, 51)])
    assert read_image(save(tmp_path, image)).tolist() == [[[0], [255], [204]]]


def test_palettes_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 200, 100, 50, 0, 0, 255])
    image.putdata([0, 1, 2])
    opaque = save(tmp_path, image, "opaque.png")
    assert probe_image(opaque).mode == "P"
    assert read_image(opaque).tolist() == [[[10, 20, 30], [200, 100, 50], [0, 0, 255]]]
    for kind in ("PNG", "GIF"):
        clear = save(tmp_path, image, kind=kind, transparency=1)
        assert read_image(clear).tolist() == [[[10, 20, 30], [255, 255, 255], [0, 0, 255]]]


def test_a_transparent_colour_in_a_png_is_white(tmp_path: Path) -> None:
    lines = b"\0" + bytes([1, 2, 3, 4, 5, 6])
    path = save(tmp_path, png(2, 1, 8, 2, lines, (b"tRNS", bytes([0, 4, 0, 5, 0, 6]))))
    assert read_image(path).tolist() == [[[1, 2, 3], [255, 255, 255]]]


def test_one_bit_is_black_and_white(tmp_path: Path) -> None:
    image = Image.new("1", (2, 1))
    image.putdata([0, 255])
    assert read_image(save(tmp_path, image)).tolist() == [[[0], [255]]]


def test_cmyk(tmp_path: Path) -> None:
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert (read_image(save(tmp_path, image, kind="TIFF")) == [255, 0, 0]).all()
    assert np.abs(read_image(save(tmp_path, image, kind="JPEG")).astype(int) - [255, 0, 0]).max() < 8


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_are_scaled_not_clipped(tmp_path: Path, kind: str) -> None:
    values = np.array([[0, 128, 257, 4096, 32896, 65535]], np.uint16)
    path = save(tmp_path, Image.fromarray(values), kind=kind)
    assert probe_image(path).grey
    assert read_image(path)[0, :, 0].tolist() == [0, 0, 1, 16, 128, 255]


def test_16_bits_in_colour(tmp_path: Path) -> None:
    values = np.array([0, 32896, 65535], ">u2")
    path = save(tmp_path, png(1, 1, 16, 2, b"\0" + values.tobytes()))
    assert read_image(path).tolist() == [[[0, 128, 255]]]


def test_32_bits_only_with_a_known_range(tmp_path: Path) -> None:
    whole = save(tmp_path, Image.fromarray(np.array([[0, 257, 65535]], np.int32)), "whole", kind="TIFF")
    assert read_image(whole)[0, :, 0].tolist() == [0, 1, 255]
    broken = save(tmp_path, Image.fromarray(np.array([[0, 0.5, 1]], np.float32)), "broken", kind="TIFF")
    assert read_image(broken)[0, :, 0].tolist() == [0, 128, 255]
    for low, high in [(-1.0, 1.0), (0.0, 400.0), (0.0, float("nan"))]:
        path = save(tmp_path, Image.fromarray(np.array([[low, high]], np.float32)), "odd", kind="TIFF")
        with pytest.raises(BadImage, match="save it with 8 or 16 bits"):
            read_image(path)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_the_first_frame_of_an_animation(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    path = save(tmp_path, frames[0], kind=kind, save_all=True, append_images=frames[1:], **options)
    assert (read_image(path) == [255, 0, 0]).all()


@pytest.mark.parametrize(
    ("kind", "orientation"),
    [
        *(("JPEG", number) for number in range(1, 9)),
        *((kind, number) for kind in ("PNG", "WEBP", "TIFF") for number in (3, 6)),
    ],
)
def test_exif_rotation_is_applied(tmp_path: Path, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path, picture(smooth(16, 24)), kind=kind, exif=exif)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert (read_image(path) == expected).all()
    info = probe_image(path)
    assert (info.height, info.width) == expected.shape[:2] == ((24, 16) if orientation >= 5 else (16, 24))
    # The box refers to the rotated image.
    assert (read_image(path, (1, 2, 12, 11)) == expected[2:11, 1:12]).all()


def test_exif_data_behind_the_pixels_of_a_png(tmp_path: Path) -> None:
    path = save(tmp_path, turned_late(noise(4, 6)))
    assert (read_image(path) == np.rot90(noise(4, 6), -1)).all()


def test_damaged_exif_data_does_not_hide_the_pixels(tmp_path: Path) -> None:
    path = save(tmp_path, picture(smooth(16, 24)), kind="JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\xff" * 40)
    assert read_image(path).shape == (16, 24, 3)
    assert probe_image(path) == ImageInfo(24, 16, "RGB")


def test_boxes_are_cut_where_the_image_ends(tmp_path: Path) -> None:
    image = noise(10, 8)
    path = save(tmp_path, encode(image))
    assert (read_image(path, (-3, 4, 5, 99)) == image[4:, :5]).all()
    assert (read_image(path, np.array([2, 2, 3, 3])) == image[2:3, 2:3]).all()
    for box in [(8, 0, 12, 5), (3, 3, 3, 6), (5, 5, 2, 8)]:
        with pytest.raises(BadImage, match="is outside its 8 x 10 pixels"):
            read_image(path, box)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (20_000, 3), (3, 20_000)])
def test_extreme_shapes(tmp_path: Path, width: int, height: int) -> None:
    path = save(tmp_path, encode(noise(height, width, 1)))
    assert read_image(path).shape == (height, width, 1)
    small = read_image(path, image_size=8)
    assert min(small.shape[:2]) == 8
    assert max(small.shape[:2]) <= 8 * decode.MAX_ASPECT


def test_only_the_middle_of_a_very_long_image_is_resized(tmp_path: Path) -> None:
    image = np.zeros((2, 1000, 1), np.uint8)
    image[:, 484:516] = 255
    small = read_image(save(tmp_path, encode(image)), image_size=2)
    assert small.shape == (2, 32, 1)
    assert small.min() == 255


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    width=st.integers(1, 70),
    height=st.integers(1, 70),
    image_size=st.none() | st.integers(1, 40),
    box=st.none() | st.tuples(*[st.integers(-10, 80)] * 4),
    kind=st.sampled_from(["PNG", "JPEG"]),
)
def test_the_size_is_known_before_decoding(
    tmp_path_factory: pytest.TempPathFactory,
    width: int,
    height: int,
    image_size: int | None,
    box: tuple[int, ...] | None,
    kind: str,
) -> None:
    path = save(tmp_path_factory.getbasetemp(), encode(noise(height, width), kind))
    try:
        expected = stored_size(width, height, box, image_size)
    except ValueError:
        with pytest.raises(BadImage):
            read_image(path, box, image_size=image_size)
        return
    assert read_image(path, box, image_size=image_size).shape[:2] == expected
    if image_size is not None:
        assert min(expected) == image_size


def test_an_array_is_resized_like_a_file(tmp_path: Path) -> None:
    for shape in [(40, 30, 3), (30, 30, 1), (2, 90, 1)]:
        image = noise(*shape)
        assert (resize_array(image, 16) == read_image(save(tmp_path, encode(image)), image_size=16)).all()
    assert (resize_array(noise(16, 20), 16) == noise(16, 20)).all()


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("box", [None, (100, 300, 1100, 1500)])
def test_a_large_jpeg_is_decoded_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, box: tuple[int, ...] | None, orientation: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path, picture(smooth(1600, 1600)), kind="JPEG", quality=95, exif=exif)
    full = resize_array(read_image(path, box), 32)
    sizes = []
    load = Image.Image.transpose if orientation == 6 else Image.Image.resize
    monkeypatch.setattr(Image.Image, load.__name__, lambda image, *rest: sizes.append(image.size) or load(image, *rest))
    small = read_image(path, box, image_size=32)
    assert max(sizes[0]) <= 400
    assert np.abs(small.astype(int) - full.astype(int)).max() <= 3


def test_a_probe_reads_the_header_only(tmp_path: Path) -> None:
    content = encode(noise(300, 300))
    path = save(tmp_path, content[:200])
    assert probe_image(path) == ImageInfo(300, 300, "RGB")
    with pytest.raises(BadImage):
        read_image(path)


@pytest.mark.parametrize("name", ["Straße 猫 🐈.png", "x" * 196 + ".png", "no extension", "wrong.jpg"])
def test_odd_names(tmp_path: Path, name: str) -> None:
    assert read_image(save(tmp_path, encode(noise(3, 3)), name)).shape == (3, 3, 3)


def test_warnings_stay_inside_and_filters_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow warns of images over its limit; with threads, its filters must still be as before."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = save(tmp_path, encode(noise(12, 12)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        threads = [threading.Thread(target=lambda: [read_image(path) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert warnings.filters == before
    assert Image.MAX_IMAGE_PIXELS == 100


def test_no_file_is_left_open(tmp_path: Path) -> None:
    path = save(tmp_path, encode(noise(3, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        read_image(path)
        probe_image(path)
        path.write_bytes(b"text")
        with pytest.raises(BadImage):
            probe_image(path)


def test_stretching_keeps_the_ends_of_a_long_image(tmp_path: Path) -> None:
    image = noise(40, 200)
    path = save(tmp_path, encode(image))
    stretched = read_image(path, image_size=20, stretch=True)
    expected = np.asarray(Image.fromarray(image).resize((20, 20), Image.Resampling.BILINEAR))
    assert (stretched == expected).all()
    part = read_image(path, (10, 5, 110, 25), image_size=20, stretch=True)
    cut = Image.fromarray(image[5:25, 10:110]).resize((20, 20), Image.Resampling.BILINEAR)
    assert (part == np.asarray(cut)).all()
    assert stored_size(200, 40, None, 20, stretch=True) == (20, 20)
    # Longer than any aspect that a crop would keep.
    assert read_image(save(tmp_path, encode(noise(4, 400))), image_size=8, stretch=True).shape == (8, 8, 3)
