"""Retention: which segments are deleted and kept, the errors of readers, and the effect of clock jumps."""

import errno
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import timestone
from tests.support.expiring_store import HOUR_MS, MINUTE_MS, ExpiringStore, bases, expiring_store
from tests.support.waiting import TIMEOUT_S, wait_for, wait_for_seals
from timestone import Log, LogConfig, OffsetOutOfRange
from timestone.repair.inspection import EXIT_CLEAN, EXIT_UNCLOSED, inspect_store
from timestone.upkeep.retention import CLOCK_KEY, SPACE, too_many

DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExpiringStore]:
    with expiring_store(tmp_path / "data") as place:
        yield place


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
def test_remaining_size_is_at_least_the_limit(sizes: list[int], more: int, limit: int, count: int) -> None:
    assert too_many(sizes, more, limit) == count


def test_segments_are_never_deleted_without_limits(place: ExpiringStore) -> None:
    log = place.log()
    place.fill(log, 20)
    place.clock.advance(100 * YEAR_MS)
    assert log.apply_retention() == 0
    assert log.start_offset == 0


def test_segments_are_deleted_when_their_last_record_is_old_enough(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 4)
    assert log.apply_retention() == 0, "as the background does every ten minutes"
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


def test_newest_segments_that_reach_the_size_are_kept(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=40_000)
    place.fill(log, 40, size=2000)
    assert log.apply_retention() > 0
    place.store.close()
    kept = sum(path.stat().st_size for path in log.folder.iterdir() if path.suffix in (".index", ".segment"))
    largest = 4 * 2000 + 4 * 32 + 4096 + 128 + 12
    assert 40_000 <= kept < 40_000 + largest


def test_growing_segment_of_a_silent_log_is_sealed_and_deleted(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 2)
    log.apply_retention()
    place.clock.advance(HOUR_MS + 1)
    assert log.apply_retention() == 0
    wait_for(
        lambda: log.growing_base is None and all(segment.trailer for segment in log.segment_list.segments)
    )
    assert log.apply_retention() == 1
    assert (log.start_offset, log.end_offset, bases(log)) == (2, 2, [])
    assert log.append(b"next") == 2


def test_segment_grows_no_longer_than_the_retention(place: ExpiringStore) -> None:
    log = place.log(retention_ms=HOUR_MS, segment_entries=1000)
    for _ in range(10):
        log.append(b"x")
        place.clock.advance(20 * MINUTE_MS)
    place.seal(log)
    assert bases(log) == [0, 3, 6, 9], "the default age of a segment is a week"


def test_emptied_log_keeps_its_next_offset_over_restart_and_kill(place: ExpiringStore) -> None:
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


def test_older_catalogue_does_not_lower_the_start_offset(place: ExpiringStore) -> None:
    """The row of a log is written when the log is created, and not again while segments give a later offset."""
    log = place.log(retention_bytes=1)
    place.fill(log, 11)
    assert log.apply_retention() == 2
    assert place.store.documents.logs()["a", 0].next_offset == 0
    log = place.killed()
    assert (log.start_offset, log.end_offset) == (8, 11)


