"""One contract of reading, kept by the log of the owner (in memory and from files) and by the view of anybody else."""

import threading
from collections.abc import Iterator
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
from timestone.errors import OffsetOutOfRange
from timestone.filters import topic_matches
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.readable import ReadableLog
from timestone.reading.topic_mask import TopicChoice
from timestone.view import LogView
from timestone.writing.write_batch import Draft

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
            log.append_draft(Draft([payload(offset) for offset in offsets], topics), ack="written")
        if request.param != "view":
            yield log
            return
        with timestone.view(quick_directory / "data") as view:
            yield view.log("a", 3)


def test_it_says_what_it_is(log: ReadableLog) -> None:
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
def test_matching_reads_leave_out_what_was_not_asked_for_and_nothing_else(
    log: ReadableLog, offset: int, filters: list[str], max_records: int, max_bytes: int, max_scan: int | None
) -> None:
    choice = TopicChoice(log.topics, filters)
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


def test_records_beside_one_of_open_files_are_read_without_a_look_at_more(
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
def test_record_out_of_range_is_told_with_the_bounds(log: ReadableLog, offset: int) -> None:
    for known in (0, COUNT - 1, 17):  # some files are open now
        log.record(known)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.record(offset)
    assert (caught.value.requested, caught.value.end) == (offset, COUNT)


@pytest.mark.parametrize("offset", [-1, COUNT + 1, 10**12])
def test_offset_out_of_range_is_told_with_the_bounds(log: ReadableLog, offset: int) -> None:
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
    choice = TopicChoice(log.topics, ["a/b"])
    offset = 0
    while offset < COUNT:
        offset = log.read_matching(offset, choice, max_records=100, max_bytes=10**6).next_offset
    assert [str(warning.message) for warning in recwarn if issubclass(warning.category, RuntimeWarning)] == []


def test_segments_say_what_they_take(log: ReadableLog) -> None:
    sizes = log.segment_sizes()
    assert [(base, end) for base, end, _ in sizes] == log.segment_bounds()
    for base, end, size in sizes:
        assert size == sum(len(payload(offset)) for offset in range(base, end))


def test_segments_with_a_topic_are_those_of_the_range_that_may_hold_it(log: ReadableLog) -> None:
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


def test_no_more_files_stay_open_than_may(rewritten: Log, quick_directory: Path) -> None:
    for _ in range(2):
        assert [found(rewritten, number) for number in range(20)] == EVERYTHING
    held = [name for name in open_below(quick_directory / "data") if name.endswith(".segment")]
    assert len(held) == 2


def test_records_that_were_at_hand_are_gone_with_their_segment(rewritten: Log) -> None:
    assert [found(rewritten, number) for number in (0, 1, 18, 19)] == [b"0", b"1", b"18", b"19"]
    rewritten.configure(retention_bytes=1)
    assert rewritten.apply_retention() == 4, "the newest stays"
    assert [found(rewritten, number) for number in (0, 1, 18, 19)] == [None, None, b"18", b"19"]


def test_records_that_were_at_hand_are_gone_once_their_segment_is_compacted(
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


def test_a_growing_segment_is_read_as_far_as_it_has_grown(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", ack="written", min_free_bytes=0, tail_bytes=0) as store:
        log = store.log("a")
        for number in range(50):
            log.append(b"%d" % number)
            seen = [found(log, offset) for offset in range(number + 2)]
            assert seen == [*(b"%d" % one for one in range(number + 1)), None]


def test_a_disk_that_cannot_read_a_record_says_so(quick_directory: Path) -> None:
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


def test_batches_stay_what_they_were_while_the_log_takes_more(quick_directory: Path) -> None:
    """What leaves the tail is used again for what comes, unless somebody still looks at it."""
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
