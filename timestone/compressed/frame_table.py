"""A compressed segment file: zstd frames of equal raw size, each behind a tag that says where it belongs.

    0   60  tag of the first frame                  tag: a zstd skippable frame
    60   .  the first frame                           0  4  skippable magic 0x184d2a50
     .  60  tag of the second frame                   4  4  bytes that follow, 52
     .   .  …                                         8  4  magic "TSTF"
     .   .  seek table, to the end of the file       12  4  format version
                                                     16  8  log id
    seek table: a skippable frame in zstd's own      24  8  base offset
    seekable format, two rows a frame, one for its   32  4  number of the frame, from 0
    tag and one for itself                           36  4  raw bytes of each frame but the last
     0  4  skippable magic 0x184d2a5e                40  4  raw bytes of this one
     4  4  bytes that follow                         44  4  bytes of this one as stored
     8  8  a row: bytes in the file, raw bytes       48  4  crc32c of those
     …  .                                            52  4  number of its dictionary, 0 for none
     n  4  rows                                      56  4  crc32c of bytes 0 to 55
    +4  1  0
    +5  4  seekable magic 0x8f92eab1

So any zstd tool decodes the file to what the segment was before. The table is for finding a frame at once; when it
is damaged, the tags say the same. Bytes in, values out; no file is touched here."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from timestone.config import KIB, MIB, SEGMENT_BYTES_MAX
from timestone.disk.files import Data
from timestone.kernel.loops import crc32c

FORMAT_VERSION = 1
FRAME_BYTES = 256 * KIB
"""Raw bytes of a frame: the cost of reading one record. Larger frames compress little better."""
FRAME_BYTES_MIN, FRAME_BYTES_MAX = KIB, 16 * MIB
"""Accepted sizes in a file."""
TAG_BYTES = 60

_TAG = struct.Struct("<II4sIQQIIIIII")
_CRC = struct.Struct("<I")
_TAG_START = struct.pack("<II4s", 0x184D2A50, TAG_BYTES - 8, b"TSTF")
_TABLE_MAGIC, _SEEKABLE_MAGIC = 0x184D2A5E, 0x8F92EAB1
_TABLE_HEAD, _TABLE_FOOT = struct.Struct("<II"), struct.Struct("<IBI")
_ROW = np.dtype([("file_bytes", "<u4"), ("raw_bytes", "<u4")])
_SCAN_BYTES = 1 << 20
assert _TAG.size == TAG_BYTES - 4

Read = Callable[[int, int], bytes]
"""Read bytes by position and length; fewer at the end of the file."""


class DamagedTable(ValueError):
    """The seek table is damaged; frames can still be found by their tags."""


class FrameTag(NamedTuple):
    """Tag before a frame: its log, segment and number."""

    log_id: int
    base_offset: int
    number: int
    frame_bytes: int
    """Raw bytes of each frame of the file except the last."""
    raw_bytes: int
    stored_bytes: int
    stored_crc: int
    dictionary: int

    @property
    def raw_end(self) -> int:
        """Return the end position of the frame in the segment."""
        return self.number * self.frame_bytes + self.raw_bytes

    @property
    def is_plausible(self) -> bool:
        """Return whether its sizes are within the limits for allocation."""
        sizes = (
            FRAME_BYTES_MIN <= self.frame_bytes <= FRAME_BYTES_MAX and 0 < self.raw_bytes <= self.frame_bytes
        )
        return sizes and self.raw_end <= SEGMENT_BYTES_MAX

    def encode(self) -> bytes:
        start = struct.unpack("<II4s", _TAG_START)
        fixed = _TAG.pack(*start, FORMAT_VERSION, *self)
        return fixed + _CRC.pack(crc32c(fixed))

    @classmethod
    def decode(cls, data: Data) -> Self | None:
        """Decode the tag at the front of `data`; None if there is no valid one."""
        if len(data) < TAG_BYTES or bytes(data[: len(_TAG_START)]) != _TAG_START:
            return None
        if _CRC.unpack_from(data, TAG_BYTES - 4)[0] != crc32c(data[: TAG_BYTES - 4]):
            return None
        _, _, _, version, *values = _TAG.unpack_from(data)
        tag = cls(*values)
        return tag if version == FORMAT_VERSION and tag.is_plausible else None


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Positions of the frames of a file. Frame n holds the raw bytes from n * `frame_bytes` on."""

    frame_bytes: int
    raw_bytes: int
    """Raw bytes of all frames, missing ones included."""
    positions: npt.NDArray[np.int64]
    """Position of the tag of each frame in the file."""
    sizes: npt.NDArray[np.int64]
    """Size of tag and frame in the file; 0 for a missing frame."""


