"""Waiting for writes and flushes of one log; tests/timestone/test_log.py tests the log as a whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from timestone.commit.log_commit import LogCommit
from timestone.config import Ack
from timestone.errors import StoreClosed
from timestone.log import Log
from timestone.writing.write_batch import WriteBatch


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=10**9) as store:
        log = store.log("a")
        log.append(b"first", ack="synced")
        yield log


@pytest.fixture
def commit(log: Log) -> LogCommit:
    return log._commit


def test_append_at_level_written_is_durable_after_sync(log: Log, commit: LogCommit) -> None:
    assert commit.append(WriteBatch([b"x"]), Ack.WRITTEN) == 1
    assert log.synced_offset == 1
    commit.sync()
    assert log.synced_offset == 2


def test_append_inline_is_refused_while_a_large_flush_runs(commit: LogCommit) -> None:
    commit.append(WriteBatch([bytes(1 << 20)]), Ack.SYNCED)
    with commit.sync_lock:
        assert commit.append_inline(WriteBatch([b"x"])) is None
    assert commit.append_inline(WriteBatch([b"x"])) == 2
    commit.sync()
    with commit.sync_lock:
        assert commit.append_inline(WriteBatch([b"x"])) == 3, "a write does not wait for a small flush"


def test_one_flush_resolves_all_submissions_written_before_it(commit: LogCommit) -> None:
    with commit.sync_lock:
        waiting = [commit.submit(WriteBatch([b"x"]), Ack.SYNCED, None) for _ in range(3)]
        commit.write_queued()
        assert commit.awaited and not any(one.resolved for one in waiting)
    commit.sync_to(4)
    assert [one.wait(10) for one in waiting] == [range(1, 2), range(2, 3), range(3, 4)]


def test_submissions_fail_with_the_error_of_the_log_when_it_is_closed(log: Log, commit: LogCommit) -> None:
    closed = StoreClosed("log a-0 is closed")
    commit.close(closed)
    with pytest.raises(StoreClosed, match="log a-0 is closed"):
        commit.submit(WriteBatch([b"x"]), Ack.SYNCED, None)
    assert log.has_ended
