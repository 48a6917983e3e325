"""Retention: what goes, what stays, who is told, and what a clock that jumps may not do."""

import errno
import gc
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.step_clock import StepClock
from tests.support.waiting import wait_for, wait_for_seals
from timestone import CorruptLog, Log, LogConfig, OffsetOutOfRange, Pin, ReaderId, Store, names
from timestone.inspection import EXIT_CLEAN, EXIT_UNCLOSED, inspect_store
from timestone.retention import SPACE, too_many
from timestone.segment import Segment

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS


class CountingFiles(FaultyFiles):
    """Remembers which descriptors were closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: list[int] = []

    def close(self, fd: int) -> None:
        self.closed.append(fd)
        super().close(fd)


class Place:
    """A store with a clock of its own, and a log with small segments; retention runs only when it is called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = StepClock()
        self.files = CountingFiles()
        self.store: Store = self._opened()

    def _opened(self) -> Store:
        store = timestone.open(
            self.path,
            ack="written",
            files=self.files,
            clock=self.clock,
            min_free_bytes=0,
            delete_delay_ms=10**9,
        )
        store.maintenance.stop()  # whatever the background would do, the tests ask for
        return store

    def log(self, **settings: Any) -> Log:
        return self.store.log("a", config=LogConfig(**{"segment_entries": 4, **settings}))

    def fill(self, log: Log, count: int, size: int = 100) -> None:
        """Append, and wait until all that is full is sealed and the files of that are closed."""
        for _ in range(count):
            log.append(bytes(size))
        self.store.sealer.settle()

    def seal(self, log: Log) -> None:
        log.roll()
        self.store.sealer.settle()

    def reopen(self) -> Log:
        self.store.close()
        self.store = self._opened()
        return self.store.log("a", create=False)

    def killed(self) -> Log:
        """The process dies, another one opens the store."""
        self.files.abandon()
        self.store.abandon()
        self.files = CountingFiles()
        self.store = self._opened()
        return self.store.log("a", create=False)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "data")
    yield place
    place.store.close()


def bases(log: Log) -> list[int]:
    return [base for base, _ in log.segment_bounds()]


def disk_bytes(segment: Segment) -> int:
    return sum(path.stat().st_size for path in (segment.index_path, segment.segment_path))


@pytest.mark.parametrize(
    ("sizes", "more", "limit", "count"),
    [
        ([], 0, 10, 0),
        ([10], 0, 1, 0),
        ([10, 10, 10], 0, 10, 2),
        ([10, 10, 10], 0, 11, 1),
        ([10, 10, 10], 5, 11, 2),
        ([10, 10, 10], 5, 16, 1),
        ([10, 10, 10], 11, 11, 3),
        ([10, 10, 10], 0, 1000, 0),
        ([100, 1, 1], 0, 2, 1),
    ],
)
def test_by_size_what_is_left_is_at_least_the_limit(
    sizes: list[int], more: int, limit: int, count: int
) -> None:
    assert too_many(sizes, more, limit) == count


def test_without_limits_nothing_ever_goes(place: Place) -> None:
    log = place.log()
    place.fill(log, 20)
    place.clock.advance(100 * YEAR_MS)
    assert log.apply_retention() == 0
    assert log.start_offset == 0


