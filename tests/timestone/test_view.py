"""Reading without owning the store: live, crashed or copied, without a lock and without a write."""

import errno
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.expiring_store import HOUR_MS, ExpiringStore, expiring_store
from tests.support.faulty_files import MUTATING, Fault, FaultyFiles
from tests.support.killed_store import kill_store
from tests.support.opened_files import opened_files
from tests.support.quick_directory import open_below
from tests.support.step_clock import NEXT_BOOT_ID, StepClock
from tests.support.waiting import wait_for_seals
from timestone import ReaderId
from timestone.config import LogConfig, StoreConfig
from timestone.errors import CorruptLog, NotAStore, OffsetOutOfRange, OffsetsLost, StoreClosed, UnknownLog
from timestone.log import Log
from timestone.repair.backup import back_up_store
from timestone.repair.inspection import EXIT_TORN, inspect_store
from timestone.store import Store
from timestone.view import StoreView


@pytest.fixture
def root(quick_directory: Path) -> Path:
    return quick_directory / "data"


@pytest.fixture
def log(root: Path) -> Iterator[Log]:
    with timestone.open(
        root, min_free_bytes=0, sync_interval_ms=10**9, log=LogConfig(segment_entries=5)
    ) as store:
        yield store.log("a")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ExpiringStore]:
    with expiring_store(tmp_path / "data") as place:
        yield place


def owner(log: Log) -> timestone.Store:
    assert isinstance(log._store, timestone.Store)
    return log._store


def numbers(log: Log | timestone.LogView, topics: str | None = None) -> list[int]:
    return [int(record.payload) for record in log.reader(topics=topics)]


def test_view_follows_a_live_owner(root: Path, log: Log) -> None:
    with timestone.view(root) as view:
        other = view.log("a")
        assert (other.start_offset, other.end_offset) == (0, 0)
        for number in range(23):
            log.append(b"%d" % number, topic="t", ack="written")
            assert other.refresh() == number + 1
            assert int(other.record(number).payload) == number
        assert numbers(other) == list(range(23))
        assert numbers(other, "t") == list(range(23))
        assert (other.id, other.epoch) == (log.id, log.epoch)


def test_view_repr_names_its_store(root: Path, log: Log) -> None:
    with timestone.view(root) as view:
        assert repr(view) == f"<StoreView {root}>"
    assert repr(view) == f"<StoreView {root}: closed>"


def test_view_sees_new_records_only_after_a_refresh(root: Path, log: Log) -> None:
    log.append(b"0")
    with timestone.view(root) as view:
        other = view.log("a")
        log.append(b"1")
        assert numbers(other) == [0]
        other.refresh()
        assert numbers(other) == [0, 1]


def test_synced_offset_never_runs_ahead_of_the_owner(root: Path) -> None:
    """In one segment, so that only this thread flushes: the sealer writes the flush into the file before it informs the
    owner, and a view that reads the file in between knows it a moment earlier."""
    with (
        timestone.open(root, min_free_bytes=0, sync_interval_ms=10**9) as store,
        timestone.view(root) as view,
    ):
        log = store.log("a")
        other = view.log("a")
        for number in range(20):
            log.append(b"x", ack="synced" if number % 3 == 0 else "written")
            other.refresh()
            assert other.synced_offset <= log.synced_offset
        assert other.synced_offset > 0


def test_topics_made_after_the_view_was_opened_are_known_to_its_filters(root: Path, log: Log) -> None:
    with timestone.view(root) as view:
        other = view.log("a")
        reader = other.reader(topics="new/+")
        log.append(b"7", topic="new/one", ack="written")
        other.refresh()
        assert [record.topic for record in reader] == ["new/one"]


def test_view_writes_nothing_and_takes_no_lock(root: Path, log: Log) -> None:
    log.append(b"0")
    files = FaultyFiles()
    with timestone.view(root, files=files) as view:
        assert numbers(view.log("a")) == [0]
        view.documents("anything")
    assert files.calls == []


