"""Reading without owning: live, crashed or copied, without a lock and without a write."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from tests.support.child_process import in_child
from tests.support.faulty_files import FaultyFiles
from timestone.config import LogConfig
from timestone.errors import CorruptLog, NotAStore, StoreClosed, UnknownLog
from timestone.log import Log


@pytest.fixture
def root(quick_directory: Path) -> Path:
    return quick_directory / "data"


@pytest.fixture
def log(root: Path) -> Iterator[Log]:
    with timestone.open(
        root, min_free_bytes=0, sync_interval_ms=10**9, log=LogConfig(segment_entries=5)
    ) as store:
        yield store.log("a")


def numbers(log: timestone.LogView, topics: str | None = None) -> list[int]:
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


def test_view_sees_nothing_new_until_it_looks_again(root: Path, log: Log) -> None:
    log.append(b"0")
    with timestone.view(root) as view:
        other = view.log("a")
        log.append(b"1")
        assert numbers(other) == [0]
        other.refresh()
        assert numbers(other) == [0, 1]


def test_synced_offset_never_runs_ahead_of_the_owner(root: Path) -> None:
    """In one segment, so that only this thread flushes: the sealer notes a flush in the file before it tells the owner,
    and a view that looks in between knows it a moment earlier."""
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


def test_what_is_no_store_is_refused(quick_directory: Path) -> None:
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
    view = timestone.view(root)
    other = view.log("a")
    view.close()
    with pytest.raises(StoreClosed):
        view.log("a")
    with pytest.raises(StoreClosed):
        other.refresh()


def test_log_without_anything_that_names_it_is_corrupt(root: Path) -> None:
    (root / "a-0").mkdir(parents=True)
    with timestone.view(root) as view, pytest.raises(CorruptLog):
        view.log("a")


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
