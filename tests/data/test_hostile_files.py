"""Files that are damaged or meant to do harm: one sentence, never a traceback, a warning or a stuck program."""

import os
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from evenhand.core.errors import EvenhandError
from evenhand.data import decode
from evenhand.data.batches import Batches, Preprocessing
from evenhand.data.decode import BadImage, probe_image, read_image
from evenhand.data.images import open_images

from .pictures import encode, noise, picture, png, smooth, table_of, write, written


def refusal(path: Path | str, read: Callable[[Path | str], object] = read_image) -> str:
    with pytest.raises(BadImage) as caught:
        read(path)
    message = str(caught.value)
    assert os.path.basename(path) in message
    assert "\n" not in message
    assert message.endswith(".")
    assert caught.value.reason in message
    return message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"Hello, this is a text, not a picture.\n" * 20, "it is not an image"),
        (b"\xff\xd8\xff\xe0", "it is not an image, or its header is damaged"),
        (b"GIF89a", "it is not an image, or its header is damaged"),
        (b"<html><body>404 Not Found</body></html>", "it is not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n", "it is not an image"),
    ],
)
def test_what_is_no_image(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    assert reason in refusal(path)
    assert reason in refusal(path, probe_image)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_cut_off_files(tmp_path: Path, kind: str, share: float) -> None:
    content = encode(noise(64, 64), kind)
    path = tmp_path / "photo.jpg"
    path.write_bytes(content[: int(share * len(content))])
    refusal(path)


def test_a_missing_file_a_folder_and_a_loop(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.png")
    assert "it is not a file" in refusal(tmp_path)
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    refusal(tmp_path / "loop.png")
    refusal(str(tmp_path / "a\0b.png"))
    assert "too long" in refusal(tmp_path / ("x" * 300))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "it is not a file" in refusal(tmp_path / "pipe.jpg")


@pytest.mark.parametrize("pillows_own_limit", [True, False])
def test_a_decompression_bomb_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pillows_own_limit: bool
) -> None:
    """600 million pixels in a small file; a program around us may have lifted Pillow's limit."""
    if not pillows_own_limit:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "bomb.png"
    path.write_bytes(png(30_000, 20_000, 8, 0, b"\0" * 10**6))
    start = time.perf_counter()
    assert "more than 178 million pixels" in refusal(path)
    assert "more than 178 million pixels" in refusal(path, probe_image)
    assert time.perf_counter() - start < 1


def test_a_bomb_in_the_text_of_a_png(tmp_path: Path) -> None:
    text = b"Comment\0\0" + zlib.compress(b"x" * 10**8)
    path = tmp_path / "text.png"
    path.write_bytes(png(1, 1, 8, 0, b"\0\0", (b"zTXt", text)))
    refusal(path)


def samples() -> dict[str, bytes]:
    image = picture(smooth(12, 10))
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [picture(noise(12, 10))]}
    return {
        "png": encode(image, exif=exif),
        "png palette": encode(image.quantize(8), transparency=2),
        "png 16": encode(Image.fromarray(np.arange(120, dtype=np.uint16).reshape(12, 10) * 500)),
        "apng": encode(image, "PNG", **frames),
        "jpeg": encode(image, "JPEG", exif=exif),
        "jpeg progressive": encode(image, "JPEG", progressive=True),
        "jpeg cmyk": encode(image.convert("CMYK"), "JPEG"),
        "gif": encode(image, "GIF", **frames),
        "bmp": encode(image, "BMP"),
        "bmp 1": encode(image.convert("1"), "BMP"),
        "webp": encode(image, "WEBP", exif=exif),
        "webp lossless": encode(image.convert("RGBA"), "WEBP", lossless=True),
        "tiff": encode(image, "TIFF", exif=exif),
        "tiff deflate": encode(image, "TIFF", compression="tiff_adobe_deflate"),
        "tiff jpeg": encode(image, "TIFF", compression="jpeg"),
        "tiff lzw": encode(image, "TIFF", compression="tiff_lzw"),
        "tiff float": encode(Image.fromarray(np.ones((12, 10), np.float32)), "TIFF"),
        "ppm": encode(image, "PPM"),
        "jpeg 2000": encode(image, "JPEG2000"),
    }


SAMPLES = samples()

edits = st.lists(
    st.tuples(
        st.sampled_from(["replace", "insert", "delete", "cut", "repeat"]),
        # Most of what can go wrong stands at the start.
        st.one_of(st.floats(0, 0.1), st.floats(0, 1)),
        st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff"])),
    ),
    min_size=1,
    max_size=5,
)


