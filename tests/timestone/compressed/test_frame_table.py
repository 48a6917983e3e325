"""The compressed segment file as bytes: exact layouts, verification of the table, reading by tags without it."""

import io
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.support.framed import BASE, FRAME_BYTES, LOG_ID, framed, reading
from timestone.compressed.frame_table import (
    TAG_BYTES,
    DamagedTable,
    FrameTag,
    decode_table,
    encode_table,
    frame_count,
    is_framed,
    table_bytes,
    walk,
)
from timestone.kernel.crc import crc32c

TAG = FrameTag(0x1122334455667788, 1000, 3, 262144, 100_000, 20_000, 0xAABBCCDD, 2)
RAW = b"".join(b'{"n":%d}' % n for n in range(900))
FILE, TAGS = framed(RAW)


def test_tag_has_the_bytes_that_the_format_page_shows() -> None:
    fixed = struct.pack("<II4sI", 0x184D2A50, 52, b"TSTF", 1) + struct.pack(
        "<QQIIIIII", 0x1122334455667788, 1000, 3, 262144, 100_000, 20_000, 0xAABBCCDD, 2
    )
    assert TAG.encode() == fixed + struct.pack("<I", crc32c(fixed))
    assert len(TAG.encode()) == TAG_BYTES
    assert FrameTag.decode(TAG.encode() + b"what follows") == TAG


def test_table_has_the_bytes_that_the_format_page_shows() -> None:
    tags = [TAG._replace(raw_bytes=262144, stored_bytes=9), TAG._replace(raw_bytes=7, stored_bytes=8)]
    rows = struct.pack("<8I", TAG_BYTES, 0, 9, 262144, TAG_BYTES, 0, 8, 7)
    assert encode_table(tags) == (
        struct.pack("<II", 0x184D2A5E, len(rows) + 9) + rows + struct.pack("<IBI", 4, 0, 0x8F92EAB1)
    )
    assert len(encode_table(tags)) == table_bytes(2)


def test_file_decodes_to_the_raw_segment_with_any_zstd_tool() -> None:
    reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(FILE), read_across_frames=True)
    assert reader.read() == RAW


def test_tag_is_invalid_after_any_flipped_bit() -> None:
    encoded = TAG.encode()
    for bit in range(len(encoded) * 8):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        assert FrameTag.decode(flipped) is None


@pytest.mark.parametrize(
    "tag",
    [
        TAG._replace(frame_bytes=1),
        TAG._replace(frame_bytes=1 << 30, raw_bytes=1),
        TAG._replace(raw_bytes=262145),
        TAG._replace(raw_bytes=0),
        TAG._replace(number=2**31),
    ],
)
def test_tag_is_refused_when_its_sizes_are_too_large(tag: FrameTag) -> None:
    assert FrameTag.decode(tag.encode()) is None


@given(st.binary(max_size=200))
def test_parsers_refuse_random_bytes_as_tag_and_table(data: bytes) -> None:
    assert FrameTag.decode(data) is None
    assert not is_framed(data)
    with pytest.raises(DamagedTable):
        decode_table(data, frame_bytes=1024, raw_bytes=5000, file_bytes=len(data))


def table_of(file: bytes) -> bytes:
    return file[-table_bytes(len(TAGS)) :]


def test_table_has_the_position_of_each_frame() -> None:
    table = decode_table(table_of(FILE), frame_bytes=FRAME_BYTES, raw_bytes=len(RAW), file_bytes=len(FILE))
    decoder = zstandard.ZstdDecompressor()
    for number, (position, size) in enumerate(zip(table.positions, table.sizes, strict=True)):
        stored = FILE[position : position + size]
        assert FrameTag.decode(stored) == TAGS[number]
        raw = decoder.decompress(stored[TAG_BYTES:])
        assert raw == RAW[number * FRAME_BYTES : (number + 1) * FRAME_BYTES]
    assert len(table.sizes) == frame_count(len(RAW), FRAME_BYTES) == len(TAGS)


def test_table_is_damaged_when_it_contradicts_the_file() -> None:
    raw_bytes, file_bytes = len(RAW), len(FILE)
    for change in ({"raw_bytes": raw_bytes - 1}, {"file_bytes": file_bytes + 1}, {"frame_bytes": 2048}):
        facts = {"frame_bytes": FRAME_BYTES, "raw_bytes": raw_bytes, "file_bytes": file_bytes, **change}
        with pytest.raises(DamagedTable):
            decode_table(table_of(FILE), **facts)
    for at in (0, 4, 8, 12, 16, 20, len(table_of(FILE)) - 9, len(table_of(FILE)) - 4):
        damaged = bytearray(table_of(FILE))
        damaged[at] ^= 1
        with pytest.raises(DamagedTable):
            decode_table(bytes(damaged), frame_bytes=FRAME_BYTES, raw_bytes=raw_bytes, file_bytes=file_bytes)


def walked(file: bytes, raw_bytes: int = 0) -> tuple[list[int], int]:
    table, tags = walk(reading(file), len(file), log_id=LOG_ID, base_offset=BASE, raw_bytes=raw_bytes)
    assert len(tags) == np.count_nonzero(table.sizes)
    return np.flatnonzero(table.sizes).tolist(), table.raw_bytes


def test_frames_are_found_without_the_table() -> None:
    every = list(range(len(TAGS)))
    assert walked(FILE) == (every, len(RAW))
    assert walked(FILE[: -table_bytes(len(TAGS))]) == (every, len(RAW))
    table, _ = walk(reading(FILE), len(FILE), log_id=LOG_ID, base_offset=BASE)
    told = decode_table(table_of(FILE), frame_bytes=FRAME_BYTES, raw_bytes=len(RAW), file_bytes=len(FILE))
    assert table.positions.tolist() == told.positions.tolist()
    assert table.sizes.tolist() == told.sizes.tolist()


def test_damaged_tag_costs_one_frame_and_the_search_continues_behind_it() -> None:
    for number in (0, 3, len(TAGS) - 1):
        file = bytearray(FILE)
        file[sum(TAG_BYTES + tag.stored_bytes for tag in TAGS[:number]) + 20] ^= 1
        found, raw_bytes = walked(bytes(file), len(RAW))
        assert found == [one for one in range(len(TAGS)) if one != number]
        assert raw_bytes == len(RAW)


def test_frames_of_another_segment_are_rejected() -> None:
    table, tags = walk(reading(FILE), len(FILE), log_id=LOG_ID, base_offset=BASE + 1, raw_bytes=5000)
    assert tags == []
    assert table.raw_bytes == 5000
    assert not table.sizes.any()
