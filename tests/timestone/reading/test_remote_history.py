"""Segments that only a bucket has, in front of those on the disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.segments import make_segment
from timestone.disk.files import Files
from timestone.errors import HistoryUnavailable
from timestone.reading.remote_history import RemoteHistory, reaching
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import LostRange, SegmentList
from timestone.segment import Segment


@pytest.fixture
def segments(quick_directory: Path) -> Iterator[list[Segment]]:
    """[0, 2), [2, 4), [4, 6)."""
    cache = SegmentCache(8)
    yield [
        make_segment(
            quick_directory, [b"0", b"1"], base_offset=base, first_us=1000 + base, open_segments=cache
        )
        for base in (0, 2, 4)
    ]
    cache.clear()


def bases(segment_list: SegmentList) -> list[int]:
    return [one.base_offset for one in segment_list.segments]


def test_a_segment_that_both_have_is_read_from_the_disk(segments: list[Segment]) -> None:
    history = RemoteHistory(0, 4, segments[:2])
    local = SegmentList(segments[1:])
    joined = history.in_front_of(local, 6)
    assert bases(joined) == [0, 2, 4]
    assert joined.segments[1] is local.segments[0]


def test_a_log_without_local_segments_is_all_in_the_bucket(segments: list[Segment]) -> None:
    assert bases(RemoteHistory(0, 6, segments).in_front_of(SegmentList([]), 6)) == [0, 2, 4]


def test_losses_are_those_of_the_bucket_below_the_local_start(segments: list[Segment]) -> None:
    history = RemoteHistory(0, 4, segments[:1], (LostRange(2, 4, "remote"), LostRange(6, 7, "remote")))
    joined = history.in_front_of(SegmentList(segments[2:], [LostRange(6, 7, "local")]), 7)
    assert [(one.first, one.reason) for one in joined.missing] == [(2, "remote"), (6, "local")]


def test_a_later_start_leaves_out_what_ends_there(segments: list[Segment]) -> None:
    history = RemoteHistory(0, 6, segments, (LostRange(0, 2), LostRange(4, 5))).starting_at(2)
    assert (history.start, history.end) == (2, 6)
    assert [one.base_offset for one in history.segments] == [2, 4]
    assert [one.first for one in history.missing] == [4]
    emptied = history.starting_at(100)
    assert (emptied.start, emptied.end, list(emptied.segments)) == (6, 6, [])


def test_what_lies_between_the_bucket_and_the_disk_is_unavailable_until_it_is_known(
    segments: list[Segment], quick_directory: Path
) -> None:
    @dataclass
    class Parts:
        files: Files = field(default_factory=Files)
        open_segments: SegmentCache = field(default_factory=lambda: SegmentCache(8))

    def reached(known: RemoteHistory | None) -> RemoteHistory:
        return reaching(4, known, quick_directory, 1, Parts())

    known = RemoteHistory(0, 2, segments[:1], confirmed=True)
    history = reached(known)
    assert (history.start, history.end, history.confirmed) == (0, 4, False)
    joined = history.in_front_of(SegmentList(segments[2:]), 6)
    assert bases(joined) == [0, 2, 4]
    assert joined.read(0, 6, max_records=10, max_bytes=100) is not None
    with pytest.raises(HistoryUnavailable, match=r"offsets 2 to 3 are in a bucket .* not known yet"):
        joined.read(3, 6, max_records=10, max_bytes=100)
    assert list(joined.lost_between(0, 6)) == []
    assert reached(reached(None)).start == 0
    whole = RemoteHistory(0, 4, segments[:2], confirmed=True)
    assert reached(whole) is whole