def damaged(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    for what, share, data in changes:
        at = int(share * len(content))
        if what == "replace":
            content = content[:at] + data + content[at + len(data) :]
        elif what == "insert":
            content = content[:at] + data + content[at:]
        elif what == "delete":
            content = content[:at] + content[at + len(data) :]
        elif what == "cut":
            content = content[:at]
        else:
            content = content[:at] + content[at : at + 40] + content[at:]
    return content


def test_the_samples_are_valid(tmp_path: Path) -> None:
    for kind, content in SAMPLES.items():
        (tmp_path / "sample").write_bytes(content)
        assert sorted(read_image(tmp_path / "sample").shape[:2]) == [10, 12], kind


@pytest.mark.parametrize("kind", SAMPLES)
def test_only_bad_image_comes_out_of_damaged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.setattr(decode, "MAX_PIXELS", 10**6)  # a header that lies a little costs no time here
    path = tmp_path / "damaged.jpg"
    refused = 0

    def outcome(read: Callable[[Path], object]) -> str:
        """Call a reader; anything but a `BadImage` passes through and fails the test."""
        try:
            result = read(path)
        except BadImage as error:
            return str(error)
        assert not isinstance(result, np.ndarray) or (result.dtype == np.uint8 and result.ndim == 3)
        return ""

    @settings(derandomize=True, deadline=None, max_examples=int(os.environ.get("EVENHAND_FUZZ", "40")), database=None)
    @given(edits, st.booleans())
    def check(changes: list[tuple[str, float, bytes]], resized: bool) -> None:
        nonlocal refused
        path.write_bytes(damaged(SAMPLES[kind], changes))
        for message in (
            outcome(probe_image),
            outcome(lambda path: read_image(path, (1, 1, 9, 9), image_size=4 if resized else None)),
        ):
            refused += message != ""
            assert "\n" not in message
            assert not message or str(path) in message

    check()
    assert refused > 10
    # The C library libtiff prints a line of its own for damaged compressed data, which Python cannot prevent.
    assert kind.startswith("tiff ") or capfd.readouterr() == ("", "")


@settings(derandomize=True, deadline=None, max_examples=150, database=None)
@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.png"
    path.write_bytes(content)
    with pytest.raises(BadImage):
        read_image(path)


BAD = {"a/empty.jpg": b"", "b/text.jpg": b"text", "b/cut.png": encode(noise(40, 40))[:900]}
GOOD = {f"a/{i}.png": noise(8, 8, seed=i) for i in range(5)}


@pytest.mark.parametrize("budget", [None, 0])
def test_unreadable_images_are_listed(tmp_path: Path, budget: int | None) -> None:
    table = written(tmp_path / "data", {**BAD, "c/gone.png": b"", **GOOD})
    (tmp_path / "data/c/gone.png").unlink()
    for _ in range(2):  # the second time from the cache
        with pytest.raises(EvenhandError) as caught:
            open_images(table, cache=tmp_path / "cache", budget=budget)
        message = str(caught.value)
        assert message.startswith("4 of 9 images cannot be read: a/empty.jpg (the file is empty), b/text.jpg (")
        assert "b/cut.png (" in message
        assert "gone" not in message
        assert message.endswith(", ...; --skip-bad leaves them out.")


@pytest.mark.parametrize("budget", [None, 0])
def test_unreadable_images_are_skipped_only_on_request(tmp_path: Path, budget: int | None) -> None:
    table = written(tmp_path / "data", {**BAD, **GOOD})
    for _ in range(2):
        images = open_images(table, cache=tmp_path / "cache", budget=budget, skip_bad=True)
        assert sorted(images.bad) == [0, 1, 2]
        assert images.bad[0] == "the file is empty"
        assert images.readable().tolist() == [3, 4, 5, 6, 7]
        for row in images.bad:
            with pytest.raises(ValueError, match="no readable image"):
                images[row]
        with pytest.raises(ValueError, match="3 rows have no readable image, such as row 0"):
            images.statistics(np.arange(8))
        assert images[4].shape[2] == 3


def test_nothing_readable_at_all(tmp_path: Path) -> None:
    write(tmp_path, BAD)
    with pytest.raises(EvenhandError, match="None of the 3 images can be read: a/empty"):
        open_images(table_of(tmp_path, list(BAD)), cache=tmp_path / "cache", skip_bad=True)


def test_an_image_that_turns_bad_after_the_check(tmp_path: Path) -> None:
    table = written(tmp_path / "data", GOOD)
    images = open_images(table, cache=tmp_path / "cache", budget=0)
    (tmp_path / "data/a/3.png").write_bytes(b"")
    preprocessing = Preprocessing(crop_size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    for workers in (0, 1):
        batches = Batches(images, table.labels, np.arange(5), preprocessing, batch_size=2, workers=workers)
        with pytest.raises(EvenhandError, match=r"^Cannot read the image .*3\.png: the file is empty\.$"):
            list(batches.test())
