"""Flushes that an event loop begins and ends, while others need the log."""

import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

import timestone
from tests.support.faulty_files import FaultyFiles
from tests.support.waiting import wait_for
from timestone.commit.log_commit import BackgroundFlush, LogCommit
from timestone.config import Ack
from timestone.disk.files import Files
from timestone.kernel import loops
from timestone.log import Log
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

if TYPE_CHECKING:
    from _typeshed import TraceFunction


class Disk(Files):
    """Flushes in the background fail when asked to."""

    fails = False

    def begin_flush(self, one: int, other: int, wake_fd: int) -> loops.Flush | None:
        if not self.fails:
            return super().begin_flush(one, other, wake_fd)
        pipe = os.pipe()
        try:
            flush = loops.Flush(pipe[0], other, wake_fd)
            flush.wait()
        finally:
            for fd in pipe:
                os.close(fd)
        return flush


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(quick_directory: Path, disk: Disk) -> Iterator[Store]:
    folder = quick_directory / "data"
    with timestone.open(folder, min_free_bytes=0, sync_interval_ms=10**9, files=disk) as store:
        store.log("a").append(b"first", ack="synced")
        yield store


@pytest.fixture
def log(store: Store) -> Log:
    return store.log("a")


@pytest.fixture
def wake_fd() -> Iterator[int]:
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


def begun(commit: LogCommit, wake_fd: int, payload: bytes = b"x") -> BackgroundFlush:
    commit.append(WriteBatch([payload]), Ack.WRITTEN)
    background = commit.begin_flush(wake_fd)
    assert background is not None
    return background


def test_records_are_durable_once_the_flush_has_ended(log: Log, wake_fd: int) -> None:
    background = begun(log._commit, wake_fd)
    assert log.append(b"during the flush", ack="written") == 2
    assert select.select([wake_fd], [], [], 20)[0]
    assert (background.has_ended, background.has_failed, log.synced_offset) == (True, False, 1)
    log._commit.end_flush(background)
    log._commit.end_flush(background)
    assert log.synced_offset == 2
    assert log.flush_s > 0


def test_flush_is_left_to_a_thread_when_more_is_to_be_done(log: Log, wake_fd: int) -> None:
    commit = log._commit
    assert commit.begin_flush(wake_fd) is None, "all is durable"
    log.append(b"x", topic="new", ack="written")
    assert commit.begin_flush(wake_fd) is None, "a topic name is not durable"
    log.sync()
    log.append(b"x", ack="written")
    with commit.sync_lock:
        assert commit.begin_flush(wake_fd) is None, "another flush runs"
    background = begun(commit, wake_fd)
    assert commit.begin_flush(wake_fd) is None
    commit.end_flush(background)
    for _ in range(30):
        log.append(bytes(100 << 10), ack="written")
        if (large := commit.begin_flush(wake_fd)) is None:
            break
        commit.end_flush(large)
    else:
        pytest.fail("blocks were not allocated first")
    log.sync()
    assert log.synced_offset == log.end_offset


def test_flush_is_left_to_a_thread_when_the_files_are_a_double(quick_directory: Path, wake_fd: int) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, files=FaultyFiles()) as store:
        log = store.log("a")
        log.append(b"x", ack="synced")
        log.append(b"y", ack="written")
        assert log._commit.begin_flush(wake_fd) is None
        log.sync()


@pytest.mark.parametrize("need", ["sync", "append", "pause", "close", "delete"])
def test_thread_that_begins_flushes_ends_one_that_is_in_its_way(
    need: str, store: Store, log: Log, wake_fd: int
) -> None:
    commit = log._commit
    background = begun(commit, wake_fd)
    match need:
        case "sync":
            log.sync()
        case "append":
            log.append(b"y", ack="synced")
        case "pause":
            with commit.paused():
                assert log.synced_offset == 2
        case "close":
            log.close()
        case "delete":
            background.flush.wait()
            store.delete_log("a")
    commit.end_flush(background)  # which the loop does once it is woken
    assert not commit.sync_lock.locked()
    if need in ("sync", "append", "pause"):
        assert log.synced_offset == log.end_offset


def test_other_threads_end_flushes_while_the_loop_begins_them(log: Log, wake_fd: int) -> None:
    commit = log._commit
    stops = threading.Event()

    def syncs() -> None:
        while not stops.is_set():
            log.append(b"other", ack="synced")
            time.sleep(0.0005)

    threads = [threading.Thread(target=syncs) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        count, ends_s = 0, time.monotonic() + 20
        while count < 100 and time.monotonic() < ends_s:
            log.append(b"loop", ack="written")
            if (background := commit.begin_flush(wake_fd)) is not None:
                count += 1
                commit.end_flush(background)
                assert log.synced_offset >= background.end_offset
    finally:
        stops.set()
        for thread in threads:
            thread.join(20)
    assert count == 100
    log.sync()
    assert log.synced_offset == log.end_offset


def test_lock_of_a_flush_that_another_thread_ends_is_released_once(log: Log, wake_fd: int) -> None:
    """Another thread ends it before the next line of the one that has begun it."""
    code, ended = LogCommit.begin_flush.__code__, list[BackgroundFlush]()

    def ends(frame: FrameType, event: str, _: object) -> "TraceFunction":
        background = log._commit._background
        if frame.f_code is code and background is not None and not log._end.lock.locked():
            ended.append(background)
            thread = threading.Thread(target=log._commit.end_flush, args=(background,))
            thread.start()
            thread.join(20)
        return ends

    sys.settrace(ends)
    try:
        background = begun(log._commit, wake_fd)
    finally:
        sys.settrace(None)
    assert ended == [background] and not log._commit.sync_lock.locked()
    log._commit.end_flush(background)
    assert log.synced_offset == log.end_offset == 2


def test_records_are_written_again_when_the_flush_fails(
    quick_directory: Path, disk: Disk, store: Store, log: Log, wake_fd: int
) -> None:
    disk.fails = True
    background = begun(log._commit, wake_fd)
    assert background.has_failed
    log._commit.end_flush(background)
    assert log.synced_offset == 2
    disk.fails = False
    assert log.append(b"later", ack="synced") == 2
    assert [record.payload for record in log] == [b"first", b"x", b"later"]
    wait_for(lambda: len(list(quick_directory.rglob("*.segment"))) == 2)
    store.close()
    with timestone.open(quick_directory / "data") as again:
        assert [record.payload for record in again.log("a")] == [b"first", b"x", b"later"]
