"""Pictures and tables for the tests of decoding, caching and batches."""

import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from evenhand.data.table import FilePixels, SampleTable


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def smooth(height: int, width: int) -> NDArray[np.uint8]:
    """A picture that survives JPEG: every corner has a colour of its own."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([255 * y / height, 255 * x / width, 255 * (1 - y / height)], 2).astype(np.uint8)


def picture(image: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def encode(image: NDArray[np.uint8] | Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else picture(image)).save(file, kind, **options)
    return file.getvalue()


def write(root: Path, files: Mapping[str, NDArray[np.uint8] | bytes]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else encode(content))


def table_of(
    root: Path, paths: Sequence[str], boxes: NDArray[np.int64] | None = None, class_names: Sequence[str] = ("a", "b")
) -> SampleTable:
    count = len(paths)
    return SampleTable(
        name="pictures",
        class_names=tuple(class_names),
        labels=np.arange(count) % len(class_names),
        ids=np.array([f"{row} {path}" for row, path in enumerate(paths)]),
        pixels=FilePixels(root, paths, boxes),
    )


def written(root: Path, files: Mapping[str, NDArray[np.uint8] | bytes]) -> SampleTable:
    write(root, files)
    return table_of(root, list(files))


def png(width: int, height: int, bits: int, colour: int, lines: bytes, *extra: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand, for what Pillow does not write; extra chunks stand in front of the pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    body = b"".join(
        chunk(*part) for part in [(b"IHDR", header), *extra, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    )
    return b"\x89PNG\r\n\x1a\n" + body


def turned_late(image: NDArray[np.uint8]) -> bytes:
    """A PNG that says only behind its pixels that it is to be turned by 90 degrees clockwise."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encode(image, exif=exif)
    start = content.index(b"eXIf") - 4
    stop = start + 12 + int.from_bytes(content[start : start + 4], "big")
    end = content.index(b"IEND") - 4
    return content[:start] + content[stop:end] + content[start:stop] + content[end:]