def test_last_segment_is_kept_while_the_catalogue_cannot_be_written(
    place: ExpiringStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def test_reader_with_open_files_keeps_them(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    segment = log.segment_list.segments[0]
    pair = segment.pair()
    assert log.apply_retention() == 2
    place.store.deleted_files.unlink_all()
    assert not segment.segment_path.exists()
    assert pair.read(0, 100) == bytes(100)
    assert len(segment.mapped_entries(pair, 0, 4)) == 4


def test_reader_behind_retention_gets_an_error_and_can_continue(place: ExpiringStore) -> None:
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


def test_deletion_between_the_range_check_and_the_read_raises(
    place: ExpiringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_bytes=1)
    for _ in range(9):
        log.append(bytes(1000), topic="t")
    wait_for_seals(log)
    monkeypatch.setattr(log, "_gathered", lambda offset, records, size: [])
    check = log._check

    def check_and_delete(offset: int, end: int) -> None:
        check(offset, end)
        log.apply_retention()

    for read in (lambda: log.read(0), lambda: log.reader(0, topics="#").read(), lambda: log.record(0)):
        with monkeypatch.context() as patch:
            patch.setattr(log, "_check", check_and_delete)
            with pytest.raises(OffsetOutOfRange, match=r"offset 0 is out of range: the log holds \[8, 9\)"):
                read()


def test_deletion_of_all_segments_during_a_read_raises(
    place: ExpiringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_ms=HOUR_MS)
    place.fill(log, 8)
    place.seal(log)
    place.clock.advance(2 * HOUR_MS)
    monkeypatch.setattr(log, "_gathered", lambda offset, records, size: [])
    check = log._check

    def check_and_delete(offset: int, end: int) -> None:
        check(offset, end)
        log.apply_retention()

    monkeypatch.setattr(log, "_check", check_and_delete)
    with pytest.raises(OffsetOutOfRange, match=r"the log holds \[8, 8\)"):
        log.read(2)


def test_search_by_time_continues_when_segments_are_deleted(
    place: ExpiringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    segment_list = log.segment_list
    log.apply_retention()
    stale = iter([segment_list])
    monkeypatch.setattr(
        type(log), "segment_list", property(lambda self: next(stale, self._active_segment.segment_list))
    )
    assert log.offset_at(1) == 8


def test_files_are_unlinked_after_the_delay_or_at_close(tmp_path: Path) -> None:
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


def test_background_deletes_by_age(tmp_path: Path) -> None:
    with timestone.open(tmp_path / "data", ack="written", min_free_bytes=0) as store:
        log = store.log("a", config=LogConfig(retention_ms=50))
        log.append(b"x")
        wait_for(lambda: log.start_offset == 1)
        log.append(b"y")
        wait_for(lambda: log.start_offset == 2)


def test_store_without_limits_and_scrubber_has_no_maintenance_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with timestone.open(tmp_path / "data", ack="written", min_free_bytes=0, scrub_bytes_per_s=0) as store:
        log = store.log("a", config=LogConfig(segment_entries=2))
        for _ in range(9):
            log.append(b"x")
        store.sealer.settle()
        ours = {thread.name for thread in set(threading.enumerate()) - before}
        assert ours and "timestone-maintenance" not in ours


def test_settings_can_be_changed_and_are_kept(place: ExpiringStore) -> None:
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


def test_failed_rename_keeps_the_segment_and_is_repeated(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 13)
    place.files.fail("rename", errno.EIO, path="00000004.index.deleted")
    with pytest.raises(OSError, match="Input/output"):
        log.apply_retention()
    assert (log.start_offset, bases(log)) == (4, [4, 8, 12])
    assert log.read(4)
    assert log.apply_retention() == 2
    assert log.start_offset == 12


def test_failed_second_rename_of_a_pair_is_finished_by_the_next_open(place: ExpiringStore) -> None:
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


def test_failed_directory_sync_is_reported_and_deleted_records_are_not_read(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    place.files.fail("sync_directory", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        log.apply_retention()
    assert log.start_offset == 8
    place.store.deleted_files.unlink_all()
    assert (log.folder / f"{4:020d}.index.deleted").exists(), "the proof, should the power fail now"


def test_failed_log_is_not_changed(place: ExpiringStore) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    place.files.fail("fdatasync", errno.EIO, forever=True)
    with pytest.raises(timestone.LogFailed):
        log.append(b"x", ack="synced")
    assert log.apply_retention() == 0
    assert log.start_offset == 0
    assert log.retention.run() is None, "not again at once, and again, and again"


# Clocks that jump: storage.md would call it test 20.


def test_retention_deletes_nothing_when_the_clock_is_far_ahead_for_a_while(place: ExpiringStore) -> None:
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


def test_retention_deletes_nothing_when_the_machine_boots_with_a_clock_far_ahead(
    place: ExpiringStore,
) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 9)
    place.clock.step(20 * YEAR_MS)
    log = place.reopen()
    assert log.apply_retention() == 0
    place.clock.advance(2 * HOUR_MS)
    assert log.apply_retention() == 0, "that it has lasted proves nothing"
    place.clock.advance(22 * HOUR_MS)
    assert log.apply_retention() == 3


@pytest.mark.parametrize("years", [-30, -1, 1, 10])
@pytest.mark.parametrize("starts", [1, 2, 5])
@pytest.mark.parametrize("reboots", [False, True])
def test_retention_deletes_nothing_young_when_earlier_starts_had_a_wrong_clock(
    place: ExpiringStore, years: int, starts: int, reboots: bool
) -> None:
    """Issue 21: 25 records of the right clock were gone, seconds old, after one start behind or two ahead."""
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 25)
    place.clock.step(years * YEAR_MS)
    for number in range(starts):
        log = place.rebooted(b"%016d" % number) if reboots else place.reopen()
        place.fill(log, 3)
        place.clock.advance(HOUR_MS)
        assert log.apply_retention() == 0
    place.clock.step(-years * YEAR_MS)
    log = place.reopen()
    place.clock.advance(HOUR_MS)
    assert log.apply_retention() == 0
    assert (log.start_offset, log.end_offset) == (0, 25 + 3 * starts)
    place.clock.advance((24 - 1 - starts) * HOUR_MS)
    log.apply_retention()
    assert log.start_offset == 25, "and on time"
    place.clock.advance(starts * HOUR_MS)
    log.apply_retention()
    assert log.start_offset == log.end_offset


@pytest.mark.parametrize("years", [-30, 10])
def test_retention_deletes_nothing_young_when_the_clock_is_set_while_it_runs(
    place: ExpiringStore, years: int
) -> None:
    """A board begins at the date of its image, appends, and is set by a time server."""
    log = place.log(retention_ms=DAY_MS)
    place.clock.step(-years * YEAR_MS)
    place.fill(log, 5)
    log = place.reopen()
    place.clock.step(years * YEAR_MS)
    place.fill(log, 4)
    for _ in range(23):
        place.clock.advance(HOUR_MS)
        assert log.apply_retention() == 0
    log = place.reopen()
    assert log.apply_retention() == 0
    place.clock.advance(HOUR_MS)
    assert log.apply_retention() == 2


def test_retention_counts_no_time_when_the_machine_was_off_and_says_so(
    place: ExpiringStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    place.clock.advance(12 * HOUR_MS)
    with caplog.at_level(logging.WARNING):
        place.reopen()
        assert caplog.text == "", "the same boot: half a day has passed"
        log = place.rebooted(b"another boot id!", off_ms=2 * DAY_MS)
    assert "the clock has moved by +48.0 hours more than has provably passed" in caplog.text
    assert log.apply_retention() == 0
    place.clock.advance(11 * HOUR_MS)
    assert log.apply_retention() == 0
    place.clock.advance(HOUR_MS)
    assert log.apply_retention() == 2


def test_retention_counts_what_has_passed_when_the_process_was_killed(place: ExpiringStore) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    log = place.killed()
    place.clock.advance(12 * HOUR_MS)
    log = place.killed()
    place.clock.advance(12 * HOUR_MS)
    log = place.killed()
    log.apply_retention()  # unless the background has been faster
    assert log.start_offset == 5


def test_time_is_stored_periodically_so_that_it_survives_a_power_loss(place: ExpiringStore) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    for number in range(24 * 7):
        place.clock.advance(10 * MINUTE_MS)
        log.apply_retention()
        if number % 6 == 5:
            place.clock.reboot(b"%016d" % number)
            log = place.killed()
    assert log.start_offset >= 4, "each power loss costs ten minutes at most"


def test_age_is_unknown_for_records_of_an_older_version(place: ExpiringStore) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    place.clock.advance(2 * DAY_MS)
    with place.closed_catalog() as catalog:
        older = {"a-0/0": b'{"seen_us": 5}'}
        catalog.put_many(SPACE, {**dict.fromkeys(catalog.items(SPACE)), **older})
    log = place.opened_again()
    assert log.apply_retention() == 0
    assert sorted(place.store.documents.items(SPACE)) == ["a-0", CLOCK_KEY]
    place.clock.advance(DAY_MS)
    assert log.apply_retention() == 2


@pytest.mark.parametrize(
    "document",
    [b"", b"\xff", b"{}", b"[]", b'{"timeline": 1}', b'{"timeline": "x", "marks": 5}'],
)
@pytest.mark.parametrize("key", ["a-0", CLOCK_KEY])
def test_retention_keeps_records_when_their_age_document_is_damaged(
    place: ExpiringStore, caplog: pytest.LogCaptureFixture, key: str, document: bytes
) -> None:
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    place.clock.advance(2 * DAY_MS)
    with place.closed_catalog() as catalog:
        catalog.put_many(SPACE, {key: document})
    with caplog.at_level(logging.WARNING):
        log = place.opened_again()
    assert "unknown" in caplog.text
    assert log.apply_retention() == 0
    place.clock.advance(DAY_MS)
    assert log.apply_retention() == 2


def test_marks_of_another_log_of_the_same_name_are_ignored(place: ExpiringStore) -> None:
    """A process that died while the log was deleted, or files that were brought back from a copy."""
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 9)
    place.clock.advance(DAY_MS)
    place.reopen()
    marks = place.store.documents.items(SPACE)["a-0"]
    place.store.delete_log("a")
    log = place.log(retention_ms=DAY_MS)
    place.fill(log, 5)
    with place.closed_catalog() as catalog:
        catalog.put_many(SPACE, {"a-0": marks})
    log = place.opened_again()
    assert log.apply_retention() == 0


def test_retention_deletes_in_a_program_that_runs_briefly_each_day(place: ExpiringStore) -> None:
    log = place.log(retention_ms=2 * DAY_MS)
    for _ in range(10):
        place.fill(log, 1)
        place.clock.advance(DAY_MS)
        log = place.reopen()
        log.apply_retention()
    assert log.start_offset >= 6


def test_retention_deletes_as_usual_when_the_clock_is_set_back(place: ExpiringStore) -> None:
    """Records written while the clock was twenty years ahead would not be old for twenty years."""
    log = place.log(retention_ms=DAY_MS)
    place.clock.step(20 * YEAR_MS)
    place.fill(log, 5)
    place.clock.step(-20 * YEAR_MS)
    place.fill(log, 4)
    place.seal(log)
    assert log.apply_retention() == 0
    place.clock.advance(DAY_MS // 2)
    log = place.reopen()
    place.clock.advance(DAY_MS // 2)
    assert log.apply_retention() == 3


def test_retention_deletes_nothing_young_when_the_clock_is_set_back(place: ExpiringStore) -> None:
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


def read_on(
    log: Log | timestone.LogView, begun: threading.Semaphore, stop: threading.Event, found: list[str]
) -> None:
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
                assert record.offset == offset, "a gap that was not announced"
                assert record.payload == b"%d" % record.offset
                offset += 1
            if not count and batch:
                begun.release()
            count += len(batch)
            if batch and count % 50 > 40:
                time.sleep(0.003)  # fall behind
    except BaseException as error:
        found.append(f"{type(log).__name__} {error!r}")


@pytest.mark.slow
def test_readers_of_any_process_see_no_gap_while_segments_are_deleted(quick_directory: Path) -> None:
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
        begun, stop, found = threading.Semaphore(0), threading.Event(), list[str]()
        views = [stack.enter_context(timestone.view(quick_directory / "data")) for _ in range(2)]
        logs = (log, *(view.log("a") for view in views))
        threads = [threading.Thread(target=read_on, args=(one, begun, stop, found)) for one in logs]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=TIMEOUT_S), found
        deadline = time.monotonic() + TIMEOUT_S
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
