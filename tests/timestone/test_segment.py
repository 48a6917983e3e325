"""Reading one segment by ordinal, by time and by topic; damage affects only the damaged record."""

import os
from collections.abc import Iterator
from mmap import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.interleaved import interleaved
from tests.support.quick_directory import open_below
from tests.support.segments import LOG_ID, make_segment
from timestone import segment as segments
from timestone.disk.files import Files
from timestone.errors import CorruptRecord, OffsetsLost
from timestone.index import IndexHeader, Trailer
from timestone.kernel import loops
from timestone.kernel.entries import HEADER_BYTES, NO_TOPIC, entry_position
from timestone.reading.segment_cache import SegmentCache
from timestone.segment import Segment
from timestone.writing.segment_writer import SegmentWriter
from timestone.writing.write_batch import WriteBatch

PAYLOADS = [b"zero", b"", b"two" * 100, b"three", b"", b"five", b"six"]


@pytest.fixture(params=[True, False], ids=["sealed", "growing"])
def segment(request: pytest.FixtureRequest, quick_directory: Path) -> Iterator[Segment]:
    segment = make_segment(quick_directory, PAYLOADS, base_offset=500, sealed=request.param)
    yield segment
    segment.release()


def read(segment: Segment, ordinal: int, max_records: int = 1000, max_bytes: int = 10**6) -> list[bytes]:
    run = segment.read(ordinal, max_records=max_records, max_bytes=max_bytes)
    assert run.base_ordinal == ordinal
    starts = run.entries["position"].astype(np.int64) - run.position
    return [
        run.data[start : start + length] for start, length in zip(starts, run.entries["length"], strict=True)
    ]


def damage(path: Path, position: int) -> None:
    """Flip a bit in place, as a disk does: open descriptors see it."""
    fd = os.open(path, os.O_RDWR)
    byte = os.pread(fd, 1, position)
    os.pwrite(fd, bytes([byte[0] ^ 1]), position)
    os.close(fd)


@pytest.mark.parametrize("first", range(len(PAYLOADS)))
def test_records_are_read_from_any_ordinal_on(segment: Segment, first: int) -> None:
    assert read(segment, first) == PAYLOADS[first:]
    assert read(segment, first, max_records=2) == PAYLOADS[first : first + 2]


def test_records_read_before_are_reported_once_the_file_was_cut_in_front_of_them(segment: Segment) -> None:
    """A read of several, which were verified, gave empty payloads in their place."""
    assert read(segment, 0) == PAYLOADS
    os.truncate(segment.segment_path, 4 + 300 + 2)
    assert read(segment, 0) == PAYLOADS[:3]
    with pytest.raises(CorruptRecord, match="the segment file ends inside it") as told:
        read(segment, 3)
    assert told.value.offset == 503
    with pytest.raises(CorruptRecord, match="the segment file ends inside it"):
        read(segment, 5)


@settings(suppress_health_check=list(HealthCheck))
@given(first=st.integers(0, 6), max_records=st.integers(1, 9), max_bytes=st.integers(0, 400))
def test_limits_hold_unless_the_first_record_alone_exceeds_them(
    segment: Segment, first: int, max_records: int, max_bytes: int
) -> None:
    found = read(segment, first, max_records, max_bytes)
    assert found == PAYLOADS[first : first + len(found)]
    assert 1 <= len(found) <= max_records
    assert len(found) == 1 or sum(map(len, found)) <= max_bytes
    following = PAYLOADS[first + len(found) : first + len(found) + 1]
    stopped_by_bytes = bool(following) and sum(map(len, found + following)) > max_bytes
    assert stopped_by_bytes or len(found) == max_records or not following, (
        "no record is held back without a reason"
    )


def test_size_of_a_range_is_that_of_its_records(segment: Segment) -> None:
    for first in range(len(PAYLOADS) + 1):
        for last in range(first, len(PAYLOADS) + 1):
            size_bytes = segment.bytes_between(500 + first, 500 + last)
            assert size_bytes == sum(map(len, PAYLOADS[first:last]))
    assert segment.bytes_between(0, 1000) == sum(map(len, PAYLOADS))


def test_size_of_a_range_leaves_out_a_damaged_entry_at_its_end(segment: Segment) -> None:
    damage(segment.index_path, entry_position(3) + 4)
    assert segment.bytes_between(500, 504) == sum(map(len, PAYLOADS[:3]))
    assert segment.bytes_between(500, 503) == segment.bytes_between(500, 504)
    assert segment.bytes_between(501, 505) == sum(map(len, PAYLOADS[1:5]))


