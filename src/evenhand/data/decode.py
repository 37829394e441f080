"""Decode image files to uint8 arrays; any invalid file raises `BadImage`."""

import io
import logging
import math
import os
import stat
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from evenhand.core.errors import EvenhandError, reason
from evenhand.core.opening import open_regular

MAX_PIXELS = 2 * 89_478_485
"""Images that declare more pixels are refused before decoding: Pillow's limit, also where a program lifts that."""

MAX_ASPECT = 16
"""Images longer than this many times their shorter side are centre-cropped before resizing, to limit memory."""

Interpolation = Literal["bilinear", "bicubic", "lanczos", "nearest"]
"""The filter with which an image is resized; all but `nearest` are antialiased."""

_FILTERS: dict[str, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}

# Without formats that start other programs (EPS) and those without a signature (TGA), which match any text.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "MPO")
_GREY_MODES = ("1", "L", "LA", "La", "I", "F")
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Without a handler, what Pillow logs on damaged files would be printed to stderr.
logging.getLogger("PIL").addHandler(logging.NullHandler())


class BadImage(EvenhandError):  # noqa: N818 - the image is bad, not the program
    """An image file that cannot be used; `reason` is the cause without the file name."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


@dataclass(frozen=True)
class ImageInfo:
    """The header of an image file, with width and height after its EXIF rotation."""

    width: int
    height: int
    mode: str
    """Pillow's image mode, such as `L`, `RGB`, `P` or `CMYK`."""

    @property
    def grey(self) -> bool:
        """Whether the file is greyscale."""
        return _is_grey(self.mode)


def probe_image(path: Path | str, content: bytes | None = None) -> ImageInfo:
    """Read the header of an image file, or of its content, without decoding its pixels.

    Args:
        path: the file.
        content: the bytes of the file, if they were read before.

    Raises:
        BadImage: the file is missing, empty, no image, or declares more than `MAX_PIXELS`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from evenhand.data.decode import probe_image
        >>> path = Path(tempfile.mkdtemp()) / "wide.png"
        >>> Image.new("L", (20, 10)).save(path)
        >>> probe_image(path)
        ImageInfo(width=20, height=10, mode='L')
    """
    with _opened(path, content) as image:
        # Pillow would decode a PNG to search for EXIF data after its pixels, and rotates TIFF by itself.
        in_header = image.format != "TIFF" and (image.format != "PNG" or "exif" in image.info)
        width, height = _upright_size(image) if in_header else image.size
        return ImageInfo(width, height, image.mode)


def read_image(
    path: Path | str,
    box: Sequence[int] | None = None,
    *,
    channels: int | None = None,
    image_size: int | None = None,
    stretch: bool = False,
    interpolation: Interpolation = "bilinear",
    content: bytes | None = None,
) -> NDArray[np.uint8]:
    """Decode an image file to 8 bits per channel, with its EXIF rotation applied.

    The rotation is applied before the box is cropped. Transparent pixels are composited on white, 16 bits are scaled to
    8, and of an animation the first frame is used.

    Args:
        path: a JPEG, PNG, GIF, BMP, WebP, TIFF, PPM, JPEG 2000 or AVIF file, whatever its name ends in.
        box: left, top, right, bottom of the crop, in pixels; clipped to the image.
        channels: 1 or 3; None: 1 for a grey file and 3 for one in colour.
        image_size: length of the shorter side after resizing, antialiased; None: no resizing.
        stretch: resize both sides to that length.
        interpolation: the filter of the resize.
        content: the bytes of the file, if they were read before.

    Returns:
        uint8, (H, W, C).

    Raises:
        BadImage: the file is missing, empty, cut off, damaged, no image, or declares more than `MAX_PIXELS`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from evenhand.data.decode import read_image
        >>> path = Path(tempfile.mkdtemp()) / "red.png"
        >>> Image.new("RGB", (20, 10), "red").save(path)
        >>> read_image(path, box=(0, 0, 4, 2)).shape, read_image(path, image_size=5).shape
        ((2, 4, 3), (5, 10, 3))
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1, 3 or None, got {channels}")
    with _opened(path, content) as image:
        part, (height, width) = _cut(image, box, image_size, stretch)
        plain = to_grey_or_rgb(part)
        if plain.size != (width, height):
            plain = plain.resize((width, height), _FILTERS[interpolation])
        if channels is not None:
            plain = plain.convert("L" if channels == 1 else "RGB")
        array = np.array(plain)
        return array[:, :, None] if array.ndim == 2 else array


def resize_array(
    image: NDArray[np.uint8], image_size: int, *, stretch: bool = False, interpolation: Interpolation = "bilinear"
) -> NDArray[np.uint8]:
    """Resize the shorter side of an image in memory, (H, W, C), as `read_image` does with a file.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.decode import resize_array
        >>> resize_array(np.zeros((28, 28, 1), np.uint8), 32).shape
        (32, 32, 1)
    """
    size = image.shape[1], image.shape[0]
    left, top, right, bottom = _region(size, None, None if stretch else image_size)
    height, width = stored_size(*size, None, image_size, stretch=stretch)
    part = image[top:bottom, left:right]
    if part.shape[:2] == (height, width):
        return part
    pillow = Image.fromarray(part[:, :, 0] if part.shape[2] == 1 else part)
    return np.array(pillow.resize((width, height), _FILTERS[interpolation])).reshape(height, width, -1)


def with_channels(image: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    """Convert a grey image (H, W, 1) to colour (H, W, 3) or back, as `read_image` does with files.

    Example:
        >>> import numpy as np
        >>> from evenhand.data.decode import with_channels
        >>> with_channels(np.zeros((2, 2, 3), np.uint8), 1).shape
        (2, 2, 1)
    """
    if image.shape[2] == channels:
        return image
    if channels == 3:
        return image.repeat(3, axis=2)
    return np.array(Image.fromarray(image).convert("L"))[:, :, None]


def stored_size(
    width: int, height: int, box: Sequence[int] | None, image_size: int | None, *, stretch: bool = False
) -> tuple[int, int]:
    """Return the height and width after `read_image`, for an image of this size.

    Raises:
        ValueError: the box is outside the image.

    Example:
        >>> from evenhand.data.decode import stored_size
        >>> stored_size(640, 480, None, 64)
        (64, 85)
    """
    left, top, right, bottom = _region((width, height), box, None if stretch else image_size)
    width, height = right - left, bottom - top
    if image_size is None:
        return height, width
    if stretch:
        return image_size, image_size
    shorter = min(width, height)
    return height * image_size // shorter, width * image_size // shorter


class _Quiet:
    """Ignore warnings while any thread is inside; `warnings.catch_warnings` alone is not thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._filters.__exit__(None, None, None)


