"""Flushes that no caller waits for: writing continues during them, within a bound."""

import logging
import threading
from pathlib import Path

import pytest

import timestone
from tests.support.waiting import TIMEOUT_S, wait_for
from timestone.commit.log_commit import LogCommit
from timestone.config import Ack
from timestone.disk.files import Files
from timestone.kernel import loops
from timestone.writing.write_batch import WriteBatch


class HeldFiles(Files):
    """A disk whose flushes take as long as the test wants."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.free.set()
        self.waiting = threading.Event()

    def fdatasync(self, fd: int) -> None:
        if not self.free.is_set():
            self.waiting.set()
            assert self.free.wait(TIMEOUT_S)
        super().fdatasync(fd)


def opened(directory: Path, files: Files) -> timestone.Store:
    """Open a store that flushes in the background as soon as a thousand bytes are written."""
    return timestone.open(
        directory / "data", min_free_bytes=0, sync_interval_ms=10**9, sync_interval_bytes=1000, files=files
    )


def test_writes_continue_during_a_flush_that_no_caller_waits_for(quick_directory: Path) -> None:
    files = HeldFiles()
    with opened(quick_directory, files) as store:
        log = store.log("a")
        log.append(b"x")
        files.free.clear()
        log.submit(WriteBatch([b"x" * 1000]), ack=Ack.WRITTEN)
        assert files.waiting.wait(10)
        assert log.submit(WriteBatch([b"y"]), ack=Ack.WRITTEN).wait(10) == range(2, 3)
        # So much that another flush is wanted: also what comes behind that is written.
        log.submit(WriteBatch([b"y" * 1000]), ack=Ack.WRITTEN).wait(10)
        assert log.submit(WriteBatch([b"y"]), ack=Ack.WRITTEN).wait(10) == range(4, 5)
        assert log.synced_offset == 1
        files.free.set()
        wait_for(lambda: log.synced_offset == 5)


def test_writes_wait_when_too_many_bytes_are_not_durable(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = HeldFiles()
    with opened(quick_directory, files) as store:
        log = store.log("a")
        log.append(b"x")
        files.free.clear()
        log.submit(WriteBatch([b"x" * 1000]), ack=Ack.WRITTEN).wait(10)
        assert files.waiting.wait(10)
        flushing, sync_queued = threading.Event(), log._commit.sync_queued

        def sync_and_tell() -> None:
            flushing.set()
            sync_queued()

        monkeypatch.setattr(log._commit, "sync_queued", sync_and_tell)
        log.submit(WriteBatch([b"x" * 2000]), ack=Ack.WRITTEN).wait(10)
        # Twice as much again is written: the committer now waits for the flush, and what comes stays in the queue.
        assert flushing.wait(TIMEOUT_S)
        waiting = log.submit(WriteBatch([b"x"]), ack=Ack.WRITTEN)
        threading.Event().wait(0.02)
        assert not waiting.resolved
        files.free.set()
        assert waiting.wait(TIMEOUT_S) == range(3, 4)


def test_records_written_during_a_flush_are_flushed_after_the_interval(quick_directory: Path) -> None:
    files = HeldFiles()
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=5, files=files) as store:
        log = store.log("a")
        log.append(b"x", ack="synced")
        files.free.clear()
        log.append(b"x", ack="written")
        assert files.waiting.wait(10)
        log.append(b"x", ack="written")
        threading.Event().wait(0.02)  # its interval ends while the first flush is still under way
        files.free.set()
        wait_for(lambda: log.synced_offset == 3)


def test_background_flush_continues_for_other_logs_when_one_raises(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=1) as store:
        broken, whole = store.log("broken"), store.log("whole")
        original = LogCommit.sync_queued
        broken_calls = threading.Event()

        def sync_queued(log: LogCommit) -> None:
            if log is broken._commit:
                broken_calls.set()
                raise RuntimeError("a mistake of ours")
            original(log)

        with monkeypatch.context() as patch, caplog.at_level(logging.CRITICAL, "timestone"):
            patch.setattr(LogCommit, "sync_queued", sync_queued)
            broken.append(b"x", ack="written")
            assert broken_calls.wait(10)
            whole.append(b"x", ack="written")
            wait_for(lambda: whole.synced_offset == 1)
        wait_for(lambda: broken.synced_offset == 1)


def test_log_releases_batch_memory_when_it_falls_silent(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []
    drop_spare = loops.drop_spare
    monkeypatch.setattr(loops, "drop_spare", lambda: dropped.append(drop_spare()))
    files = HeldFiles()
    with timestone.open(
        quick_directory / "data", min_free_bytes=0, sync_interval_ms=1, tail_bytes=1, files=files
    ) as store:
        log = store.log("a")
        log.append(b"x", ack=Ack.SYNCED)
        files.free.clear()  # until the appending thread has released the batch
        log.append_many([b"x" * 100] * 1000, ack=Ack.WRITTEN)
        files.free.set()
        wait_for(lambda: bool(dropped))
        assert drop_spare() == 0
        assert loops.REASON or sum(dropped) >= 100_000