def frame_count(raw_bytes: int, frame_bytes: int) -> int:
    """Return the number of frames for `raw_bytes`."""
    return -(-raw_bytes // frame_bytes)


def encode_table(tags: Sequence[FrameTag]) -> bytes:
    """Encode the seek table for the frames of these tags."""
    rows = np.zeros(2 * len(tags), dtype=_ROW)
    rows["file_bytes"][0::2] = TAG_BYTES
    rows["file_bytes"][1::2] = [tag.stored_bytes for tag in tags]
    rows["raw_bytes"][1::2] = [tag.raw_bytes for tag in tags]
    content = rows.tobytes() + _TABLE_FOOT.pack(len(rows), 0, _SEEKABLE_MAGIC)
    return _TABLE_HEAD.pack(_TABLE_MAGIC, len(content)) + content


def table_bytes(count: int) -> int:
    """Return the size of the seek table of `count` frames."""
    return _TABLE_HEAD.size + 2 * count * _ROW.itemsize + _TABLE_FOOT.size


def decode_table(data: bytes, *, frame_bytes: int, raw_bytes: int, file_bytes: int) -> FrameTable:
    """Decode the seek table. Raises DamagedTable."""
    count = frame_count(raw_bytes, frame_bytes)
    if len(data) != table_bytes(count):
        raise DamagedTable(f"{len(data)} bytes instead of {table_bytes(count)}")
    rows = np.frombuffer(data, dtype=_ROW, count=2 * count, offset=_TABLE_HEAD.size)
    sizes = rows["file_bytes"].astype(np.int64).reshape(-1, 2).sum(axis=1)
    raw = np.zeros(2 * count, dtype=np.int64)
    raw[1::2] = frame_bytes
    raw[-1] = raw_bytes - (count - 1) * frame_bytes
    ends = np.cumsum(sizes)
    frame = (*_TABLE_HEAD.unpack_from(data), *_TABLE_FOOT.unpack_from(data, len(data) - _TABLE_FOOT.size))
    if frame != (_TABLE_MAGIC, len(data) - _TABLE_HEAD.size, 2 * count, 0, _SEEKABLE_MAGIC):
        raise DamagedTable("it is not a seek table")
    if (rows["file_bytes"][0::2] != TAG_BYTES).any() or (rows["raw_bytes"] != raw).any():
        raise DamagedTable("its rows do not fit the frames")
    if ends[-1] + len(data) != file_bytes:
        raise DamagedTable(f"its frames take {ends[-1]} of {file_bytes} bytes")
    return FrameTable(frame_bytes, raw_bytes, ends - sizes, sizes)


def is_framed(start: bytes) -> bool:
    """Return whether this is the start of a compressed segment file, if its first tag is intact."""
    return FrameTag.decode(start) is not None


def walk(
    read: Read, file_bytes: int, *, log_id: int, base_offset: int, raw_bytes: int = 0
) -> tuple[FrameTable, list[FrameTag]]:
    """Find the frames of a file by their tags. Return the table and the tags found. raw_bytes: total raw size, if
    known."""
    found: list[tuple[int, FrameTag]] = []
    at = 0
    while at + TAG_BYTES <= file_bytes:
        tag = FrameTag.decode(read(at, TAG_BYTES))
        if tag is None or (tag.log_id, tag.base_offset) != (log_id, base_offset):
            at = _next_start(read, at + 1, file_bytes)
            continue
        found.append((at, tag))
        at += TAG_BYTES + tag.stored_bytes
    tags = [tag for _, tag in found]
    frame_bytes = tags[0].frame_bytes if tags else FRAME_BYTES
    raw_bytes = max([raw_bytes, *(tag.raw_end for tag in tags if tag.frame_bytes == frame_bytes)])
    count = frame_count(raw_bytes, frame_bytes)
    positions, sizes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for position, tag in found:
        if tag.frame_bytes == frame_bytes:
            positions[tag.number], sizes[tag.number] = position, TAG_BYTES + tag.stored_bytes
    return FrameTable(frame_bytes, raw_bytes, positions, sizes), tags


def _next_start(read: Read, at: int, file_bytes: int) -> int:
    """Return the next position that looks like a tag; the end of the file if there is none."""
    while at < file_bytes:
        piece = read(at, _SCAN_BYTES + len(_TAG_START))
        found = piece.find(_TAG_START)
        if found >= 0:
            return at + found
        at += _SCAN_BYTES
    return file_bytes