def test_view_of_a_crashed_store_shows_what_was_written(root: Path) -> None:
    def run(pipe: int) -> None:
        log = timestone.open(root, min_free_bytes=0).log("a")
        for number in range(10):
            log.append(b"%d" % number, ack="written")
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(run)
    before = {path.name: path.stat().st_mtime_ns for path in (root / "a-0").iterdir()}
    with timestone.view(root) as view:
        assert numbers(view.log("a")) == list(range(10))
    assert {path.name: path.stat().st_mtime_ns for path in (root / "a-0").iterdir()} == before


def test_view_needs_no_catalogue(root: Path) -> None:
    with timestone.open(root, min_free_bytes=0) as store:
        store.log("a").append(b"0")
    (root / "catalog.db").unlink()
    (root / "LOCK").unlink()
    with timestone.view(root) as view:
        assert view.log_names() == [("a", 0)]
        assert numbers(view.log("a")) == [0]
        assert view.documents("space") == {}


def test_documents_of_a_live_store_can_be_read(root: Path) -> None:
    with timestone.open(root, min_free_bytes=0) as store, timestone.view(root) as view:
        store.documents.put_many("sessions", {"a": b"1", "b": b"2"})
        assert view.documents("sessions") == {"a": b"1", "b": b"2"}
        store.documents.put_many("sessions", {"a": None})
        assert view.documents("sessions") == {"b": b"2"}


def test_path_is_refused_when_it_is_not_a_store(quick_directory: Path) -> None:
    (quick_directory / "empty").mkdir()
    (quick_directory / "file").write_bytes(b"")
    for name in ("missing", "empty", "file"):
        with pytest.raises(NotAStore):
            timestone.view(quick_directory / name)


def test_unknown_log_names_the_known_ones(root: Path, log: Log) -> None:
    with timestone.view(root) as view:
        with pytest.raises(UnknownLog, match="a-0"):
            view.log("b")
        with pytest.raises(UnknownLog):
            view.log("a", 1)


def test_closed_view_gives_nothing(root: Path, log: Log) -> None:
    log.append(b"0", topic="t")
    view = timestone.view(root)
    other = view.log("a")
    reader, named = other.reader(), other.reader(name="n")
    batch = other.read(0)
    view.close()
    view.close()
    of_all = ReaderId("a", 0, "n")
    for call in (
        lambda: view.log("a"),
        lambda: view.log_names(),
        lambda: view.folders(),
        lambda: view.documents("space"),
        lambda: view.readers(),
        lambda: view.committed(of_all),
        lambda: view.commit_readers({of_all: 0}),
        lambda: view.forget_readers([of_all]),
        lambda: other.refresh(),
        lambda: other.read(0),
        lambda: other.record(0),
        lambda: other.reader(),
        lambda: other.offset_at(0),
        lambda: other.segment_bounds(),
        lambda: other.lags(),
        lambda: reader.read(),
        lambda: list(reader),
        lambda: named.commit(),
    ):
        with pytest.raises(StoreClosed):
            call()
    assert [(one.topic, one.payload) for one in batch] == [("t", b"0")]


def test_log_without_an_identity_is_corrupt(root: Path) -> None:
    (root / "a-0").mkdir(parents=True)
    with timestone.view(root) as view, pytest.raises(CorruptLog):
        view.log("a")


