"""The contract of reading, kept by the log of the owner (in memory and from files) and by views."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.quick_directory import open_below
from tests.support.waiting import wait_for_seals
from timestone.config import LogConfig
from timestone.disk.files import Files
from timestone.errors import CorruptRecord, OffsetOutOfRange, OffsetsLost
from timestone.filters import topic_matches
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.readable import ReadableLog
from timestone.reading.topic_mask import TopicMask
from timestone.view import LogView
from timestone.writing.write_batch import WriteBatch

COUNT = 60
TOPICS = ["a", "a/b", "c"]


def payload(offset: int) -> bytes:
    return b"%d " % offset * (offset % 4)


@pytest.fixture(params=["in memory", "in memory, in pieces", "in files", "partly in memory", "view"])
def log(
    request: pytest.FixtureRequest, quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ReadableLog]:
    if request.param == "in memory, in pieces":  # as large payloads are
        monkeypatch.setattr("timestone.writing.write_batch._LARGE_BYTES", 0)
    tail_bytes = 2500 if request.param == "partly in memory" else 10**7 * ("memory" in request.param)
    with timestone.open(
        quick_directory / "data",
        min_free_bytes=0,
        sync_interval_ms=10**9,
        tail_bytes=tail_bytes,
        log=LogConfig(segment_entries=17),
    ) as store:
        log = store.log("a", partition=3)
        ids = [log.topic_id(topic) for topic in TOPICS]
        for first in range(0, COUNT, 5):
            offsets = range(first, first + 5)
            topics = [ids[offset % 3] if offset % 7 else NO_TOPIC for offset in offsets]
            log.append_batch(WriteBatch([payload(offset) for offset in offsets], topics), ack="written")
        if request.param != "view":
            yield log
            return
        with timestone.view(quick_directory / "data") as view:
            yield view.log("a", 3)


def test_repr_names_the_log(log: ReadableLog) -> None:
    assert (log.name, log.partition, log.start_offset, log.end_offset) == ("a", 3, 0, COUNT)
    assert log.segment_bounds()[0][0] == 0
    assert log.segment_bounds()[-1][1] == COUNT


@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(
    offset=st.integers(0, COUNT),
    max_records=st.integers(1, 80),
    max_bytes=st.sampled_from([0, 1, 7, 50, 10**6]),
)
def test_read_gives_the_next_records_within_the_limits(
    log: ReadableLog, offset: int, max_records: int, max_bytes: int
) -> None:
    batch = log.read(offset, max_records=max_records, max_bytes=max_bytes)
    assert batch.payloads() == [payload(one) for one in range(offset, offset + len(batch))]
    assert batch.next_offset == offset + len(batch)
    assert len(batch) <= max_records
    assert len(batch) <= 1 or batch.lengths.sum() <= max_bytes
    assert (len(batch) == 0) == (offset == COUNT)


@settings(suppress_health_check=list(HealthCheck), max_examples=60)
@given(
    offset=st.integers(0, COUNT),
    filters=st.lists(st.sampled_from(["a", "a/#", "c", "+", "x"]), min_size=1, max_size=2),
    max_records=st.integers(1, 30),
    max_bytes=st.sampled_from([0, 5, 100, 10**6]),
    max_scan=st.none() | st.integers(1, 40),
)
def test_matching_reads_return_all_matching_records_and_no_others(
    log: ReadableLog, offset: int, filters: list[str], max_records: int, max_bytes: int, max_scan: int | None
) -> None:
    choice = TopicMask(log.topics, filters)
    batch = log.read_matching(offset, choice, max_records=max_records, max_bytes=max_bytes, max_scan=max_scan)
    everything = [record for first in range(offset, batch.next_offset) for record in [log.record(first)]]
    wanted = [
        record.offset
        for record in everything
        if record.topic is not None and any(topic_matches(one, record.topic) for one in filters)
    ]
    assert batch.offsets.tolist() == wanted
    assert batch.payloads() == [payload(one) for one in wanted]
    assert len(batch) <= max_records
    assert batch.next_offset > offset or offset == COUNT


def test_single_record_is_read_by_its_offset(log: ReadableLog) -> None:
    batch = log.read(0)
    everything = {record.offset: record for record in [*batch, *log.read(batch.next_offset)]}
    for offset in (0, 16, 17, COUNT - 1, 0):  # the second time the files are open
        record = log.record(offset)
        assert (record.offset, record.payload) == (offset, payload(offset))
        assert record == everything.get(offset, record)


def test_single_reads_from_open_files_need_no_segment_lookup(
    log: ReadableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(log, Log):
        wait_for_seals(log)  # sealing releases files
    before = [log.record(offset) for offset in range(COUNT)]
    monkeypatch.setattr(log, "read", lambda *_, **__: pytest.fail("the long way"))
    for offset in range(COUNT):
        if isinstance(log, LogView) or not log.in_memory(offset):
            assert log.record(offset) == before[offset]


@pytest.mark.parametrize("offset", [-1, COUNT, COUNT + 1, 10**12, 1 << 64])
def test_record_out_of_range_is_refused_with_the_bounds(log: ReadableLog, offset: int) -> None:
    for known in (0, COUNT - 1, 17):  # some files are open now
        log.record(known)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.record(offset)
    assert (caught.value.requested, caught.value.end) == (offset, COUNT)


@pytest.mark.parametrize("offset", [-1, COUNT + 1, 10**12])
def test_offset_out_of_range_is_refused_with_the_bounds(log: ReadableLog, offset: int) -> None:
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(offset)
    assert (caught.value.requested, caught.value.start, caught.value.end) == (offset, 0, COUNT)


def test_time_gives_the_first_offset_at_or_after_it(log: ReadableLog) -> None:
    times = [log.record(offset).timestamp_us for offset in range(COUNT)]
    assert times == sorted(times)
    for timestamp_us in {0, times[0], times[20], times[20] + 1, times[-1], times[-1] + 1}:
        later = [offset for offset in range(COUNT) if times[offset] >= timestamp_us]
        assert log.offset_at(timestamp_us) == min(later, default=COUNT)


def test_reads_joined_over_distant_records_need_no_warning(
    log: ReadableLog, recwarn: pytest.WarningsRecorder
) -> None:
    choice = TopicMask(log.topics, ["a/b"])
    offset = 0
    while offset < COUNT:
        offset = log.read_matching(offset, choice, max_records=100, max_bytes=10**6).next_offset
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, RuntimeWarning)] == []


def test_segments_report_their_size(log: ReadableLog) -> None:
    sizes = log.segment_sizes()
    assert [(base, end) for base, end, _ in sizes] == log.segment_bounds()
    for base, end, size in sizes:
        assert size == sum(len(payload(offset)) for offset in range(base, end))
    for first, last in ((0, 1), (1, 1), (3, 40), (7, 8), (0, COUNT - 1), (COUNT - 1, COUNT), (COUNT, COUNT)):
        for base, end, size in log.segment_sizes(first, last):
            assert size == sum(len(payload(offset)) for offset in range(max(first, base), min(last, end)))


def test_segments_with_a_topic_are_those_of_the_range_that_may_have_it(log: ReadableLog) -> None:
    found = {bounds for bounds in log.segments_with(["a/+"], 10, 50)}
    for base, end in log.segment_bounds():
        if end <= 10 or base >= 50:
            assert (base, end) not in found
        elif any(log.record(offset).topic == "a/b" for offset in range(base, end)):
            assert (base, end) in found


# Single records out of files that are open, and what may become of these files.


@pytest.fixture(params=[Files, FaultyFiles], ids=["the disk", "a twin of it"])
def rewritten(request: pytest.FixtureRequest, quick_directory: Path) -> Iterator[Log]:
    """Twenty records of two topics; nothing in memory, nothing in the background, at most two segments open."""
    files: Files = request.param()
    with timestone.open(
        quick_directory / "data",
        files=files,
        ack="written",
        min_free_bytes=0,
        tail_bytes=0,
        delete_delay_ms=0,
        open_segment_count=2,
    ) as store:
        store.maintenance.stop()
        log = store.log("a", config=LogConfig(segment_entries=4, compact=True))
        for number in range(20):
            log.append(b"%d" % number, topic=f"t/{number % 2}")
        log.roll()
        wait_for_seals(log)
        yield log


def found(log: ReadableLog, offset: int) -> bytes | None:
    try:
        return log.record(offset).payload
    except OffsetOutOfRange:
        return None


EVERYTHING = [b"%d" % number for number in range(20)]
COMPACTED = [None] * 18 + EVERYTHING[18:]


def test_open_files_stay_within_the_limit(rewritten: Log, quick_directory: Path) -> None:
    for _ in range(2):
        assert [found(rewritten, number) for number in range(20)] == EVERYTHING
    held = [name for name in open_below(quick_directory / "data") if name.endswith(".segment")]
    assert len(held) == 2


def test_open_records_are_removed_with_their_segment(rewritten: Log) -> None:
    assert [found(rewritten, number) for number in (0, 1, 18, 19)] == [b"0", b"1", b"18", b"19"]
    rewritten.configure(retention_bytes=1)
    assert rewritten.apply_retention() == 4, "the newest stays"
    assert [found(rewritten, number) for number in (0, 1, 18, 19)] == [None, None, b"18", b"19"]


def test_open_records_are_removed_when_their_segment_is_compacted(
    rewritten: Log, quick_directory: Path
) -> None:
    with timestone.view(quick_directory / "data") as view:
        seen = view.log("a")
        for log in (rewritten, seen):
            assert [found(log, number) for number in range(20)] == EVERYTHING
        assert rewritten.apply_compaction() == 18
        assert [found(rewritten, number) for number in range(20)] == COMPACTED
        assert found(seen, 19) == b"19"
        seen.refresh()
        assert [found(seen, number) for number in range(20)] == COMPACTED


def test_records_are_whole_while_their_segments_are_rewritten(rewritten: Log) -> None:
    wrong: list[tuple[int, bytes | None]] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for number in range(20):
                payload = found(rewritten, number)
                if payload not in (EVERYTHING[number], COMPACTED[number]):
                    wrong.append((number, payload))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    rewritten.apply_compaction()
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [found(rewritten, number) for number in range(20)] == COMPACTED


def test_growing_segment_is_read_to_its_published_end(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", ack="written", min_free_bytes=0, tail_bytes=0) as store:
        log = store.log("a")
        for number in range(50):
            log.append(b"%d" % number)
            seen = [found(log, offset) for offset in range(number + 2)]
            assert seen == [*(b"%d" % one for one in range(number + 1)), None]


def test_read_raises_the_error_of_the_disk(quick_directory: Path) -> None:
    files = FaultyFiles()
    with timestone.open(
        quick_directory / "data", files=files, ack="written", min_free_bytes=0, tail_bytes=0
    ) as store:
        log = store.log("a")
        log.append_many([b"x", b"y"])
        assert found(log, 0) == b"x"
        fault = files.fail("pread", path=".segment", forever=True)
        with pytest.raises(OSError, match=r"\.segment"):
            log.record(1)
        assert fault.hits == 1
        fault.lift()
        assert found(log, 1) == b"y"


def test_batches_do_not_change_while_the_log_grows(quick_directory: Path) -> None:
    """The memory of batches that leave the tail is reused for new ones, unless a reader still refers to it."""
    with timestone.open(
        quick_directory / "data",
        ack="written",
        min_free_bytes=0,
        tail_bytes=400_000,
        sync_interval_bytes=200_000,
    ) as store:
        log, held = store.log("a"), []
        for number in range(60):
            offsets = log.append_many([bytes([number]) * 100] * 1024)
            if number % 3 == 0:
                held.append((number, log.read(offsets[0], max_records=1024)))
        log.sync()
        for number in range(60, 90):
            log.append_many([bytes([number]) * 100] * 1024)
    for number, batch in held:
        assert batch.payloads() == [bytes([number]) * 100] * 1024
        assert batch.offsets.tolist() == list(range(number * 1024, (number + 1) * 1024))
        assert set(batch.lengths.tolist()) == {100}


def fitting(offsets: range, max_records: int, max_bytes: int) -> list[int]:
    """The first of the offsets that fit into the limits, one at least."""
    found: list[int] = []
    for offset in offsets[:max_records]:
        if found and sum(len(payload(one)) for one in [*found, offset]) > max_bytes:
            break
        found.append(offset)
    return found


def test_read_is_filled_up_to_its_limits_across_appends_and_segments(log: ReadableLog) -> None:
    """A read of a log of three appends gave the first one's records: it looked as if the others were lost."""
    for offset in (0, 3, 16, 17, 40, 59):
        for max_records in (1, 4, 5, 6, 18, 100):
            for max_bytes in (0, 9, 60, 1 << 20):
                batch = log.read(offset, max_records=max_records, max_bytes=max_bytes)
                expected = fitting(range(offset, COUNT), max_records, max_bytes)
                assert batch.offsets.tolist() == expected
                assert batch.next_offset == expected[-1] + 1
                assert batch.payloads() == [payload(one) for one in expected]


