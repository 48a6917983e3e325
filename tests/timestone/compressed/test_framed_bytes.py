"""Any range of a compressed file reads as if it were not compressed; damage affects only its frame."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.framed import BASE, FRAME_BYTES, LOG_ID, framed, reading
from timestone.compressed.frame_cache import DecodedFrames
from timestone.compressed.frame_table import TAG_BYTES, table_bytes
from timestone.compressed.framed_bytes import FramedBytes, FramedFile, open_framed
from timestone.disk.files import Files
from timestone.index import FrameLayout
from timestone.kernel.crc import crc32c

RAW = b"".join(b'{"n":%d}' % n for n in range(3000))
FILE, TAGS = framed(RAW)
TABLE = FILE[-table_bytes(len(TAGS)) :]
LAYOUT = FrameLayout(FRAME_BYTES, 0, crc32c(TABLE))


def opened(
    file: bytes = FILE, layout: FrameLayout | None = LAYOUT, folder: Path = Path()
) -> tuple[FramedBytes, str]:
    raw_bytes = len(RAW) if layout else 0
    framed_file = FramedFile(reading(file), len(file), LOG_ID, BASE)
    return open_framed(Files(), folder, framed_file, DecodedFrames(4 * FRAME_BYTES), layout, raw_bytes)


SHARED, WRONG = opened()


@given(st.integers(0, len(RAW) + 10), st.integers(0, len(RAW) + 10))
def test_any_range_is_the_same_as_of_the_raw_bytes(position: int, length: int) -> None:
    assert SHARED.read(position, length) == RAW[position : position + length]
    assert SHARED.damage == {}
    assert WRONG == ""


def test_reading_a_record_decodes_one_frame_and_its_neighbours_none() -> None:
    reads: list[tuple[int, int]] = []

    def read(position: int, length_bytes: int) -> bytes:
        reads.append((position, length_bytes))
        return FILE[position : position + length_bytes]

    framed_file = FramedFile(read, len(FILE), LOG_ID, BASE)
    bytes_, _ = open_framed(Files(), Path(), framed_file, DecodedFrames(), LAYOUT, len(RAW))
    reads.clear()
    assert bytes_.read(5 * FRAME_BYTES + 10, 20) == RAW[5 * FRAME_BYTES + 10 :][:20]
    assert bytes_.read(5 * FRAME_BYTES + 40, 20) == RAW[5 * FRAME_BYTES + 40 :][:20]
    assert [length for _, length in reads] == [TAG_BYTES + TAGS[5].stored_bytes]
    reads.clear()
    assert bytes_.read(0, len(RAW)) == RAW
    assert len(reads) == -(-len(TAGS) // 16), "neighbours are fetched together, a bounded number"


def frame_at(number: int) -> int:
    return sum(TAG_BYTES + tag.stored_bytes for tag in TAGS[:number])


@pytest.mark.parametrize("number", [0, 4, len(TAGS) - 1])
@pytest.mark.parametrize("within", [-2, TAG_BYTES + 6, TAG_BYTES + 30, 12])
def test_damage_affects_only_its_frame_and_has_a_reason(number: int, within: int) -> None:
    """Within the tag of a frame, its header, its middle and its end."""
    file = bytearray(FILE)
    file[frame_at(number) + within if within > 0 else frame_at(number + 1) + within] ^= 16
    bytes_, wrong = opened(bytes(file))
    assert wrong == ""
    read = bytes_.read(0, len(RAW))
    assert len(read) == len(RAW)
    start, end = number * FRAME_BYTES, min((number + 1) * FRAME_BYTES, len(RAW))
    assert (read[:start], read[end:]) == (RAW[:start], RAW[end:])
    assert list(bytes_.damage) == [number]
    assert bytes_.damage_in(start, 10).startswith(f"frame {number} of the file: ")
    assert bytes_.damage_in(start - 5, 5) == ""


def test_swapped_frame_is_reported_although_it_decodes() -> None:
    first, second = frame_at(1), frame_at(2)
    stored = FILE[first:second].ljust(frame_at(4) - frame_at(3), b"\0")[: frame_at(4) - frame_at(3)]
    bytes_, _ = opened(FILE[: frame_at(3)] + stored + FILE[frame_at(4) :])
    bytes_.read(0, len(RAW))
    assert bytes_.damage == {3: "it belongs elsewhere"}


def test_all_bytes_are_read_without_table_and_index() -> None:
    damaged = bytearray(FILE)
    damaged[-20] ^= 1
    for file, layout in ((bytes(damaged), LAYOUT), (bytes(damaged), None), (FILE, None)):
        bytes_, wrong = opened(file, layout)
        assert wrong != ""
        assert bytes_.read(0, len(RAW)) == RAW
    assert opened(FILE, None)[0].layout == LAYOUT, "the tags and the table tell what the index did"


def test_truncated_file_serves_its_remaining_frames() -> None:
    bytes_, wrong = opened(FILE[: frame_at(7) + 10])
    assert wrong.startswith("the seek table: ")
    assert bytes_.read(0, len(RAW)) == RAW[: 7 * FRAME_BYTES].ljust(len(RAW), b"\0")


def test_reads_name_the_dictionary_when_it_is_missing(tmp_path: Path) -> None:
    bytes_, wrong = opened(layout=FrameLayout(FRAME_BYTES, 3, crc32c(TABLE)), folder=tmp_path)
    assert wrong == "3.dictionary is missing"
    assert bytes_.decoder is None
    assert bytes_.read(10, 100) == bytes(100)
    assert "dictionary" in bytes_.damage_in(10, 1)