class LookedAtFiles(FaultyFiles):
    """Calls back in front of each operation that changes the disk."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def _enter(self, name: str, path: str) -> tuple[Fault | None, bool]:
        if name in MUTATING:
            self.look()
        return super()._enter(name, path)


def test_view_knows_a_log_only_after_its_owner_has_created_it(root: Path) -> None:
    """In the middle of it, the folder looks like that of a log which has lost all its files."""
    files, looks = LookedAtFiles(), []

    def look() -> None:
        with timestone.view(root) as view:
            looks.append(("new", 0) in view.log_names())
            if looks[-1]:
                assert view.log("new").end_offset == 0
            else:
                with pytest.raises(UnknownLog):
                    view.log("new")
        assert inspect_store(root).exit_code <= EXIT_TORN
        target = root.with_name("backup")
        back_up_store(root, target)
        timestone.open(target).close()
        shutil.rmtree(target)

    with Store(root, StoreConfig(min_free_bytes=0), files=files) as store:
        files.look = look
        log = store.log("new")
        del files.look
        with timestone.view(root) as view:
            assert view.log("new").id == log.id
    assert looks.count(False) > 2
    assert looks == sorted(looks)


@pytest.mark.parametrize("sealed_at_open", [0, 100], ids=["sealed later", "sealed at open"])
@pytest.mark.parametrize("known", [False, True], ids=["new view", "view from before"])
def test_view_ends_where_its_owner_does_after_a_power_loss_skipped_offsets(
    root: Path, sealed_at_open: int, known: bool
) -> None:
    """No file shows it before the next append; a reader may have committed there."""
    config = StoreConfig(min_free_bytes=0, sealed_at_open=sealed_at_open, sync_interval_ms=10**9)
    files = FaultyFiles()
    store = Store(root, config, files=files, clock=StepClock())
    store.log("a").append_many([b"0", b"1", b"2"], ack="written")
    kill_store(store, files)
    before = timestone.view(root)
    if known:
        assert before.log("a").end_offset == 3
    with Store(root, config, clock=StepClock(boot_id=NEXT_BOOT_ID)) as store:
        log = store.log("a")
        end = log.end_offset
        assert end > 3
        with before as view:
            assert view.log("a").end_offset == end
        with log.reader(name="billing") as reader:
            assert numbers(log) == [0, 1, 2]
            reader.seek(end)
            reader.commit()
        for _ in range(2):
            with timestone.view(root) as view:
                assert view.log("a").end_offset == end
                with view.log("a").reader(name="billing") as reader:
                    assert reader.offset == end
                    assert reader.caught_up
                assert numbers(view.log("a")) == [0, 1, 2]
                view.commit_readers({ReaderId("a", 0, "other"): end})
            (report,) = inspect_store(root).logs
            assert report.end_offset == end
            store.close()
    with Store(root, config, clock=StepClock(boot_id=NEXT_BOOT_ID)) as store, timestone.view(root) as view:
        assert store.log("a").append(b"3") == end
        assert view.log("a").record(end).payload == b"3"
        assert view.log("a").end_offset == end + 1


@pytest.mark.slow
def test_views_see_a_prefix_of_what_is_being_appended_and_never_a_torn_record(root: Path, log: Log) -> None:
    """Over rolls and seals: every look is a whole prefix, each longer than the last."""
    count = 1500
    wrong: list[str] = []

    def follow() -> None:
        with timestone.view(root) as view:
            other = view.log("a")
            seen = 0
            while seen < count:
                end = other.refresh()
                while seen < end:
                    batch = other.read(seen)
                    for record in batch:
                        if record.payload != b"%d" % record.offset * 20 or record.offset != seen:
                            wrong.append(f"{record.offset} at {seen}")
                        seen += 1

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(0, count, 3):
        log.append_many([b"%d" % one * 20 for one in range(number, number + 3)], ack="written")
    for thread in threads:
        thread.join()
    assert wrong == []


def filled(root: Path, count: int) -> None:
    """A closed log with a sealed segment for every 5 records."""
    with timestone.open(root, min_free_bytes=0, log=LogConfig(segment_entries=5)) as store:
        for number in range(count):
            store.log("a").append(b"%d" % number, ack="written")
        store.log("a").roll()


@pytest.mark.parametrize("count", [25, 200])
def test_view_opens_as_few_indexes_of_a_long_log_as_of_a_short_one(root: Path, count: int) -> None:
    """Each task of a Spark query opens one: looking at every segment made a query over n segments look n * n times."""
    filled(root, count)
    with timestone.view(root) as view:
        with opened_files(".index") as opened:
            other = view.log("a")
            assert (other.start_offset, other.end_offset, other.synced_offset) == (0, count, count)
            other.refresh()
        assert len(opened) <= 3, "who the log is, its newest segment and its oldest"
        with opened_files(".index") as opened:
            assert other.record(12).payload == b"12"
            assert other.segment_bounds(11, 14) == [(10, 15)]
            assert other.gap_at(12) is None
        assert set(opened) == {"00000000000000000010.index"}
        with opened_files(".index") as opened:
            assert other.offset_at(other.record(count - 7).timestamp_us) <= count - 7
        assert len(set(opened)) <= 10
        assert other.segment_bounds() == [(base, base + 5) for base in range(0, count, 5)]
        assert numbers(other) == list(range(count))


def test_foreign_file_with_the_name_of_a_segment_is_ignored(root: Path, tmp_path: Path) -> None:
    """In the middle of the log, where names are believed until a segment is read, and at both ends of it."""
    filled(root, 25)
    filled(tmp_path / "other", 30)
    foreign = tmp_path / "other" / "a-0"
    for base, name in ((5, 5), (5, 12), (0, 0), (25, 25)):
        for suffix in ("index", "segment"):
            shutil.copy(foreign / f"{base:020d}.{suffix}", root / "a-0" / f"{name:020d}.{suffix}")
    with timestone.view(root) as view:
        other = view.log("a")
        assert (other.start_offset, other.end_offset) == (0, 25)
        assert other.lost_offsets(0, 25) == [(0, 10)]
        found = [int(record.payload) for record in other.reader(10)]
        assert found == list(range(10, 25)), "12 lies inside a segment that is the log's"
        assert other.segment_bounds() == [(10, 15), (15, 20), (20, 25)]


def test_segment_removed_after_the_listing_is_skipped(root: Path) -> None:
    filled(root, 25)
    with timestone.view(root) as view:
        other = view.log("a")
        for suffix in ("index", "segment"):
            (root / "a-0" / f"{10:020d}.{suffix}").unlink()
        assert other.segment_bounds() == [(0, 5), (5, 10), (15, 20), (20, 25)]
        assert other.gap_at(12) == (10, 15)


def test_missing_segment_file_is_reported_by_name(root: Path) -> None:
    filled(root, 25)
    (root / "a-0" / f"{10:020d}.segment").unlink()
    with timestone.view(root) as view:
        other = view.log("a")
        with pytest.raises(
            OffsetsLost, match=f"10 to 14 are lost: {10:020d}.segment: the segment file is missing"
        ):
            other.read(10)
        assert other.record(9).payload == b"9"


@pytest.mark.parametrize("rewritten", [{"compression": "zstd"}, {"compact": True}], ids=str)
def test_rewritten_segment_with_a_damaged_trailer_is_read(root: Path, rewritten: dict[str, Any]) -> None:
    """Only the trailer names the file with its records; the owner repairs it when it opens the store again."""
    settings: Any = {"min_free_bytes": 0, "compact_bytes_per_s": 1, "delete_delay_ms": 0}
    config = LogConfig(segment_entries=5, **rewritten)
    with timestone.open(root, ack="written", **settings) as store:
        log = store.log("a", config=config)
        for number in range(20):
            log.append(b"%d" % number * 20, topic=f"t/{max(number, 3)}")
        log.roll()
        wait_for_seals(log)
        log.apply_compaction()
        log.apply_compression()
        expected = [record.offset for record in log.reader("earliest")]
        store.deleted_files.unlink_all()
    for index in (root / "a-0").glob("*.index"):
        content = bytearray(index.read_bytes())
        content[-60] ^= 1
        index.write_bytes(content)
    with timestone.view(root) as view:
        other = view.log("a")
        for _ in range(2):
            for topics in (None, "t/+"):
                assert [record.offset for record in other.reader("earliest", topics=topics)] == expected
            assert other.record(expected[-1]).payload == b"19" * 20
            other.refresh()
    with timestone.open(root, **settings) as store:
        assert [record.offset for record in store.log("a").reader("earliest")] == expected


def test_epoch_is_that_of_the_newest_segment_whose_header_holds(root: Path) -> None:
    files = FaultyFiles()
    with timestone.open(root, min_free_bytes=0, files=files, log=LogConfig(segment_entries=5)) as store:
        log = store.log("a")
        log.append(b"0")
        files.fail("fdatasync", errno.EIO, path=".segment")
        log.append_many(
            [b"%d" % number for number in range(1, 5)]
        )  # written again into a segment of a new epoch
        log.append_many([b"%d" % number for number in range(5, 15)])
        assert log.epoch == 1
    newest = max((root / "a-0").glob("*.index"))
    page = bytearray(newest.read_bytes())
    page[20] ^= 1
    newest.write_bytes(page)
    with timestone.view(root) as view:
        other = view.log("a")
        assert (other.epoch, other.end_offset) == (1, 15)


def test_deleted_log_is_unknown_and_a_new_one_of_its_name_is_distinct(root: Path, log: Log) -> None:
    log.append_many([b"0", b"1"], topic="t")
    with timestone.view(root) as view:
        old = view.log("a")
        store = owner(log)
        store.delete_log("a")
        for look in (old.refresh, lambda: view.log("a")):
            with pytest.raises(UnknownLog, match="no log named 'a-0'"):
                look()
        store.log("a").append(b"7", topic="u")
        assert numbers(view.log("a"), "u") == [7]
        assert view.log("a").id == store.log("a").id


def test_reader_of_a_deleted_log_does_not_read_the_new_one(root: Path, log: Log) -> None:
    log.append(b"0")
    with timestone.view(root) as view:
        old = view.log("a")
        owner(log).delete_log("a")
        owner(log).log("a").append(b"1")
        with pytest.raises(UnknownLog, match=f"a-0 with the id {log.id:016x}"):
            old.refresh()


def test_view_continues_when_the_topic_dictionary_is_lost(root: Path, log: Log) -> None:
    log.append(b"0", topic="t")
    with timestone.view(root) as view:
        other = view.log("a")
        (root / "a-0" / "topics").unlink()
        log.append(b"1", topic="t")
        other.refresh()
        assert numbers(other, "t") == [0, 1]


def test_view_of_a_log_that_cannot_be_read_keeps_no_file_open(root: Path, log: Log) -> None:
    log.append(b"0")
    files = FaultyFiles()
    with timestone.view(root, files=files) as view:
        before = open_below(root)  # those of the owner
        files.fail("open", errno.EMFILE, nth=2, path=".index")  # the first is for the identity
        with pytest.raises(OSError, match="Too many open files"):
            view.log("a")
        assert open_below(root) == before
        assert numbers(view.log("a")) == [0]


def test_view_follows_deletions(place: ExpiringStore) -> None:
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


def test_view_looks_at_what_there_is_when_retention_has_passed_the_end_that_it_knew(
    place: ExpiringStore,
) -> None:
    log = place.log(retention_bytes=1)
    place.fill(log, 9)
    with timestone.view(place.path) as view:
        other = view.log("a")
        assert other.end_offset == 9
        place.fill(log, 9)
        log.apply_retention()
        place.store.deleted_files.unlink_all()
        assert log.start_offset > 9
        assert [(base, end) for base, end, _ in other.segment_sizes()] == log.segment_bounds()


def test_view_searches_by_time_and_topic_while_segments_vanish(place: ExpiringStore) -> None:
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


def test_view_of_an_emptied_log_has_its_end_offset(place: ExpiringStore) -> None:
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


def test_view_names_a_file_that_is_really_missing(place: ExpiringStore) -> None:
    log = place.log()
    place.fill(log, 9)
    with timestone.view(place.path) as view:
        other = view.log("a")
        (log.folder / f"{4:020d}.segment").unlink()
        with pytest.raises(OffsetsLost, match=r"00000004\.segment: the segment file is missing"):
            other.read(4)
        assert other.offset_at(log.record(5).timestamp_us) == 4, "it may be among those that are lost"
        assert other.offset_at(log.record(3).timestamp_us) == 3


def ask(view: StoreView, together: threading.Barrier, found: list[timestone.LogView]) -> None:
    together.wait(60)
    found.append(view.log("a"))


@pytest.mark.slow
def test_concurrent_requests_for_a_log_get_the_same_view(root: Path, log: Log) -> None:
    log.append(b"0")
    kept = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            together, found = threading.Barrier(4), list[timestone.LogView]()
            with timestone.view(root) as view:
                threads = [threading.Thread(target=ask, args=(view, together, found)) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert [one is found[0] for one in found] == [True] * 4
    finally:
        sys.setswitchinterval(kept)