quiet = _Quiet()


@contextmanager
def _opened(path: Path | str, content: bytes | None = None) -> Iterator[Image.Image]:
    """Open an image file; any error inside the `with` block is re-raised as a `BadImage`."""
    try:
        if content is None:
            require_file(path)
        if content == b"":
            raise ValueError("the file is empty")
        file = open_regular(path) if content is None else io.BytesIO(content)
        with quiet, file, Image.open(file, formats=_formats()) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Image.DecompressionBombError
            yield image
    # Damaged files make Pillow raise nearly anything, from SyntaxError to ZeroDivisionError.
    except Exception as error:
        why = _reason(error)
        raise BadImage(f"Cannot read the image {path}: {why}.", why) from error


def require_file(path: Path | str) -> None:
    """Raise an `OSError` or a `ValueError` unless a path is a regular file that is not empty."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a file")  # a pipe would block forever
    if found.st_size == 0:
        raise ValueError("the file is empty")


@cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is not an image, or its header is damaged"
    if isinstance(error, Image.DecompressionBombError):
        return f"its header declares more than {MAX_PIXELS // 10**6} million pixels"
    if isinstance(error, MemoryError):
        return "it does not fit in memory"
    return reason(error, 120).lower() if isinstance(error, OSError) and error.strerror else reason(error, 120)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # pixels are used even if the EXIF data are damaged
        return 1


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if _orientation(image) in (5, 6, 7, 8) else (width, height)


def _region(size: tuple[int, int], box: Sequence[int] | None, image_size: int | None) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of the used part of an image (width, height)."""
    left, top, right, bottom = 0, 0, *size
    if box is not None:
        left, top, right, bottom = (int(edge) for edge in box)
        left, top, right, bottom = max(left, 0), max(top, 0), min(right, size[0]), min(bottom, size[1])
        if left >= right or top >= bottom:
            raise ValueError(f"the box {tuple(map(int, box))} is outside its {size[0]} x {size[1]} pixels")
    if image_size is not None:
        longest = MAX_ASPECT * min(right - left, bottom - top)
        too_wide, too_high = max(0, right - left - longest), max(0, bottom - top - longest)
        left, right = left + too_wide // 2, right - (too_wide + 1) // 2
        top, bottom = top + too_high // 2, bottom - (too_high + 1) // 2
    return left, top, right, bottom


def _cut(
    image: Image.Image, box: Sequence[int] | None, image_size: int | None, stretch: bool
) -> tuple[Image.Image, tuple[int, int]]:
    """Decode the used part, rotated by its EXIF data; return it with its height and width after resizing."""
    limit = None if stretch else image_size
    full = None
    if image.format in ("JPEG", "MPO") and image_size is not None:
        full = _upright_size(image)
        left, top, right, bottom = _region(full, box, limit)
        # JPEG decodes to 1/2, 1/4 or 1/8 at a fraction of the time; at least twice the size is kept for the resize.
        shrink = max(1, min(right - left, bottom - top) // (2 * image_size))
        image.draft(None, (image.width // shrink, image.height // shrink))
    image.load()
    orientation = _orientation(image)
    upright = image.transpose(_TRANSPOSE[orientation]) if orientation in _TRANSPOSE else image
    full = full or upright.size
    left, top, right, bottom = _region(full, box, limit)
    x, y = upright.width / full[0], upright.height / full[1]
    part = (math.floor(left * x), math.floor(top * y), math.ceil(right * x), math.ceil(bottom * y))
    if part != (0, 0, *upright.size):
        upright = upright.crop(part)
    return upright, stored_size(*full, box, image_size, stretch=stretch)


def _is_grey(mode: str) -> bool:
    return mode in _GREY_MODES or mode.startswith("I;16")


def to_grey_or_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to `L` or `RGB`."""
    if image.mode in ("L", "RGB") and "transparency" not in image.info:
        return image
    grey = _is_grey(image.mode)
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _to_8_bits(image)
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("L" if grey else "RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    values = np.asarray(image)
    low, high, top = values.min(), values.max(), 1.0 if image.mode == "F" else 65535
    if not (low >= 0 and high <= top):
        raise ValueError(f"its pixels range from {low:g} to {high:g}, expected 0 to {top:g}; save it with 8 or 16 bits")
    return Image.fromarray(np.rint(values * (255 / top)).astype(np.uint8))
