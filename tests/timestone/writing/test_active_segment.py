"""The growing end on the disk: rolling, flushing, sealing and what is done after a failed flush."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import BOOT_ID, StepClock
from timestone.config import LogConfig
from timestone.errors import RecordTooLarge
from timestone.reading.segment_cache import OpenSegments
from timestone.reading.segment_list import History
from timestone.writing.active_segment import Appender, LogPlace, RescueFailed
from timestone.writing.write_batch import Draft


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def appender(files: FaultyFiles, quick_directory: Path) -> Iterator[Appender]:
    open_segments = OpenSegments(8)
    place = LogPlace(files, quick_directory, 77, BOOT_ID, open_segments, StepClock().now_us)
    appender = Appender(
        place,
        LogConfig(segment_entries=3),
        History([]),
        next_offset=10,
        epoch=2,
        last_timestamp_us=0,
        sync_topics=lambda: None,
    )
    yield appender
    appender.release()
    open_segments.clear()


def write(appender: Appender, *payloads: bytes) -> None:
    """Write a draft and let readers see it, as the log does."""
    run = appender.write(Draft(list(payloads)))
    segment = appender.history.segments[-1]
    segment.count = run.end_offset - segment.base_offset


def flush(appender: Appender) -> None:
    end_offset, marks = appender.begin_flush()
    appender.flush(marks)
    appender.end_flush(end_offset, marks)


def read_all(appender: Appender) -> dict[int, bytes]:
    found, offset = {}, 10
    while (
        result := appender.history.read(offset, appender.next_offset, max_records=1, max_bytes=0)
    ) is not None:
        segment, run = result
        offset = segment.base_offset + run.base_ordinal
        found[offset] = run.data
        offset += 1
    return found


def test_records_begin_where_the_log_goes_on(appender: Appender) -> None:
    run = appender.write(Draft([b"a", b"bc"]))
    assert (run.base_offset, run.end_offset, run.stored.joined(), run.position) == (10, 12, b"abc", 0)
    assert appender.next_offset == 12
    assert appender.synced_offset == 10
    assert appender.unsynced_bytes == 3 + 64


def test_full_segment_is_rolled_and_waits_to_be_sealed(appender: Appender) -> None:
    for number in range(7):
        write(appender, b"%d" % number)
    assert [segment.base_offset for segment in appender.history.segments] == [10, 13, 16]
    assert appender.rolled_count == 2
    assert read_all(appender) == {10 + number: b"%d" % number for number in range(7)}


def test_draft_larger_than_any_segment_can_be_is_refused(
    appender: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.writing.active_segment._POSITION_MAX", 10)
    with pytest.raises(RecordTooLarge):
        appender.write(Draft([b"x" * 6, b"x" * 6]))
    assert appender.history.segments == ()


def test_flush_goes_through_all_segments_oldest_first(appender: Appender, files: FaultyFiles) -> None:
    for number in range(5):
        write(appender, b"%d" % number)
    before = len(files.calls)
    flush(appender)
    flushed = [Path(path).name for operation, path in files.calls[before:] if operation == "fdatasync"]
    assert flushed == [
        "00000000000000000010.segment",
        "00000000000000000010.index",
        "00000000000000000013.segment",
        "00000000000000000013.index",
    ]
    assert appender.synced_offset == 15
    before = len(files.calls)
    flush(appender)
    assert len(files.calls) == before, "what is flushed is not flushed again"


def test_rolled_segment_is_sealed_and_replaced(appender: Appender) -> None:
    for number in range(4):
        write(appender, b"%d" % number)
    flush(appender)
    writer = appender.oldest_rolled()
    assert writer is not None
    appender.replace_sealed(writer, appender.seal(writer))
    writer.close()
    assert appender.oldest_rolled() is None
    assert [segment.trailer is not None for segment in appender.history.segments] == [True, False]
    assert read_all(appender) == {10 + number: b"%d" % number for number in range(4)}


def test_segment_whose_first_append_failed_is_removed_and_not_sealed(
    appender: Appender, files: FaultyFiles, quick_directory: Path
) -> None:
    files.fail("pwrite", 28, path=".segment")
    with pytest.raises(OSError, match="No space"):
        appender.write(Draft([b"x"]))
    assert not appender.roll()
    assert files.names(quick_directory) == []
    write(appender, b"y")
    assert read_all(appender) == {10: b"y"}


@pytest.mark.parametrize("synced", [0, 1, 3, 4, 5])
def test_rescue_writes_the_unsynced_records_again_in_the_next_epoch(
    appender: Appender, files: FaultyFiles, quick_directory: Path, synced: int
) -> None:
    for number in range(6):
        if number == synced:
            flush(appender)
        write(appender, b"%d" % number)
    appender.rescue(OSError(5, "Input/output error"))
    assert appender.synced_offset == appender.next_offset == 16
    assert appender.epoch == 3
    assert read_all(appender) == {10 + number: b"%d" % number for number in range(6)}
    assert appender.history.segments[-1].base_offset == 10 + synced
    write(appender, b"6")
    flush(appender)
    assert read_all(appender)[16] == b"6"
    assert not [name for name in files.names(quick_directory) if name.endswith(".tmp")]


def test_rescue_that_fails_leaves_what_was_shown_readable(appender: Appender, files: FaultyFiles) -> None:
    for number in range(5):
        write(appender, b"%d" % number)
    files.fail("fdatasync", 5, forever=True)
    with pytest.raises(RescueFailed):
        appender.rescue(OSError(5, "Input/output error"))
    assert read_all(appender) == {10 + number: b"%d" % number for number in range(5)}
    assert appender.synced_offset == 10


def test_old_segment_goes_only_when_the_new_one_has_its_name(appender: Appender, files: FaultyFiles) -> None:
    """A kill between the two would otherwise leave records that were shown in neither."""
    for number in range(5):
        write(appender, b"%d" % number)
    before = len(files.calls)
    appender.rescue(OSError(5, "Input/output error"))
    operations = [(operation, Path(path).name) for operation, path in files.calls[before:]]
    named = operations.index(("rename", "00000000000000000010.index"))
    aside = [
        at for at, (operation, name) in enumerate(operations) if operation == "rename" and ".lost" in name
    ]
    assert aside
    assert min(aside) > named
