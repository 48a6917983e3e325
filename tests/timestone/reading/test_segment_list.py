from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.segments import make_segment
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import LostRange, SegmentList


@pytest.fixture
def segment_list(quick_directory: Path) -> Iterator[SegmentList]:
    """[0, 3) sealed, [3, 5) sealed, a gap that a power loss left, [100, 102) growing."""
    open_segments = SegmentCache(8)
    made = [
        make_segment(quick_directory, [b"0", b"1", b"2"], first_us=1000, open_segments=open_segments),
        make_segment(
            quick_directory, [b"3", b"4"], base_offset=3, first_us=1100, open_segments=open_segments
        ),
        make_segment(
            quick_directory,
            [b"100", b"101"],
            base_offset=100,
            first_us=1200,
            sealed=False,
            open_segments=open_segments,
        ),
    ]
    yield SegmentList(made)
    open_segments.clear()


LOCATED = [
    (0, 0),
    (2, 0),
    (3, 3),
    (4, 3),
    (5, 100),
    (99, 100),
    (100, 100),
    (101, 100),
    (102, None),
    (10**9, None),
]


@pytest.mark.parametrize(("offset", "base"), LOCATED)
def test_offset_is_located_in_its_segment_or_the_next_behind_a_gap(
    segment_list: SegmentList, offset: int, base: int | None
) -> None:
    found = segment_list.locate(offset)
    assert (found.base_offset if found else None) == base


@pytest.mark.parametrize(
    ("offset", "gap"),
    [(4, None), (5, None), (6, (5, 100)), (99, (5, 100)), (100, None), (101, None), (102, None)],
)
def test_offset_inside_a_gap_is_recognised(
    segment_list: SegmentList, offset: int, gap: tuple[int, int] | None
) -> None:
    assert segment_list.gap_at(offset) == gap


@pytest.mark.parametrize(
    ("first", "last", "bases"),
    [
        (0, 102, [0, 3, 100]),
        (2, 3, [0]),
        (2, 4, [0, 3]),
        (5, 100, []),
        (4, 101, [3, 100]),
        (102, 200, []),
        (1, 1, []),
    ],
)
def test_range_has_the_segments_that_hold_records_of_it(
    segment_list: SegmentList, first: int, last: int, bases: list[int]
) -> None:
    assert [segment.base_offset for segment in segment_list.within(first, last)] == bases


def test_segment_that_reaches_into_the_next_one_ends_there(quick_directory: Path) -> None:
    made = [
        make_segment(quick_directory, [b"%d" % each for each in range(6)], first_us=1000),
        make_segment(quick_directory, [b"4", b"5", b"6"], base_offset=4, first_us=1100),
    ]
    bounds = [(base, end) for base, end, _ in SegmentList(made).bounded(1, 7)]
    assert bounds == [(0, 4), (4, 7)]


def test_sealed_segments_end_at_the_first_unsealed_one(segment_list: SegmentList) -> None:
    assert [segment.base_offset for segment in segment_list.sealed()] == [0, 3]
    unsealed_first = SegmentList([segment_list.segments[2], *segment_list.segments[:2]])
    assert unsealed_first.sealed() == []


def test_empty_list_has_no_offsets() -> None:
    assert SegmentList([]).locate(0) is None
    assert SegmentList([]).offset_at(5, 7) == 7
    assert SegmentList([]).gap_at(5) is None
    assert list(SegmentList([]).within(0, 9)) == []
    assert SegmentList([]).read(0, 10, max_records=1, max_bytes=1) is None


READS = [(0, [0, 1, 2]), (2, [2]), (4, [4]), (5, [100, 101]), (50, [100, 101]), (101, [101])]


@pytest.mark.parametrize(("offset", "offsets"), READS)
def test_read_gives_the_next_records_of_one_segment(
    segment_list: SegmentList, offset: int, offsets: list[int]
) -> None:
    found = segment_list.read(offset, 102, max_records=100, max_bytes=100)
    assert found is not None
    segment, run = found
    first = segment.base_offset + run.base_ordinal
    assert list(range(first, first + len(run.entries))) == offsets
    assert run.data == b"".join(b"%d" % one for one in offsets)


def test_read_stops_at_the_published_end(segment_list: SegmentList) -> None:
    found = segment_list.read(100, 101, max_records=100, max_bytes=100)
    assert found is not None
    assert len(found[1].entries) == 1
    assert segment_list.read(101, 101, max_records=100, max_bytes=100) is None
    assert segment_list.read(50, 100, max_records=100, max_bytes=100) is None


TIMES = [
    (0, 0),
    (1000, 0),
    (1001, 1),
    (1021, 3),
    (1100, 3),
    (1111, 100),
    (1200, 100),
    (1201, 101),
    (1211, 102),
]


@pytest.mark.parametrize(("timestamp_us", "offset"), TIMES)
def test_offset_of_a_time_is_found_across_segments(
    segment_list: SegmentList, timestamp_us: int, offset: int
) -> None:
    assert segment_list.offset_at(timestamp_us, 102) == offset


def test_changes_return_a_new_list_and_keep_the_old_one(
    segment_list: SegmentList, quick_directory: Path
) -> None:
    first, second, third = segment_list.segments
    assert SegmentList.replaced(segment_list, second, first).segments == (first, first, third)
    assert segment_list.without({3}).segments == (first, third)
    assert segment_list.without({3, third.base_offset}).segments == (first,)
    assert segment_list.followed_by(first).segments == (first, second, third, first)
    assert segment_list.segments == (first, second, third)


def test_loss_has_its_reason_also_in_a_gap_within_an_epoch(quick_directory: Path) -> None:
    made = [make_segment(quick_directory, [b"x"], base_offset=base) for base in (0, 10, 20)]
    for segment, epoch in zip(made, (0, 0, 1), strict=True):
        segment.epoch = epoch
    noted = [LostRange(5, 8, "cut"), LostRange(12, 15, "gone")]
    assert list(SegmentList(made, noted).lost_between(0, 30)) == [
        LostRange(1, 10, "cut"),
        LostRange(12, 15, "gone"),
    ]
    assert list(SegmentList(made, noted).lost_between(14, 30)) == [LostRange(14, 15, "gone")]
