"""The one thread that writes for those who do not wait: it outlives every mistake, and sleeps when there is nothing."""

import threading
import time
from pathlib import Path

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from timestone.config import Ack
from timestone.draft import Draft
from timestone.log import Log
from timestone.store import Store


def committer_of(store: Store) -> threading.Thread:
    return store.committer._thread


def wait_for(log: Log, offset: int) -> None:
    deadline = time.monotonic() + 10
    while log.synced_offset < offset:
        assert time.monotonic() < deadline
        threading.Event().wait(0.001)


def test_written_records_are_synced_after_the_interval_without_anybody_asking(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=20) as store:
        log = store.log("a")
        log.append(b"x", ack="written")
        wait_for(log, 1)
        log.submit(Draft([b"x"]), ack=Ack.MEMORY)
        wait_for(log, 2)


def test_written_records_are_synced_at_once_when_many_bytes_have_gathered(quick_directory: Path) -> None:
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, sync_interval_ms=10**9, sync_interval_bytes=1000
    ) as store:
        log = store.log("a")
        log.append(b"x" * 900, ack="written")
        assert log.synced_offset == 0
        log.append(b"x" * 900, ack="written")
        wait_for(log, 2)


def test_error_in_one_log_leaves_the_others_served(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever escapes from a log, even our own mistake, must not end the thread that all logs wait for."""
    with timestone.open(quick_directory / "data", min_free_bytes=0) as store:
        broken, whole = store.log("broken"), store.log("whole")
        original = Log.write_queued

        def write_queued(log: Log) -> None:
            if log is broken:
                raise RuntimeError("a mistake of ours")
            original(log)

        with monkeypatch.context() as patch:
            patch.setattr(Log, "write_queued", write_queued)
            broken.submit(Draft([b"x"]), ack=Ack.WRITTEN)
            assert whole.submit(Draft([b"y"]), ack=Ack.SYNCED).wait(10) == range(1)
        assert committer_of(store).is_alive()
        broken.sync()


def test_it_ends_with_its_store(quick_directory: Path) -> None:
    store = timestone.open(quick_directory / "data", min_free_bytes=0)
    thread = committer_of(store)
    submission = store.log("a").submit(Draft([b"x"]), ack=Ack.SYNCED)
    store.close()
    assert not thread.is_alive()
    assert submission.wait(0) == range(1)


def test_idle_store_makes_no_system_call_on_its_files(quick_directory: Path) -> None:
    files = FaultyFiles()
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=1, files=files) as store:
        log = store.log("a")
        log.append(b"x", ack="written")
        wait_for(log, 1)
        log.append(b"x", ack="synced")
        before = len(files.calls)
        threading.Event().wait(0.05)  # fifty intervals; nothing is waited for here, something is ruled out
        assert len(files.calls) == before