@pytest.mark.slow
@pytest.mark.parametrize("bad", range(len(PAYLOADS)))
def test_record_with_a_damaged_entry_is_corrupt_and_its_neighbours_are_not(
    segment: Segment, bad: int
) -> None:
    damage(segment.index_path, entry_position(bad) + 8)
    for _ in range(2):  # a second look finds the same
        if bad:
            assert read(segment, 0) == PAYLOADS[:bad]
        with pytest.raises(CorruptRecord) as caught:
            read(segment, bad)
        assert (caught.value.offset, caught.value.path) == (500 + bad, segment.index_path)
        if bad < len(PAYLOADS) - 1:
            assert read(segment, bad + 1) == PAYLOADS[bad + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [number for number, payload in enumerate(PAYLOADS) if payload])
def test_record_with_damaged_bytes_is_corrupt_and_its_neighbours_are_not(segment: Segment, bad: int) -> None:
    damage(segment.segment_path, sum(map(len, PAYLOADS[:bad])))
    for _ in range(2):
        if bad:
            assert read(segment, 0) == PAYLOADS[:bad]
        with pytest.raises(CorruptRecord) as caught:
            read(segment, bad)
        assert (caught.value.offset, caught.value.path) == (500 + bad, segment.segment_path)
        if bad < len(PAYLOADS) - 1:
            assert read(segment, bad + 1) == PAYLOADS[bad + 1 :]


def test_single_record_is_checked_each_time_it_is_read(segment: Segment) -> None:
    """Bulk reads check once; a read of a single record returns the current state of the disk."""
    assert read(segment, 0) == PAYLOADS
    damage(segment.segment_path, 0)
    with pytest.raises(CorruptRecord):
        read(segment, 0, max_records=1)


def test_concurrent_read_verifies_only_its_own_records(quick_directory: Path) -> None:
    made = make_segment(quick_directory, [b"%d" % number for number in range(9)], sealed=False)
    damage(made.segment_path, 3)

    def partly_read() -> Segment:
        segment = Segment(Files(), quick_directory, 0, LOG_ID, SegmentCache(1), count=9)
        segment.read(0, max_records=2, max_bytes=10**6)
        return segment

    for found in interleaved(
        segments,
        partly_read,
        lambda segment: read(segment, 2, max_records=2),
        lambda segment: segment.read(5, max_records=4, max_bytes=10**6),
    ):
        assert found == [b"2"], "the third one is damaged"


def test_open_records_are_available_until_the_segment_releases_them(segment: Segment) -> None:
    assert segment.records(600) is None, "the files are not open"
    read(segment, 0)
    at_hand = loops.OpenRecords([])
    records = segment.records(600)
    assert records is not None
    at_hand.show(records)
    for number, payload in enumerate(PAYLOADS):
        found = at_hand.record(500 + number)
        assert found is not None
        assert found.payload == payload
        assert found.timestamp_us == int(segment.read_entries(number, number + 1)["timestamp_us"][0])
    damage(segment.segment_path, 0)
    assert at_hand.record(500) is None
    assert at_hand.record(500 + len(PAYLOADS) - 1) is not None
    damage(segment.index_path, entry_position(len(PAYLOADS) - 1) + 8)
    assert at_hand.record(500 + len(PAYLOADS) - 1) is None
    segment.release()
    assert at_hand.record(501) is None


def test_open_records_made_by_two_threads_are_both_released(segment: Segment, quick_directory: Path) -> None:
    """Of a segment that compaction has replaced or retention has deleted, nothing may be served any more."""
    read(segment, 0)
    at_hand = loops.OpenRecords([])
    earlier, later = segment.records(600), segment.records(600)
    assert earlier is not None and later is not None
    at_hand.show(later)
    at_hand.show(earlier)
    assert at_hand.record(500) is not None
    del earlier, later
    segment.release()
    assert at_hand.record(500) is None
    assert open_below(quick_directory) == []


@pytest.mark.parametrize(("below", "end"), [(0, 500), (500, 500), (503, 503), (600, 507)])
def test_open_records_end_at_the_published_offset(segment: Segment, below: int, end: int) -> None:
    read(segment, 0)
    records = segment.records(below)
    assert records is not None
    assert (records.base_offset, records.end_offset) == (500, end)


def test_segment_that_ends_inside_a_record_is_reported(segment: Segment) -> None:
    os.truncate(segment.segment_path, sum(map(len, PAYLOADS)) - 1)
    assert read(segment, 0) == PAYLOADS[:-1]
    with pytest.raises(CorruptRecord, match="ends inside"):
        read(segment, len(PAYLOADS) - 1)


