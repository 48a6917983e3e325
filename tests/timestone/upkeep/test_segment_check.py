"""The check of a sealed segment finds every changed bit."""

import errno
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from timestone.disk.files import Files
from timestone.kernel.entries import HEADER_BYTES
from timestone.segment import Segment
from timestone.upkeep.segment_check import SegmentCheck

COUNT = 50


@pytest.fixture
def segment(quick_directory: Path) -> Segment:
    with timestone.open(quick_directory / "a") as store:
        store.log("a").append_many([b"%05d" % number for number in range(COUNT)], topic="t")
        store.log("a").roll()
    view = timestone.view(quick_directory / "a")
    (segment,) = view.log("a").segment_list.segments
    view.open_segments.clear()
    view.close()
    return segment


def checked(
    segment: Segment, files: Files | None = None, slice_bytes: int = 64
) -> list[tuple[int, int, str]]:
    check = SegmentCheck(files or Files(), segment)
    list(check.slices(slice_bytes))
    return [(one.first, one.end, one.reason) for one in check.damaged]


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_undamaged_segment_has_no_findings(segment: Segment) -> None:
    assert checked(segment) == []
    assert checked(segment, slice_bytes=1) == []
    assert checked(segment, slice_bytes=10**6) == []
    sizes = segment.index_path.stat().st_size + segment.segment_path.stat().st_size
    assert 0.9 * sizes < sum(SegmentCheck(Files(), segment).slices(64)) <= sizes


@pytest.mark.parametrize("slice_bytes", [1, 64, 10**6])
def test_each_flipped_bit_of_a_record_costs_that_record(segment: Segment, slice_bytes: int) -> None:
    for position in range(0, 5 * COUNT, 7):
        flip(segment.segment_path, position, position % 8)
        assert checked(segment, slice_bytes=slice_bytes) == [
            (position // 5, position // 5 + 1, "the bytes do not match their checksum")
        ]
        flip(segment.segment_path, position, position % 8)


def test_each_flipped_bit_of_an_index_is_found(segment: Segment) -> None:
    size = segment.index_path.stat().st_size
    for position in [*range(0, 80), *range(500, 600), *range(1020, 1080), *range(HEADER_BYTES - 2, size, 5)]:
        flip(segment.index_path, position, position % 8)
        found = checked(segment)
        if HEADER_BYTES <= position < HEADER_BYTES + 32 * COUNT:
            ordinal = (position - HEADER_BYTES) // 32
            assert found == [(ordinal, ordinal + 1, "the index entry does not match its checksum")]
        else:
            assert [(first, end) for first, end, _ in found] == [(0, 0)], position
        flip(segment.index_path, position, position % 8)


def test_damaged_neighbours_are_one_range(segment: Segment) -> None:
    for number in (3, 4, 5, 9):
        flip(segment.segment_path, 5 * number)
    assert [(first, end) for first, end, _ in checked(segment, slice_bytes=10**6)] == [(3, 6), (9, 10)]


def test_truncated_files_are_damage(segment: Segment) -> None:
    whole = segment.index_path.read_bytes()
    segment.index_path.write_bytes(whole[: HEADER_BYTES + 32 * 20])
    assert (20, COUNT, "the index file ends before them") in checked(segment)
    segment.index_path.write_bytes(whole)
    segment.segment_path.write_bytes(segment.segment_path.read_bytes()[:101])
    assert [(first, end) for first, end, _ in checked(segment, slice_bytes=10**6)] == [(20, COUNT)]


def test_unreadable_page_is_damage_and_the_check_continues(segment: Segment) -> None:
    files = FaultyFiles()
    files.fail("pread", errno.EIO, path=".segment", forever=True)
    found = checked(segment, files, slice_bytes=10**6)
    assert found[0][:2] == (0, COUNT)
    assert found[-1][2].startswith("the disk will not read 1 pages of")


def test_check_closes_all_files(segment: Segment) -> None:
    files = FaultyFiles()
    check = SegmentCheck(files, segment)
    slices = check.slices(10)
    for _ in range(5):
        next(slices)
    assert len(files._paths) == 2
    slices.close()  # type: ignore[attr-defined]
    assert files._paths == {}


def test_missing_segment_is_reported(segment: Segment) -> None:
    segment.segment_path.unlink()
    with pytest.raises(FileNotFoundError):
        SegmentCheck(Files(), segment)