def test_segments_go_once_their_last_record_is_old_enough(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.clock.advance(30 * MINUTE_MS)
    place.fill(log, 5)
    assert log.apply_retention() == 0
    place.clock.advance(31 * MINUTE_MS)
    assert log.apply_retention() == 1
    assert (log.start_offset, log.end_offset) == (4, 9)
    with pytest.raises(OffsetOutOfRange) as caught:
        log.read(3)
    assert (caught.value.requested, caught.value.start, caught.value.end) == (3, 4, 9)
    assert log.record(4).payload == bytes(100)


def test_newest_segments_that_reach_the_size_stay(place: Place) -> None:
    log = place.log(retention_bytes=40_000)
    place.fill(log, 40, size=2000)
    assert log.apply_retention() > 0
    place.store.close()
    kept = sum(path.stat().st_size for path in log.folder.iterdir() if path.suffix in (".index", ".segment"))
    largest = 4 * 2000 + 4 * 32 + 4096 + 128 + 12
    assert 40_000 <= kept < 40_000 + largest


def test_growing_segment_of_a_silent_log_is_sealed_and_goes_too(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 2)
    log.apply_retention()
    place.clock.advance(HOUR_MS + 1)
    assert log.apply_retention() == 0
    wait_for(lambda: log.growing_base is None and all(segment.trailer for segment in log.history.segments))
    assert log.apply_retention() == 1
    assert (log.start_offset, log.end_offset, bases(log)) == (2, 2, [])
    assert log.append(b"next") == 2


def test_segment_grows_no_longer_than_the_retention(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS, segment_entries=1000)
    for _ in range(10):
        log.append(b"x")
        place.clock.advance(20 * MINUTE_MS)
    place.seal(log)
    assert bases(log) == [0, 3, 6, 9], "the default age of a segment is a week"


def test_emptied_log_keeps_its_next_offset_over_restart_and_kill(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 6)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 2
    assert not [path for path in log.folder.iterdir() if path.suffix in (".index", ".segment")]
    log = place.killed()
    assert (log.start_offset, log.end_offset) == (6, 6)
    log = place.reopen()
    assert (log.start_offset, log.end_offset) == (6, 6)
    assert log.append(b"next") == 6
    log = place.killed()
    assert (log.start_offset, log.end_offset) == (6, 7)


def test_catalogue_older_than_the_files_does_not_take_offsets_back(place: Place) -> None:
    """The row of a log is written when the log is made, and not again while segments tell more."""
    log = place.log(retention_bytes=1)
    place.fill(log, 11)
    assert log.apply_retention() == 2
    assert place.store.documents.logs()["a", 0].next_offset == 0
    log = place.killed()
    assert (log.start_offset, log.end_offset) == (8, 11)


def test_last_segment_stays_while_the_catalogue_cannot_be_written(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 6)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(place.store.documents, "put_log", refuse)
        with pytest.raises(OSError, match="full"):
            log.apply_retention()
        assert bases(log) == [4]
        assert "its last segment stays" in caplog.text
    assert log.apply_retention() == 1


def test_reader_with_open_files_keeps_them(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    segment = log.history.segments[0]
    pair = segment.pair()
    assert log.apply_retention() == 2
    place.store.deleted_files.unlink_all()
    assert not segment.segment_path.exists()
    assert segment.read_bytes(pair, 0, 100) == bytes(100)
    assert len(segment.mapped_entries(pair, 0, 4)) == 4


def test_reader_behind_retention_is_told_and_can_go_on(place: Place) -> None:
    log = place.log(retention_bytes=1)
    plain, filtered = log.reader(), log.reader(topics="#")
    for number in range(9):
        log.append(b"%d" % number, topic="t")
    wait_for_seals(log)
    plain.read(max_records=1)
    log.apply_retention()
    for reader in (plain, filtered):
        with pytest.raises(OffsetOutOfRange, match=r"the log holds \[8, 9\)"):
            reader.read()
        reader.seek("earliest")
        assert [record.payload for record in reader] == [b"8"]


def test_deletion_between_the_look_at_the_start_and_the_read_is_no_silent_jump(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_bytes=1)
    for _ in range(9):
        log.append(bytes(1000), topic="t")
    wait_for_seals(log)
    monkeypatch.setattr(log, "_in_tail", lambda offset: None)
    check = log._check

    def check_and_delete(offset: int, end: int) -> None:
        check(offset, end)
        log.apply_retention()

    for read in (lambda: log.read(0), lambda: log.reader(0, topics="#").read(), lambda: log.record(0)):
        with monkeypatch.context() as patch:
            patch.setattr(log, "_check", check_and_delete)
            with pytest.raises(OffsetOutOfRange, match=r"offset 0 is out of range: the log holds \[8, 9\)"):
                read()


def test_whole_log_deleted_in_the_middle_of_a_read_is_no_silent_jump_either(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 8)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)
    monkeypatch.setattr(log, "_in_tail", lambda offset: None)
    check = log._check

    def check_and_delete(offset: int, end: int) -> None:
        check(offset, end)
        log.apply_retention()

    monkeypatch.setattr(log, "_check", check_and_delete)
    with pytest.raises(OffsetOutOfRange, match=r"the log holds \[8, 8\)"):
        log.read(2)


def test_search_by_time_goes_on_when_segments_vanish(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    history = log.history
    log.apply_retention()
    stale = iter([history])
    monkeypatch.setattr(type(log), "history", property(lambda self: next(stale, self._appender.history)))
    assert log.offset_at(1) == 8


def test_files_go_after_the_delay_or_when_the_store_closes(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", ack="written", delete_delay_ms=0, min_free_bytes=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=2, retention_bytes=1))
        for _ in range(9):
            log.append(b"x")
        wait_for(lambda: log.start_offset == 8)
        wait_for(lambda: not list(log.folder.glob("*.deleted")))
    with timestone.open(tmp_path / "data", ack="written", min_free_bytes=0) as store:
        log = store.log("a")
        for _ in range(4):
            log.append(b"x")
        wait_for(lambda: log.start_offset > 8)
        assert list(log.folder.glob("*.deleted"))
    assert not list(log.folder.glob("*.deleted"))


def test_background_deletes_by_age_without_being_asked(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", ack="written", min_free_bytes=0) as store:
        log = store.log("a", config=LogConfig(retention_ms=50))
        log.append(b"x")
        wait_for(lambda: log.start_offset == 1)
        log.append(b"y")
        wait_for(lambda: log.start_offset == 2)


def test_store_without_limits_and_scrubber_has_no_thread_for_them(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", ack="written", min_free_bytes=0, scrub_bytes_per_s=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=2))
        for _ in range(9):
            log.append(b"x")
        assert not [thread for thread in threading.enumerate() if thread.name == "timestone-maintenance"]


def test_settings_can_be_changed_and_are_kept(place: Place) -> None:
    log = place.log()
    place.fill(log, 9)
    with pytest.raises(ValueError, match="retention_bytes"):
        log.configure(retention_bytes=-1)
    with pytest.raises(TypeError):
        log.configure(colour=1)
    log.configure(retention_bytes=1)
    log = place.reopen()
    assert log.config == LogConfig(segment_entries=4, retention_bytes=1)
    log.apply_retention()
    assert log.start_offset == 8


def test_rename_that_fails_leaves_the_segment_and_is_tried_again(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 13)
    place.files.fail("rename", errno.EIO, path="00000004.index.deleted")
    with pytest.raises(OSError, match="Input/output"):
        log.apply_retention()
    assert (log.start_offset, bases(log)) == (4, [4, 8, 12])
    assert log.read(4)
    assert log.apply_retention() == 2
    assert log.start_offset == 12


def test_second_rename_of_a_pair_that_fails_leaves_the_rest_to_the_next_open(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    place.files.fail("rename", errno.EIO, path="00000004.segment.deleted")
    assert log.apply_retention() == 2
    assert log.start_offset == 8
    assert inspect_store(place.path).exit_code in (EXIT_CLEAN, EXIT_UNCLOSED)
    log = place.reopen()
    assert log.start_offset == 8
    assert sorted(path.name for path in log.folder.iterdir()) == [
        f"{8:020d}.index",
        f"{8:020d}.segment",
        "topics",
    ]


def test_directory_sync_that_fails_is_reported_and_nobody_reads_what_is_gone(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    place.files.fail("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.apply_retention()
    assert log.start_offset == 8
    place.store.deleted_files.unlink_all()
    assert (log.folder / f"{4:020d}.index.deleted").exists(), "the proof, should the power fail now"


def test_failed_log_is_left_as_it_is(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    place.files.fail("fdatasync", errno.EIO, forever=True)
    with pytest.raises(timestone.LogFailed):
        log.append(b"x", ack="synced")
    assert log.apply_retention() == 0
    assert log.start_offset == 0
    assert log.retention.run() is None, "not again at once, and again, and again"


# Clocks that jump: storage.md would call it test 20.


def test_clock_far_ahead_for_a_while_wipes_nothing(place: Place) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 9)
    place.clock.step(20 * YEAR_MS)
    assert log.apply_retention() == 0
    place.clock.advance(50 * MINUTE_MS)
    assert log.apply_retention() == 0
    place.clock.step(-20 * YEAR_MS)
    assert log.apply_retention() == 0
    place.clock.advance(DAY_MS)
    assert log.apply_retention() > 0


def test_machine_that_comes_up_with_a_clock_far_ahead_wipes_nothing(place: Place) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 9)
    place.clock.step(20 * YEAR_MS)
    log = place.reopen()
    assert log.apply_retention() == 0
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 3, "it has lasted: then the store really was closed for so long"


def test_program_that_runs_for_a_moment_each_day_deletes_all_the_same(place: Place) -> None:
    log = place.log(retention_ms=2 * DAY_MS)
    for _ in range(10):
        place.fill(log, 1)
        place.clock.advance(DAY_MS)
        log = place.reopen()
        log.apply_retention()
    assert log.start_offset >= 6


def test_clock_set_back_pins_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Records written while the clock was twenty years ahead would not be old for twenty years."""
    log = place.log(retention_ms=DAY_MS)
    place.clock.step(20 * YEAR_MS)
    place.fill(log, 5)
    place.clock.step(-20 * YEAR_MS)
    place.fill(log, 4)
    place.seal(log)
    with caplog.at_level(logging.WARNING):
        assert log.apply_retention() == 0
    assert "from the future" in caplog.text
    place.clock.advance(DAY_MS // 2)
    log = place.reopen()
    place.clock.advance(DAY_MS // 2 + 1)
    assert log.apply_retention() == 3, "counted from when it was first seen, over a restart"
    assert place.store.documents.items(SPACE) == {}


def test_nonsense_in_the_catalogue_is_as_if_never_seen(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit in one of these documents ended the background thread with a traceback, and with it retention."""
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    place.store.documents.put_many(SPACE, {"a-0/0": b'{"seen_uz": 1}', "a-0/4": b"\xff", "a-0/x": b"{}"})
    place.seal(log)
    place.clock.advance(2 * DAY_MS)
    with caplog.at_level(logging.WARNING):
        assert log.apply_retention() == 2
    assert caplog.text.count("as if never seen") == 3


def test_clock_set_back_wipes_nothing(place: Place) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    place.clock.step(-20 * YEAR_MS)
    place.fill(log, 4)
    place.seal(log)
    assert log.apply_retention() == 0
    place.clock.step(20 * YEAR_MS)
    assert log.apply_retention() == 0
    place.clock.advance(DAY_MS + HOUR_MS)
    log.apply_retention()
    assert log.start_offset == 9


# Other processes.


def test_view_follows_deletions(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    with timestone.view(place.path) as view:
        other = view.log("a")
        reader = other.reader()
        assert len(reader.read(max_records=2)) == 2
        log.apply_retention()
        place.store.deleted_files.unlink_all()
        assert reader.read(max_records=1).next_offset == 3, "its files are open"
        view.open_segments.clear()
        with pytest.raises(OffsetOutOfRange) as caught:
            reader.read()
        assert (caught.value.requested, caught.value.start, caught.value.end) == (3, 8, 9)
        assert (other.start_offset, other.end_offset) == (8, 9)
        reader.seek("earliest")
        assert len(reader.read()) == 1


def test_view_searches_by_time_and_topic_while_segments_vanish(place: Place) -> None:
    log = place.log(retention_bytes=1)
    for _ in range(9):
        log.append(bytes(100), topic="t")
    wait_for_seals(log)
    with timestone.view(place.path) as view:
        by_time, by_topic = view.log("a"), timestone.view(place.path).log("a")
        log.apply_retention()
        assert by_time.offset_at(1) == 8
        with pytest.raises(OffsetOutOfRange):
            by_topic.reader(0, topics="t").read()


def test_view_of_an_emptied_log_knows_where_it_ends(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 6)
    place.seal(log)
    with timestone.view(place.path) as old:
        before = old.log("a")
        place.clock.advance(2 * HOUR_MS)
        assert log.apply_retention() == 2
        for view in (before, timestone.view(place.path).log("a")):
            view.refresh()
            assert (view.start_offset, view.end_offset, view.synced_offset) == (6, 6, 6)
            assert not view.read(6)
            with pytest.raises(OffsetOutOfRange):
                view.read(5)


def test_view_that_finds_a_segment_gone_in_the_middle_of_a_refresh_shows_no_hole(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 13)
    look_at = timestone.LogView._look_at

    def look_and_delete(view: timestone.LogView, base: int, known: Segment | None) -> object:
        if base == 0:
            log.apply_retention()
        return look_at(view, base, known)

    monkeypatch.setattr(timestone.LogView, "_look_at", look_and_delete)
    with timestone.view(place.path) as view:
        other = view.log("a")
        assert (other.start_offset, other.end_offset) == (12, 13)
        assert other.segment_bounds() == [(12, 13)]


def test_view_names_a_file_that_is_really_missing(place: Place) -> None:
    log = place.log()
    place.fill(log, 9)
    with timestone.view(place.path) as view:
        other = view.log("a")
        (log.folder / f"{4:020d}.segment").unlink()
        with pytest.raises(timestone.CorruptLog, match=r"00000004\.segment: the file is missing"):
            other.read(4)
        with pytest.raises(timestone.CorruptLog, match="missing"):
            other.offset_at(log.record(5).timestamp_us)


def test_pair_that_cannot_be_opened_closes_nothing_twice(place: Place) -> None:
    """A reader met a segment between the renames of its two files. What was open of it was closed by the failure
    and once more when the object went, by when the number belonged to another file: the one being written."""
    log = place.log()
    place.fill(log, 5)
    segment = log.history.segments[0]
    place.store.open_segments.clear()
    segment.index_path.rename(names.deleted_path(segment.index_path))
    place.files.closed.clear()
    with pytest.raises(FileNotFoundError):
        segment.pair()
    gc.collect()
    assert len(place.files.closed) == 1


def test_inspect_knows_what_retention_has_left(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 6)
    log.reader(name="slow").commit(1)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)
    log.apply_retention()
    report = inspect_store(place.path)
    (found,) = report.logs
    assert (found.start_offset, found.end_offset, found.synced_offset, found.segments) == (6, 6, 6, ())
    assert found.strangers == ()
    assert report.exit_code == EXIT_CLEAN
    assert (report.readers[0].missed, report.readers[0].lag) == (5, 0)


def test_inspect_does_not_mind_segments_that_vanish_while_it_looks(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 13)

    def delete(folder: str, done: int, count: int) -> None:
        log.apply_retention()
        place.store.deleted_files.unlink_all()

    report = inspect_store(place.path, deep=True, progress=delete)
    assert report.exit_code == EXIT_UNCLOSED
    assert [segment.base_offset for segment in report.logs[0].segments] == [12]


def read_on(log: Log | timestone.LogView, stop: threading.Event, found: list[str]) -> None:
    """Read to the end again and again; every offset that was not read must have been announced."""
    try:
        reader, count, announced = log.reader(), 0, (0, 0, 0)
        while not stop.is_set():
            if isinstance(log, timestone.LogView):
                log.refresh()
            offset = reader.offset
            try:
                batch: timestone.Batch | None = reader.read(max_records=7)
            except OffsetOutOfRange as error:
                announced = (error.requested, error.start, error.end)
                reader.seek("earliest")
                batch = None
            if batch is None:
                assert announced[0] == offset < announced[1] <= announced[2]
                continue
            for record in batch:
                assert record.offset == offset, "a gap that nobody announced"
                assert record.payload == b"%d" % record.offset
                offset += 1
            count += len(batch)
            if batch and count % 50 > 40:
                time.sleep(0.003)  # fall behind
        assert count
    except BaseException as error:
        found.append(f"{type(log).__name__} {error!r}")


def test_readers_here_and_elsewhere_see_no_gap_while_segments_go(quick_directory: Path) -> None:
    config = LogConfig(segment_entries=5, retention_bytes=20_000)
    with ExitStack() as stack:
        store = stack.enter_context(
            timestone.open(
                quick_directory / "data",
                ack="written",
                tail_bytes=0,
                min_free_bytes=0,
                delete_delay_ms=1,
                open_segment_count=2,
            )
        )
        log = store.log("a", config=config)
        log.append(b"0")
        stop, found = threading.Event(), list[str]()
        views = [stack.enter_context(timestone.view(quick_directory / "data")) for _ in range(2)]
        logs = (log, *(view.log("a") for view in views))
        threads = [threading.Thread(target=read_on, args=(one, stop, found)) for one in logs]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while log.start_offset < 400 and time.monotonic() < deadline and not found:
            log.append(b"%d" % log.end_offset)
            if log.end_offset % 97 == 0:
                report = inspect_store(quick_directory / "data")
                assert report.exit_code in (EXIT_CLEAN, EXIT_UNCLOSED), report
        stop.set()
        for thread in threads:
            thread.join()
        assert found == []
        assert log.start_offset >= 400


# Pins.


def pinned(place: Place, log: Log, offset: int, **limits: int) -> None:
    place.store.commit_readers({ReaderId("a", 0, "billing"): offset}, pin=Pin(**limits))


def test_pin_holds_what_its_reader_has_not_committed(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 12)
    place.seal(log)
    pinned(place, log, 5, max_bytes=1 << 30)
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 1
    assert bases(log) == [4, 8], "the segment that its offset lies in stays whole"
    place.store.commit_readers({ReaderId("a", 0, "audit"): 0})
    assert log.apply_retention() == 0
    pinned(place, log, 8, max_bytes=1 << 30)
    assert log.apply_retention() == 1
    log = place.killed()
    assert log.apply_retention() == 0, "another process knows the pin"
    place.store.forget_readers([ReaderId("a", 0, "billing")])
    assert log.apply_retention() == 1
    assert (log.start_offset, log.end_offset) == (12, 12)


def test_the_slowest_of_many_pins_counts(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 12)
    place.seal(log)
    place.store.commit_readers(
        {ReaderId("a", 0, "x"): 8, ReaderId("a", 0, "y"): 4}, pin=Pin(max_bytes=1 << 30)
    )
    place.store.commit_readers({ReaderId("a", 0, "z"): 0})
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 1
    assert bases(log) == [4, 8]


def test_forgotten_pin_holds_no_more_than_its_bytes(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 20, size=1000)
    place.seal(log)
    one = disk_bytes(log.history.segments[0])
    pinned(place, log, 1, max_bytes=2 * one)
    with caplog.at_level(logging.WARNING):
        assert log.apply_retention() == 2
    assert bases(log) == [8, 12, 16], "retention keeps the last, the pin two more"
    assert "reader 'billing' has read up to offset 1 and loses what is below 8" in caplog.text
    caplog.clear()
    assert log.apply_retention() == 0
    assert caplog.text == ""
    place.fill(log, 40, size=1000)
    place.seal(log)
    log.apply_retention()
    assert bases(log) == [48, 52, 56]
    (lag,) = log.lags()
    assert (lag.lag, lag.missed) == (12, 47)


def test_forgotten_pin_holds_nothing_older_than_its_age(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.clock.advance(5 * HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    pinned(place, log, 0, max_age_ms=6 * HOUR_MS)
    place.clock.advance(30 * MINUTE_MS)
    assert log.apply_retention() == 0
    place.clock.advance(31 * MINUTE_MS)
    assert log.apply_retention() == 1
    place.clock.advance(5 * HOUR_MS)
    assert log.apply_retention() == 1


def test_nothing_goes_while_pins_cannot_be_read(place: Place) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    place.seal(log)
    place.store.documents.put_many("readers", {"a-0/billing": b"no JSON"})
    place.clock.advance(2 * HOUR_MS)
    with pytest.raises(CorruptLog, match="a-0/billing"):
        log.apply_retention()
    assert bases(log) == [0]


def test_what_a_pin_holds_is_looked_at_again_because_its_reader_may_be_elsewhere(place: Place) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 12)
    pinned(place, log, 0, max_bytes=1 << 30)
    again_s = log.retention.run()
    assert again_s is not None
    assert 0 < again_s <= 60
    with timestone.view(place.path) as view:
        view.commit_readers({ReaderId("a", 0, "billing"): 12})
    assert log.retention.run() is None
    assert bases(log) == [8]