def test_read_with_topics_is_filled_too(log: ReadableLog) -> None:
    wanted = [offset for offset in range(COUNT) if offset % 7 and offset % 3 == 1]
    reader = log.reader(topics="a/b")
    assert reader.read().offsets.tolist() == wanted
    assert reader.offset == COUNT
    reader.seek(0)
    for first in range(0, len(wanted), 4):
        assert reader.read(max_records=4).offsets.tolist() == wanted[first : first + 4]


def test_read_with_topics_does_not_search_the_log_for_a_rare_one(
    log: ReadableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timestone.readable._SCAN_RECORDS", 10)
    batch = log.reader(topics="a/b").read()
    assert batch.offsets.tolist()[0] == 1
    assert batch.next_offset < 40
    assert len(batch) == len(
        [offset for offset in range(batch.next_offset) if offset % 7 and offset % 3 == 1]
    )


def test_read_ends_before_a_damaged_record_and_the_next_one_says_so(quick_directory: Path) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, log=LogConfig(segment_entries=5)
    ) as store:
        log = store.log("a")
        for number in range(20):
            log.append(b"%02d" % number)
    folder = quick_directory / "data" / "a-0"
    (folder / f"{5:020d}.segment").write_bytes(b"0506xx0809")
    (folder / f"{15:020d}.index").unlink()
    with timestone.view(quick_directory / "data") as view:
        damaged = view.log("a")
        assert damaged.read(0).offsets.tolist() == list(range(7))
        with pytest.raises(CorruptRecord, match="offset 7"):
            damaged.read(7)
        assert damaged.read(8).offsets.tolist() == list(range(8, 15))
        with pytest.raises(OffsetsLost):
            damaged.read(15)


