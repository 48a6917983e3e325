"""The thread that writes for callers that do not wait: it survives errors and sleeps when there is no work."""

import threading
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for
from timestone.commit.commit_delay import SMALL_BYTES, CommitDelay
from timestone.commit.log_commit import LogCommit
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.disk.files import Files
from timestone.log import Log
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch


def committer_of(store: Store) -> threading.Thread:
    return store.committer._thread


def wait_until_synced(log: Log, offset: int) -> None:
    wait_for(lambda: log.synced_offset >= offset)


def test_written_records_are_synced_after_the_interval_without_a_call(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=20) as store:
        log = store.log("a")
        log.append(b"x", ack="written")
        wait_until_synced(log, 1)
        log.submit(WriteBatch([b"x"]), ack=Ack.MEMORY)
        wait_until_synced(log, 2)


def test_interval_beyond_the_largest_time_means_never(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=10**18) as store:
        log = store.log("a")
        log.append(b"x", ack="written")
        assert log.submit(WriteBatch([b"x"]), ack=Ack.SYNCED).wait(float("inf")) == range(1, 2)
        assert committer_of(store).is_alive()


def test_written_records_are_synced_at_once_when_many_bytes_wait(quick_directory: Path) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, sync_interval_ms=10**9, sync_interval_bytes=1000
    ) as store:
        log = store.log("a")
        log.append(b"x" * 900, ack="written")
        assert log.synced_offset == 0
        log.append(b"x" * 900, ack="written")
        wait_until_synced(log, 2)


class Patient(CommitDelay):
    """Waits for as long as it takes, so that a test need not be quick."""

    @property
    def patience_s(self) -> float:
        return 20.0


class CountedFlushes(Files):
    """Flushes wait until they are let through, and are counted."""

    def __init__(self) -> None:
        self.let_through = threading.Event()
        self.begun = threading.Event()
        self.count = 0

    def fdatasync_both(self, one: int, other: int) -> None:
        self.begun.set()
        self.let_through.wait(20)
        self.count += 1
        super().fdatasync_both(one, other)


def test_flush_waits_for_half_of_the_writers_that_take_turns(quick_directory: Path) -> None:
    files = CountedFlushes()
    with timestone.open(quick_directory / "data", min_free_bytes=0, files=files) as store:
        log = store.log("a")
        log._commit.delay = Patient()

        def submit() -> Submission:
            return log.submit(WriteBatch([bytes(SMALL_BYTES)]), ack=Ack.SYNCED)

        first = submit()
        assert files.begun.wait(10)
        # Seven come while the first is flushed, so eight go round; then seven, which half of them are four of.
        others = [submit() for _ in range(7)]
        files.let_through.set()
        for submission in (first, *others):
            submission.wait(10)
        assert files.count == 2
        for submission in [submit() for _ in range(4)]:
            submission.wait(10)
        assert files.count == 3


def test_delayed_flush_begins_at_once_when_another_log_needs_one(quick_directory: Path) -> None:
    files = CountedFlushes()
    files.let_through.set()
    with timestone.open(quick_directory / "data", min_free_bytes=0, files=files) as store:
        waiting, other = store.log("waiting"), store.log("other")
        waiting._commit.delay = Patient()
        waiting._commit.delay.written(100 * SMALL_BYTES)
        waiting._commit.delay.answered(1, 100 * SMALL_BYTES, 0)
        alone = waiting.submit(WriteBatch([b"x"]), ack=Ack.SYNCED)
        assert other.submit(WriteBatch([b"y"]), ack=Ack.SYNCED).wait(10) == range(1)
        assert alone.wait(10) == range(1)


def test_committer_serves_other_logs_when_one_raises(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No exception from a log, even an unexpected one, may end the thread that all logs depend on."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        broken, whole = store.log("broken"), store.log("whole")
        original = LogCommit.write_queued

        def write_queued(log: LogCommit) -> None:
            if log is broken._commit:
                raise RuntimeError("a mistake of ours")
            original(log)

        with monkeypatch.context() as patch:
            patch.setattr(LogCommit, "write_queued", write_queued)
            broken.submit(WriteBatch([b"x"]), ack=Ack.WRITTEN)
            assert whole.submit(WriteBatch([b"y"]), ack=Ack.SYNCED).wait(10) == range(1)
        assert committer_of(store).is_alive()
        broken.sync()


def test_committer_thread_ends_when_the_store_is_closed(quick_directory: Path) -> None:
    store = timestone.open(quick_directory / "data", min_free_bytes=0)
    thread = committer_of(store)
    submission = store.log("a").submit(WriteBatch([b"x"]), ack=Ack.SYNCED)
    store.close()
    assert not thread.is_alive()
    assert submission.wait(0) == range(1)


def test_idle_store_makes_no_system_call_on_its_files(quick_directory: Path) -> None:
    files = FaultyFiles()
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=1, files=files) as store:
        log = store.log("a")
        log.append(b"x", ack="written")
        wait_until_synced(log, 1)
        log.append(b"x", ack="synced")
        before = len(files.calls)
        threading.Event().wait(0.05)  # fifty intervals; nothing is waited for here, something is ruled out
        assert len(files.calls) == before
