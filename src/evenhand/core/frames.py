"""Messages of bytes through a pipe: eight bytes of length, then the content."""

from typing import BinaryIO

LARGEST = 2**26
"""Bytes of a message."""


def write_frame(file: BinaryIO, content: bytes) -> None:
    """Write a message.

    Example:
        >>> import io
        >>> from evenhand.core.frames import read_frame, write_frame
        >>> pipe = io.BytesIO()
        >>> write_frame(pipe, b"picture")
        >>> pipe.seek(0)
        0
        >>> read_frame(pipe)
        b'picture'
    """
    file.write(len(content).to_bytes(8, "big"))
    file.write(content)
    file.flush()


def read_frame(file: BinaryIO) -> bytes:
    """Read a message.

    Raises:
        EOFError: the other end is closed; OSError: the message is larger than `LARGEST` bytes.
    """
    length = int.from_bytes(_read(file, 8), "big")
    if length > LARGEST:
        raise OSError(f"a message of {length:,} bytes is larger than {LARGEST:,}")
    return _read(file, length)


def _read(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)  # a buffered file reads all of it
    if len(content) < length:
        raise EOFError
    return content