def test_log_has_a_length_and_yields_its_records(log: ReadableLog) -> None:
    assert len(log) == COUNT
    assert [record.offset for record in log] == list(range(COUNT))
    assert bool(log)


def test_length_counts_what_can_be_read(quick_directory: Path) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, log=LogConfig(segment_entries=5)
    ) as store:
        log = store.log("a")
        assert (len(log), bool(log), list(log)) == (0, True, [])
        for number in range(23):
            log.append(b"x", topic=f"{number % 3}")
        assert len(log) == 23
    (quick_directory / "data" / "a-0" / f"{5:020d}.index").unlink()
    with timestone.view(quick_directory / "data") as view:
        assert len(view.log("a")) == 18
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        log = store.log("a")
        log.configure(compact=True)
        assert log.apply_compaction() > 0
        assert len(log) == len(list(log.reader(10))) < 18


def test_time_is_a_datetime_with_a_zone_or_microseconds(log: ReadableLog) -> None:
    for offset in (0, 20, 59):
        record = log.record(offset)
        found = log.offset_at(record.timestamp)
        assert found == log.offset_at(record.timestamp_us) <= offset
        assert log.record(found).timestamp_us == record.timestamp_us
        assert log.reader(record.timestamp.astimezone(timezone(timedelta(hours=5)))).offset == found
        reader = log.reader()
        reader.seek(record.timestamp)
        assert reader.offset == found
    assert log.reader(datetime(2999, 1, 1, tzinfo=UTC)).offset == COUNT
    assert log.reader(datetime(1970, 1, 1, tzinfo=UTC)).offset == 0
    for call in (log.offset_at, log.reader, log.reader().seek):
        with pytest.raises(ValueError, match="expected a datetime with a time zone"):
            call(datetime(2026, 7, 1))


def test_start_of_a_reader_that_is_nothing_of_the_kind_is_refused(log: ReadableLog) -> None:
    for start in ("yesterday", 1.5, None):
        with pytest.raises(
            TypeError, match="invalid start of a reader: expected an offset, 'earliest', 'latest' or"
        ):
            log.reader(start)  # type: ignore[arg-type]
