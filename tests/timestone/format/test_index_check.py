"""The parts of an index file that no record depends on are verified too, bit by bit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.segments import make_segment
from timestone.format.index_check import damaged_parts
from timestone.index import SLOT_POSITIONS
from timestone.kernel.entries import HEADER_BYTES
from timestone.segment import Segment


@pytest.fixture
def sealed(tmp_path: Path) -> Segment:
    return make_segment(tmp_path, [b"a", b"b"], topics=[0, 1])


def reader_of(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, length: data[position : position + length]


def found(segment: Segment, data: bytes) -> list[str]:
    return damaged_parts(reader_of(data), segment.index_path, segment.trailer)


def test_unchanged_index_is_valid(sealed: Segment) -> None:
    assert found(sealed, sealed.index_path.read_bytes()) == []


def test_every_flipped_bit_outside_of_the_entries_is_found(sealed: Segment) -> None:
    data = sealed.index_path.read_bytes()
    for position in [*range(HEADER_BYTES), *range(HEADER_BYTES + 2 * 32, len(data))]:
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        assert len(found(sealed, bytes(flipped))) == 1, position


def test_index_of_another_length_is_damaged(sealed: Segment) -> None:
    data = sealed.index_path.read_bytes()
    assert found(sealed, data[:-1])
    assert found(sealed, data + b"x")


def test_growing_index_may_have_a_torn_checkpoint_but_no_bytes_in_empty_space(
    tmp_path: Path,
) -> None:
    growing = make_segment(tmp_path, [b"a"], sealed=False)
    data = bytearray(growing.index_path.read_bytes())
    assert found(growing, bytes(data)) == []
    data[SLOT_POSITIONS[0]] ^= 1
    assert found(growing, bytes(data)) == [], "as a power loss may leave it; the other one holds"
    data[100] ^= 1
    assert found(growing, bytes(data)) == ["the header page of the index is not empty where it should be"]