@pytest.mark.parametrize(
    ("timestamp_us", "ordinal"), [(0, 0), (1000, 0), (1001, 1), (1059, 6), (1060, 6), (1061, 7), (10**15, 7)]
)
def test_time_is_found_by_search(segment: Segment, timestamp_us: int, ordinal: int) -> None:
    assert segment.first_at_or_after(timestamp_us) == ordinal


def test_time_is_found_around_damaged_entries(segment: Segment) -> None:
    for bad in (0, 3):
        damage(segment.index_path, entry_position(bad) + 8)
    assert segment.first_at_or_after(1040) == 4
    assert segment.first_at_or_after(1015) == 2


def test_topic_summary_is_there_once_sealed(quick_directory: Path) -> None:
    topics = [5, 2, 5, NO_TOPIC]
    growing = make_segment(quick_directory, [b"x"] * 4, topics=topics, sealed=False)
    assert growing.topic_summary() is None
    sealed = make_segment(quick_directory, [b"x"] * 4, base_offset=4, topics=topics)
    summary = sealed.topic_summary()
    assert summary is not None
    assert summary.tolist() == [(2, 1, 1), (5, 2, 0), (NO_TOPIC, 1, 3)]
    sealed.release()


def test_damaged_topic_summary_costs_its_speed_and_nothing_else(quick_directory: Path) -> None:
    segment = make_segment(quick_directory, [b"x"] * 4, topics=1)
    damage(segment.index_path, entry_position(4) + 2)
    assert segment.topic_summary() is None
    assert read(segment, 0) == [b"x"] * 4
    segment.release()


def test_selected_records_are_read_at_any_position(segment: Segment) -> None:
    ordinals = np.array([0, 2, 5], dtype=np.int64)
    entries = segment.read_entries(0, 7)[ordinals]
    runs = segment.read_some(ordinals, entries)
    found = [
        run.data[int(entry["position"]) - run.position :][: int(entry["length"])]
        for run in runs
        for entry in run.entries
    ]
    assert found == [PAYLOADS[number] for number in ordinals]


def test_index_that_ends_before_the_published_records_is_corrupt_and_no_sigbus(quick_directory: Path) -> None:
    segment = make_segment(quick_directory, [b"x"] * 4, sealed=False)
    os.truncate(segment.index_path, HEADER_BYTES + 64)
    assert read(segment, 0) == [b"x"] * 2
    for call in (lambda: read(segment, 2), lambda: segment.read_entries(3, 4), segment.pair):
        with pytest.raises(OffsetsLost, match="ends before") as lost:
            call()
        assert lost.value.next_offset == 4
    assert segment.first_shown(3) == 3
    assert segment.timestamp_at(3) == segment.timestamp_at(1)
    segment.release()


@pytest.mark.slow
def test_files_are_released_and_opened_again_when_needed(segment: Segment, quick_directory: Path) -> None:
    assert read(segment, 0) == PAYLOADS
    assert open_below(quick_directory)
    segment.release()
    assert open_below(quick_directory) == []
    assert read(segment, 0) == PAYLOADS
    segment.release()


def test_reader_keeps_its_files_when_the_segment_releases_them(segment: Segment) -> None:
    pair = segment.pair()
    segment.release()
    os.unlink(segment.segment_path)
    assert pair.read(0, 4) == b"zero"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_segment_that_is_sealed_while_it_is_being_opened_is_read(quick_directory: Path, moment: str) -> None:
    """Its index gets shorter by that: a mapping of what it was is refused, and in one that was made just before, the
    end must not be touched."""

    class SealedMeanwhile(Files):
        def map(self, fd: int, length_bytes: int) -> mmap:
            if moment == "before" and not trailers:
                trailers.append(writer.seal_files(2000))
            index_map = super().map(fd, length_bytes)
            if not trailers:
                trailers.append(writer.seal_files(2000))
            return index_map

    trailers: list[Trailer] = []
    writer = SegmentWriter(Files(), quick_directory, IndexHeader(LOG_ID, 0, 1, 0, bytes(16)))
    writer.write_batch_at(WriteBatch([b"x"] * 10, NO_TOPIC), 1000)
    segment = Segment(SealedMeanwhile(), quick_directory, 0, LOG_ID, SegmentCache(8), count=10)
    assert len(segment.read(0, max_records=10, max_bytes=100).entries) == 10
    assert len(trailers) == 1
    writer.close()
