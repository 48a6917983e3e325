"""The growing end on the disk: rolling, flushing, sealing and the actions after a failed flush."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import BOOT_ID, StepClock
from timestone.config import LogConfig
from timestone.errors import RecordTooLarge
from timestone.reading.segment_cache import SegmentCache
from timestone.reading.segment_list import SegmentList
from timestone.writing.active_segment import ActiveSegment, FailoverFailed, LogPlace
from timestone.writing.write_batch import WriteBatch


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def active_segment(files: FaultyFiles, quick_directory: Path) -> Iterator[ActiveSegment]:
    open_segments = SegmentCache(8)
    place = LogPlace(files, quick_directory, 77, BOOT_ID, open_segments, StepClock().now_us)
    active_segment = ActiveSegment(
        place,
        LogConfig(segment_entries=3),
        SegmentList([]),
        next_offset=10,
        epoch=2,
        last_timestamp_us=0,
        sync_topics=lambda: None,
    )
    yield active_segment
    active_segment.release()
    open_segments.clear()


def write(active_segment: ActiveSegment, *payloads: bytes) -> None:
    """Write a draft and let readers see it, as the log does."""
    run = active_segment.write(WriteBatch(list(payloads)))
    segment = active_segment.segment_list.segments[-1]
    segment.count = run.end_offset - segment.base_offset


def flush(active_segment: ActiveSegment) -> None:
    end_offset, marks = active_segment.begin_flush()
    active_segment.flush(marks)
    active_segment.end_flush(end_offset, marks)


def read_all(active_segment: ActiveSegment) -> dict[int, bytes]:
    found, offset = {}, 10
    while (
        result := active_segment.segment_list.read(
            offset, active_segment.next_offset, max_records=1, max_bytes=0
        )
    ) is not None:
        segment, run = result
        offset = segment.base_offset + run.base_ordinal
        found[offset] = run.data
        offset += 1
    return found


def test_first_record_gets_the_next_offset_of_the_log(active_segment: ActiveSegment) -> None:
    run = active_segment.write(WriteBatch([b"a", b"bc"]))
    assert (run.base_offset, run.end_offset, run.stored.joined(), run.position) == (10, 12, b"abc", 0)
    assert active_segment.next_offset == 12
    assert active_segment.synced_offset == 10
    assert active_segment.unsynced_bytes == 3 + 64


def test_full_segment_is_rolled_and_waits_to_be_sealed(active_segment: ActiveSegment) -> None:
    for number in range(7):
        write(active_segment, b"%d" % number)
    assert [segment.base_offset for segment in active_segment.segment_list.segments] == [10, 13, 16]
    assert len(active_segment._rolled) == 2
    assert read_all(active_segment) == {10 + number: b"%d" % number for number in range(7)}


def test_batch_is_refused_when_it_is_larger_than_a_segment(
    active_segment: ActiveSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.writing.active_segment._POSITION_MAX", 10)
    with pytest.raises(RecordTooLarge):
        active_segment.write(WriteBatch([b"x" * 6, b"x" * 6]))
    assert active_segment.segment_list.segments == ()


def test_flush_goes_through_all_segments_oldest_first(
    active_segment: ActiveSegment, files: FaultyFiles
) -> None:
    for number in range(5):
        write(active_segment, b"%d" % number)
    before = len(files.calls)
    flush(active_segment)
    flushed = [Path(path).name for operation, path in files.calls[before:] if operation == "fdatasync"]
    assert flushed == [
        "00000000000000000010.segment",
        "00000000000000000010.index",
        "00000000000000000013.segment",
        "00000000000000000013.index",
    ]
    assert active_segment.synced_offset == 15
    before = len(files.calls)
    flush(active_segment)
    assert len(files.calls) == before, "what is flushed is not flushed again"


def test_rolled_segment_is_sealed_and_replaced(active_segment: ActiveSegment) -> None:
    for number in range(4):
        write(active_segment, b"%d" % number)
    flush(active_segment)
    writer = active_segment.oldest_rolled()
    assert writer is not None
    active_segment.replace_sealed(writer, active_segment.seal(writer))
    writer.close()
    assert active_segment.oldest_rolled() is None
    assert [segment.trailer is not None for segment in active_segment.segment_list.segments] == [True, False]
    assert read_all(active_segment) == {10 + number: b"%d" % number for number in range(4)}


def test_segment_is_removed_and_not_sealed_when_its_first_append_failed(
    active_segment: ActiveSegment, files: FaultyFiles, quick_directory: Path
) -> None:
    files.fail("pwrite", 28, path=".segment")
    with pytest.raises(OSError, match="No space"):
        active_segment.write(WriteBatch([b"x"]))
    assert not active_segment.roll()
    assert files.names(quick_directory) == []
    write(active_segment, b"y")
    assert read_all(active_segment) == {10: b"y"}


@pytest.mark.parametrize("synced", [0, 1, 3, 4, 5])
def test_failover_rewrites_the_unsynced_records_in_the_next_epoch(
    active_segment: ActiveSegment, files: FaultyFiles, quick_directory: Path, synced: int
) -> None:
    for number in range(6):
        if number == synced:
            flush(active_segment)
        write(active_segment, b"%d" % number)
    active_segment.rescue(OSError(5, "Input/output error"))
    assert active_segment.synced_offset == active_segment.next_offset == 16
    assert active_segment.epoch == 3
    assert read_all(active_segment) == {10 + number: b"%d" % number for number in range(6)}
    assert active_segment.segment_list.segments[-1].base_offset == 10 + synced
    write(active_segment, b"6")
    flush(active_segment)
    assert read_all(active_segment)[16] == b"6"
    assert not [name for name in files.names(quick_directory) if name.endswith(".tmp")]


def test_failed_failover_keeps_published_records_readable(
    active_segment: ActiveSegment, files: FaultyFiles
) -> None:
    for number in range(5):
        write(active_segment, b"%d" % number)
    files.fail("fdatasync", 5, forever=True)
    with pytest.raises(FailoverFailed):
        active_segment.rescue(OSError(5, "Input/output error"))
    assert read_all(active_segment) == {10 + number: b"%d" % number for number in range(5)}
    assert active_segment.synced_offset == 10


def test_old_segment_is_removed_after_the_new_one_is_renamed(
    active_segment: ActiveSegment, files: FaultyFiles
) -> None:
    """A kill between the two would otherwise leave records that were shown in neither."""
    for number in range(5):
        write(active_segment, b"%d" % number)
    before = len(files.calls)
    active_segment.rescue(OSError(5, "Input/output error"))
    operations = [(operation, Path(path).name) for operation, path in files.calls[before:]]
    named = operations.index(("rename", "00000000000000000010.index"))
    aside = [
        at for at, (operation, name) in enumerate(operations) if operation == "rename" and ".lost" in name
    ]
    assert aside
    assert min(aside) > named
