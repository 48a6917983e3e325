"""The owner's log: the promises of an append, their order, and the errors when one cannot be kept."""

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.kernels import compiled_only
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for
from timestone.commit.submission import Submission
from timestone.config import Ack, LogConfig, StoreConfig
from timestone.disk.files import Files
from timestone.errors import (
    InvalidName,
    LogFailed,
    OffsetOutOfRange,
    RecordTooLarge,
    StorageFull,
    StoreClosed,
    TopicLimit,
)
from timestone.kernel.prepared import INLINE_BYTES
from timestone.log import Log
from timestone.reader import Reader
from timestone.store import Store
from timestone.writing import segment_writer
from timestone.writing.inline_writes import InlineWrites
from timestone.writing.write_batch import WriteBatch

NEVER_MS = 10**9
MIB = 1024 * 1024


class Place:
    """A store on files that fail on request."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = FaultyFiles()
        self.clock = StepClock()
        self.stores: list[Store] = []

    def log(self, *, min_free_bytes: int = 0, queue_bytes: int = 256 * MIB, **settings: Any) -> Log:
        config = StoreConfig(
            min_free_bytes=min_free_bytes,
            queue_bytes=queue_bytes,
            sync_interval_ms=NEVER_MS,
            log=LogConfig(**settings),
        )
        self.stores.append(Store(self.root, config, files=self.files, clock=self.clock))
        return self.stores[-1].log("telemetry")


@pytest.fixture
def place(quick_directory: Path) -> Iterator[Place]:
    place = Place(quick_directory / "data")
    yield place
    for fault in place.files.faults:
        fault.lift()
    for store in place.stores:
        try:
            store.close()
        except LogFailed:
            continue


def payloads(log: Log) -> list[bytes]:
    return [record.payload for record in log.reader("earliest")]


# What an append does.


@pytest.mark.parametrize("ack", ["written", Ack.SYNCED])
def test_append_returns_the_offset_of_a_record_that_can_be_read(place: Place, ack: Ack) -> None:
    log = place.log()
    assert log.append(b"one", topic="a/b", headers=[("unit", b"C"), ("unit", b"F")], flags=5, ack=ack) == 0
    assert log.append(b"", ack=ack) == 1
    first, second = log.record(0), log.record(1)
    assert (first.payload, first.topic, first.flags) == (b"one", "a/b", 5)
    assert first.headers == (("unit", b"C"), ("unit", b"F"))
    assert (second.payload, second.topic, second.headers) == (b"", None, ())
    assert first.timestamp_us < second.timestamp_us


def test_batch_gets_consecutive_offsets(place: Place) -> None:
    log = place.log()
    assert log.append_many([b"a", b"b"], topics=["x", "y"]) == range(2)
    assert log.append_many([b"c"], topic="x") == range(2, 3)
    assert log.append_many([]) == range(3, 3)
    assert [record.topic for record in log.reader()] == ["x", "y", "x"]
    with pytest.raises(ValueError, match="invalid topics: expected 2, one for each payload, got 1"):
        log.append_many([b"a", b"b"], topics=["x"])


def test_synced_append_has_flushed_both_files_and_a_written_one_none(place: Place) -> None:
    log = place.log()
    log.append(b"x", ack="written")
    before = place.files.counts["fdatasync"]
    log.append(b"x", ack="written")
    assert place.files.counts["fdatasync"] == before
    assert (log.end_offset, log.synced_offset) == (2, 0)
    log.append(b"x", ack="synced")
    assert {Path(path).suffix for name, path in place.files.calls[-4:] if name == "fdatasync"} >= {
        ".segment",
        ".index",
    }
    assert (log.end_offset, log.synced_offset) == (3, 3)


def test_append_waits_for_the_disk_when_too_many_bytes_are_not_durable(place: Place) -> None:
    """Records that are not durable are kept in memory: with a disk that flushed less than was appended, memory grew
    without bound."""
    log = place.log(queue_bytes=4096)
    for _ in range(50):
        log.append(bytes(1000), ack="written")
        assert log.end_offset - log.synced_offset <= 5
    assert log.synced_offset >= 45


def test_append_has_no_effect_when_it_fails_waiting_for_a_flush(place: Place) -> None:
    log = place.log(queue_bytes=4096)
    for _ in range(4):
        log.append(bytes(1000), ack="written")
    place.files.fail("fdatasync", errno.EIO)
    with pytest.raises(LogFailed):
        log.append(b"refused", ack="written")
    assert len(payloads(log)) == 4


def test_sync_makes_all_that_was_written_durable(place: Place) -> None:
    log = place.log()
    assert log.sync() == 0
    log.append(b"x", ack="written")
    assert log.sync() == 1
    assert log.synced_offset == 1


def test_level_memory_is_refused_outside_submit(place: Place) -> None:
    log = place.log()
    with pytest.raises(ValueError, match="memory"):
        log.append(b"x", ack="memory")
    submission = log.submit(WriteBatch([b"x"]), ack=Ack.MEMORY)
    assert submission.resolved
    log.sync()
    assert submission.offsets == range(1)


def test_submitted_batches_are_written_in_order_and_before_a_later_append(place: Place) -> None:
    log = place.log()
    for number in range(50):
        log.submit(WriteBatch([b"%d" % number]), ack=Ack.WRITTEN)
    assert log.append(b"last", ack="written") == 50
    assert payloads(log) == [*(b"%d" % number for number in range(50)), b"last"]


def test_timestamps_never_decrease_when_the_clock_jumps(place: Place) -> None:
    log = place.log()
    for ms in (0, -5000, 3, -(10**7), 10**7):
        place.clock.advance(ms)
        log.append(b"x", ack="written")
    times = [record.timestamp_us for record in log.reader()]
    assert times == sorted(times)


# Rolling.


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        ({"segment_entries": 2}, [(0, 2), (2, 4), (4, 5)]),
        ({"segment_bytes": 10}, [(0, 2), (2, 4), (4, 5)]),
        ({"segment_bytes": 1}, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
        ({"segment_age_ms": 1500}, [(0, 2), (2, 4), (4, 5)]),
        ({}, [(0, 5)]),
    ],
    ids=["entries", "bytes", "a record larger than a segment", "age", "none"],
)
def test_segment_is_rolled_when_it_is_full_or_old(
    place: Place, settings: dict[str, int], bounds: list[Any]
) -> None:
    log = place.log(**settings)
    for _ in range(5):
        log.append(b"12345", ack="written")
        place.clock.advance(1000)
    assert log.segment_bounds() == bounds
    assert payloads(log) == [b"12345"] * 5


def test_no_segment_exists_before_a_record_needs_it(place: Place) -> None:
    log = place.log(segment_entries=1)
    assert [name for name in place.files.names(log.folder) if "." in name] == []
    log.append(b"x")
    log.append(b"x")
    assert len([name for name in place.files.names(log.folder) if name.endswith(".segment")]) == 2


def test_batch_is_never_split_between_segments(place: Place) -> None:
    log = place.log(segment_entries=3)
    log.append_many([b"x"] * 2, ack="written")
    log.append_many([b"y"] * 5, ack="written")
    assert log.segment_bounds() == [(0, 2), (2, 7)]


def test_reserve_ceiling_rises_with_appends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "RESERVE_OFFSETS", 5)
    log = place.log()
    for number in range(30):
        assert log.append(b"x", ack="written") == number
    assert place.files.counts["fdatasync"] >= 5


# Refusals: nothing was appended, and the next append works.


def test_record_over_the_limit_is_refused_with_its_batch(place: Place) -> None:
    log = place.log(record_bytes=10)
    with pytest.raises(RecordTooLarge) as caught:
        log.append_many([b"fits", b"x" * 11])
    assert (caught.value.size, caught.value.limit) == (11, 10)
    with pytest.raises(RecordTooLarge):
        log.append(b"x" * 9, headers=[("n", b"v")])  # the header block counts
    with pytest.raises(RecordTooLarge):
        log.submit(WriteBatch([b"x" * 11]), ack=Ack.WRITTEN)
    assert log.append(b"x" * 10) == 0


def test_append_refuses_one_topic_together_with_many(place: Place) -> None:
    with pytest.raises(ValueError, match="invalid topics: expected `topic` for all records"):
        place.log().append_many([b"a", b"b"], topic="x", topics=["x", "y"])


def test_submit_refuses_other_types_than_a_batch(place: Place) -> None:
    with pytest.raises(TypeError, match="invalid submission: expected a WriteBatch, got bytes"):
        place.log().submit(b"x", ack="synced")  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", [5, b"x"])
def test_append_refuses_a_topic_that_is_not_text(place: Place, topic: Any) -> None:
    log = place.log()
    for append in (lambda: log.append(b"a", topic=topic), lambda: log.append_many([b"a"], topics=[topic])):
        with pytest.raises(TypeError, match=f"invalid topic: expected text, got {topic!r}"):
            append()


def test_topics_over_the_limit_are_refused_and_known_ones_accepted(place: Place) -> None:
    log = place.log(topic_count=1)
    log.append(b"x", topic="a")
    with pytest.raises(TopicLimit):
        log.append(b"x", topic="b")
    with pytest.raises(InvalidName):
        log.append(b"x", topic="a/#")
    assert log.append(b"x", topic="a") == 1


@pytest.mark.parametrize("append", ["append_batch", "append_now", "submit"])
def test_topic_id_of_another_log_is_refused(place: Place, append: str) -> None:
    """In this log it has no name, so recovery would cut it off, and with it all that was written behind it."""
    log = place.log()
    log.append(b"0", topic="t")
    with pytest.raises(ValueError, match="invalid topic id: expected one of the 1 of this log"):
        getattr(log, append)(WriteBatch([b"1"], 1), **({"ack": "written"} if append == "submit" else {}))
    assert payloads(log) == [b"0"]
    log.append_batch(WriteBatch([b"1"], log.topic_id("u")))


def test_low_space_refuses_before_anything_is_written(place: Place) -> None:
    free = place.files.free_bytes(place.root.parent)
    log = place.log(min_free_bytes=2 * free)
    with pytest.raises(StorageFull) as caught:
        log.append(b"x")
    assert caught.value.limit_bytes == 2 * free
    assert "pwrite" not in [name for name, path in place.files.calls if path.endswith(".segment")]
    submission = log.submit(WriteBatch([b"x"]), ack=Ack.WRITTEN)
    with pytest.raises(StorageFull):
        submission.wait(10)


@pytest.mark.parametrize("operation", ["create", "reserve", "pwrite"])
def test_disk_error_is_raised_with_the_file_and_the_next_append_works(place: Place, operation: str) -> None:
    log = place.log()
    place.files.fail(operation, errno.ENOSPC, path=".segment" if operation != "reserve" else "")
    with pytest.raises(OSError, match="No space") as caught:
        log.append(b"refused", ack="written")
    assert "telemetry-0" in str(caught.value.filename)
    assert log.end_offset == 0
    assert log.append(b"kept") == 0
    assert payloads(log) == [b"kept"]


def test_submission_has_the_outcome_of_its_write(place: Place) -> None:
    log = place.log()
    place.files.fail("pwrite", errno.ENOSPC, path=".segment")
    told: list[Exception | None] = []
    submission = log.submit(WriteBatch([b"x"]), ack=Ack.WRITTEN, done=lambda one: told.append(one.error))
    with pytest.raises(OSError, match="No space"):
        submission.wait(10)
    wait_for(lambda: told)  # the waiting thread continues a moment before
    assert [type(error) for error in told] == [OSError]


def test_raising_callback_does_not_affect_others(place: Place) -> None:
    log = place.log()

    def broken(submission: Submission) -> None:
        raise RuntimeError("a mistake of the caller")

    for ack in (Ack.WRITTEN, Ack.SYNCED):
        log.submit(WriteBatch([b"x"]), ack=ack, done=broken)
        assert log.submit(WriteBatch([b"y"]), ack=ack).wait(10)
    assert payloads(log) == [b"x", b"y"] * 2


def test_raising_reader_callback_does_not_affect_others(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    log = place.log()

    def broken(reader: Reader, first_offset: int) -> None:
        raise RuntimeError("a mistake of the reader")

    reader = log.reader("latest")
    reader.on_wake = broken
    assert reader.park()
    assert log.append(b"x") == 0
    assert "could not be woken" in caplog.text


# A failed flush.


@pytest.mark.parametrize("path", [".segment", ".index", "/topics"])
def test_records_are_rewritten_when_a_flush_failed_once(place: Place, path: str) -> None:
    log = place.log()
    log.append(b"zero", topic="a")
    log.append(b"one", topic="b", ack="written")
    place.files.fail("fdatasync", errno.EIO, path=path)
    assert log.append(b"two", topic="c", ack="synced") == 2
    assert log.synced_offset == 3
    assert log.epoch == 1
    assert [(record.payload, record.topic) for record in log.reader()] == [
        (b"zero", "a"),
        (b"one", "b"),
        (b"two", "c"),
    ]
    assert log.append(b"three", ack="synced") == 3


def test_log_fails_with_the_lost_offsets_when_the_disk_no_longer_flushes(place: Place) -> None:
    log = place.log()
    log.append(b"zero")
    log.append(b"one", ack="written")
    place.files.fail("fdatasync", errno.EIO, forever=True)
    with pytest.raises(LogFailed) as caught:
        log.append(b"two", ack="synced")
    assert caught.value.unsynced == range(1, 3)
    assert log.failure is not None
    for ack in (Ack.WRITTEN, Ack.SYNCED):
        with pytest.raises(LogFailed, match="1 to 2"):
            log.append(b"three", ack=ack)
        with pytest.raises(LogFailed):
            log.submit(WriteBatch([b"x"]), ack=ack)
    assert payloads(log) == [b"zero", b"one", b"two"], "what was shown stays readable"
    assert log.synced_offset == 1


def test_all_waiting_calls_raise_when_the_log_fails(place: Place) -> None:
    log = place.log()
    log.append(b"zero")
    place.files.fail("fdatasync", errno.EIO, forever=True)
    submissions = []
    for _ in range(20):
        try:
            submissions.append(log.submit(WriteBatch([b"x"]), ack=Ack.SYNCED))
        except LogFailed:
            break
    assert submissions
    for submission in submissions:
        with pytest.raises(LogFailed):
            submission.wait(10)


def test_failed_log_does_not_grow_while_it_refuses_appends(place: Place) -> None:
    """One instance raised again and again would keep every frame that it passed through."""
    log = place.log()
    log.append(b"zero")
    place.files.fail("fdatasync", errno.EIO, forever=True)
    depths = []
    for _ in range(30):
        with pytest.raises(LogFailed) as caught:
            log.append(b"x")
        depths.append(len(list(_frames(caught.value))))
    assert depths[-1] <= depths[1]


def _frames(error: BaseException) -> Iterator[object]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def test_failure_of_an_unawaited_submission_is_logged(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    log = place.log()
    place.files.fail("pwrite", errno.ENOSPC, path=".segment")
    with caplog.at_level(logging.WARNING, "timestone"):
        log.submit(WriteBatch([b"x"]), ack=Ack.MEMORY)
        log.sync()
        place.stores[-1].close()
    assert "No space" in caplog.text


# Many at once, and the end.


def test_concurrent_appends_get_distinct_offsets_in_order_of_each_thread(place: Place) -> None:
    log = place.log(segment_entries=50)
    got: dict[int, list[int]] = {}
    start = threading.Barrier(5)

    def run(number: int) -> None:
        start.wait()
        mine = []
        for count in range(60):
            payload = b"%d %d" % (number, count)
            if count % 3:
                mine.append(log.append(payload, topic=f"t{count}", ack="written" if count % 2 else "synced"))
            else:
                mine.append(log.submit(WriteBatch([payload]), ack=Ack.WRITTEN).wait(10).start)
        got[number] = mine

    threads = [threading.Thread(target=run, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for mine in got.values() for offset in mine) == list(range(300))
    found = payloads(log)
    for number, mine in got.items():
        assert mine == sorted(mine)
        assert [found[offset] for offset in mine] == [b"%d %d" % (number, count) for count in range(60)]


def test_closed_log_refuses_everything(place: Place) -> None:
    log = place.log()
    log.append(b"x", topic="t")
    reader = log.reader(topics="t")
    named = log.reader(name="n")
    place.stores[-1].close()
    calls: list[Callable[[], object]] = [
        lambda: log.append(b"x"),
        lambda: log.append_many([b"x"]),
        lambda: log.submit(WriteBatch([b"x"]), ack=Ack.WRITTEN),
        lambda: log.sync(),
        lambda: log.read(0),
        lambda: log.read(1),
        lambda: log.record(0),
        lambda: log.offset_at(0),
        lambda: log.reader(),
        lambda: log.lags(),
        lambda: log.segment_bounds(),
        lambda: log.segments_with(["t"], 0, 1),
        lambda: log.segment_sizes(),
        lambda: log.gap_at(0),
        lambda: log.lost_offsets(0, 1),
        lambda: log.roll(),
        lambda: log.configure(retention_ms=1),
        lambda: log.apply_retention(),
        lambda: log.apply_compression(),
        lambda: log.apply_compaction(),
        reader.read,
        reader.park,
        lambda: reader.wait(0),
        lambda: reader.seek(0),
        lambda: list(reader),
        named.commit,
        lambda: named.committed_offset,
    ]
    for call in calls:
        with pytest.raises(StoreClosed):
            call()
    assert (log.start_offset, log.end_offset) == (0, 1)


def test_appends_beside_a_close_are_in_the_log_or_refused(quick_directory: Path) -> None:
    class SlowFiles(Files):
        def fdatasync(self, fd: int) -> None:
            time.sleep(0.002)
            super().fdatasync(fd)

    for number in range(10):
        counts: list[int] = []
        store = timestone.open(quick_directory / f"{number}", files=SlowFiles())
        log = store.log("telemetry")

        def append(log: Log, counts: list[int]) -> None:
            with suppress(StoreClosed):
                while True:
                    counts.append(len(log.append_many([b"one", b"two"], topic="t")))

        threads = [threading.Thread(target=append, args=(log, counts)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(counts) > 4)  # noqa: B023
        store.close()
        for thread in threads:
            thread.join()
        with timestone.view(store.path) as view:
            assert view.log("telemetry").end_offset == sum(counts)


def test_batch_can_be_read_when_its_log_is_closed(place: Place) -> None:
    """It holds its own bytes, whether they came from memory or from a file."""
    log = place.log()
    log.append_many([b"0", b"1"], topics=["a", "b"])
    batches = [log.read(0), log.reader(topics="#").read()]
    place.stores[-1].close()
    for batch in batches:
        assert [(one.topic, one.payload) for one in batch] == [("a", b"0"), ("b", b"1")]
        assert batch[1].payload == b"1"


def test_close_writes_submitted_batches_into_a_segment_that_the_next_open_continues(place: Place) -> None:
    log = place.log()
    submissions = [log.submit(WriteBatch([b"%d" % number]), ack=Ack.MEMORY) for number in range(100)]
    place.stores[-1].close()
    assert all(submission.error is None for submission in submissions)
    again = place.log()
    assert place.stores[-1].recoveries == ()
    assert payloads(again) == [b"%d" % number for number in range(100)]
    assert again.growing_base == 0


def test_offsets_beyond_the_log_are_out_of_range_with_its_bounds(place: Place) -> None:
    log = place.log()
    log.append_many([b"x"] * 3)
    for call in (log.read, log.record, log.reader):
        with pytest.raises(OffsetOutOfRange) as caught:
            call(7)
        assert (caught.value.requested, caught.value.start, caught.value.end) == (7, 0, 3)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.record(3)
    assert (caught.value.requested, caught.value.start, caught.value.end) == (3, 0, 3)
    assert not log.read(3)


@compiled_only
def test_append_now_of_a_small_batch_is_two_writes_and_no_flush(place: Place) -> None:
    log = place.log()
    log.append(b"first", ack="written")
    before = place.files.counts
    assert log.append_now(WriteBatch([b"a", b"b"])) == range(1, 3)
    assert place.files.counts - before == {"pwrite": 2}
    assert payloads(log) == [b"first", b"a", b"b"]


def test_append_now_does_nothing_when_it_would_wait_or_overtake(place: Place) -> None:
    log = place.log(segment_entries=4)
    assert log.append_now(WriteBatch([b"x"])) is None, "there is no segment yet"
    log.append_many([b"x"] * 3)
    assert log.append_now(WriteBatch([b"x"] * 2)) is None, "the segment has room for one"
    assert log.append_now(WriteBatch([b"x" * INLINE_BYTES])) is None, "it is large"
    topic_id = log.topic_id("new")
    assert log.append_now(WriteBatch([b"x"], topic_id)) is None, "the name is not written yet"
    log.append(b"x", topic="new")
    log.append(bytes(1 << 20), ack="synced")
    with log._commit.sync_lock:
        assert log.append_now(WriteBatch([b"x"])) is None, "a large flush is under way"
    with log._end.lock:
        assert log.append_now(WriteBatch([b"x"])) is None, "another thread is writing"
        log.submit(WriteBatch([b"queued"]), ack=Ack.WRITTEN)
        assert log.append_now(WriteBatch([b"x"])) is None, "another thread came first"
    assert log.end_offset <= 6


@compiled_only
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_failed_append_now_has_no_effect(place: Place, error: int) -> None:
    log = place.log()
    log.append(b"a", ack="written")
    fault = place.files.fail("pwrite", error, path=".segment")
    with pytest.raises(OSError):
        log.append_now(WriteBatch([b"b"]))
    fault.lift()
    wait_for(
        lambda: log.append_now(WriteBatch([b"c"])) == range(1, 2)
    )  # a failure that took long pauses direct writes
    assert payloads(log) == [b"a", b"c"]


def test_append_now_refuses_the_same_as_append(place: Place) -> None:
    log = place.log(record_bytes=4)
    log.append(b"a", ack="written")
    with pytest.raises(RecordTooLarge):
        log.append_now(WriteBatch([b"12345"]))
    log.close()
    assert log.append_now(WriteBatch([b"b"])) is None
    with pytest.raises(StoreClosed):
        log.submit(WriteBatch([b"b"]), ack=Ack.WRITTEN)


class Gate(Files):
    """Flushes wait until it is passable."""

    def __init__(self) -> None:
        self.passable = threading.Event()
        self.passable.set()
        self.begun = threading.Event()
        self.count = 0
        """Of flushes that have begun."""

    def fdatasync_both(self, one: int, other: int) -> None:
        self.count += 1
        self.begun.set()
        assert self.passable.wait(60)
        super().fdatasync_both(one, other)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def gated(quick_directory: Path, gate: Gate) -> Iterator[Log]:
    """A log with a synced record, whose flushes wait from now on."""
    with timestone.open(quick_directory / "gated", min_free_bytes=0, files=gate) as store:
        log = store.log("a")
        log.append(b"first", ack="synced")
        log._end.inline_writes = InlineWrites(lambda: 0.0)  # however long one takes
        gate.passable.clear()
        gate.begun.clear()
        try:
            yield log
        finally:
            gate.passable.set()


def test_one_flush_serves_all_waiting_appends(gated: Log, gate: Gate) -> None:
    first = gated.submit(WriteBatch([b"x"]), ack=Ack.SYNCED)
    assert gate.begun.wait(60)
    before = gate.count
    others = [gated.submit(WriteBatch([b"x"]), ack=Ack.SYNCED) for _ in range(199)]
    gate.passable.set()
    assert [one.wait(60) for one in (first, *others)] == [range(n, n + 1) for n in range(1, 201)]
    assert gate.count == before + 1, "those who came during the first flush are served by the next"


@compiled_only
def test_submitted_records_can_be_read_before_they_are_synced(gated: Log, gate: Gate) -> None:
    submission = gated.submit(WriteBatch([b"a", b"b"]), ack=Ack.SYNCED)
    assert payloads(gated) == [b"first", b"a", b"b"]
    assert not submission.resolved and gated.queued_bytes == 0
    assert gate.begun.wait(60)
    beside = gated.submit(WriteBatch([b"c"]), ack=Ack.SYNCED)
    assert gated.end_offset == 4, "also beside a small flush"
    gate.passable.set()
    assert (submission.wait(60), beside.wait(60)) == (range(1, 3), range(3, 4))
    assert gated.synced_offset == 4


def test_submit_queues_beside_a_large_flush(gated: Log, gate: Gate) -> None:
    large = gated.submit(WriteBatch([bytes(2 * MIB)]), ack=Ack.SYNCED)
    assert gate.begun.wait(60)
    small = gated.submit(WriteBatch([b"small"]), ack=Ack.SYNCED)
    assert (gated.end_offset, gated.queued_bytes > 0) == (2, True)
    gate.passable.set()
    assert (large.wait(60), small.wait(60)) == (range(1, 2), range(2, 3))


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_submission_fails_with_the_error_of_its_inline_write(place: Place, error: int) -> None:
    log = place.log()
    log.append(b"a", ack="synced")
    told: list[Exception | None] = []
    fault = place.files.fail("pwrite", error, path=".segment")
    submission = log.submit(WriteBatch([b"b"]), ack=Ack.SYNCED, done=lambda one: told.append(one.error))
    with pytest.raises(OSError):
        submission.wait(60)
    fault.lift()
    assert log.submit(WriteBatch([b"c"]), ack=Ack.SYNCED).wait(60) == range(1, 2)
    assert payloads(log) == [b"a", b"c"]
    wait_for(lambda: told)
    assert told == [submission.error]


def test_when_synced_calls_back_when_the_offset_is_durable(place: Place) -> None:
    log = place.log()
    log.append(b"x", ack="written")
    answers: list[tuple[Exception | None, int]] = []
    log.when_synced(1, lambda error: answers.append((error, log.synced_offset)))
    wait_for(lambda: answers)
    log.when_synced(1, lambda error: answers.append((error, log.synced_offset)))
    assert answers == [(None, 1), (None, 1)]
    assert log.end_offset == 1
