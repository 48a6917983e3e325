"""Compressed segment files made for a test, without a store around them."""

from collections.abc import Callable

from timestone.compressed.frame_table import FrameTag, encode_table
from timestone.compressed.zstd import FrameEncoder
from timestone.kernel.crc import crc32c

LOG_ID, BASE = 77, 1000
FRAME_BYTES = 1024


def framed(
    raw: bytes, *, dictionary: int = 0, content: bytes | None = None, frame_bytes: int = FRAME_BYTES
) -> tuple[bytes, list[FrameTag]]:
    """Return the compressed file of some bytes, and its tags."""
    encoder, file, tags = FrameEncoder(3, content), b"", []
    for number, at in enumerate(range(0, len(raw), frame_bytes)):
        piece = raw[at : at + frame_bytes]
        frame = encoder.encode(piece)
        tag = FrameTag(LOG_ID, BASE, number, frame_bytes, len(piece), len(frame), crc32c(frame), dictionary)
        file += tag.encode() + frame
        tags.append(tag)
    return file + encode_table(tags), tags


def reading(data: bytes) -> Callable[[int, int], bytes]:
    """Return a reader of bytes as of a file."""
    return lambda position, length_bytes: data[position : position + length_bytes]
