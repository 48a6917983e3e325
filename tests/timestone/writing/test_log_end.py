"""The end of a log without waiting callers: what it writes, and when it refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import timestone
from timestone.errors import LogFailed, StorageFull, StoreClosed
from timestone.kernel import loops
from timestone.log import Log
from timestone.writing.log_end import LogEnd
from timestone.writing.write_batch import WriteBatch


@pytest.fixture
def log(quick_directory: Path) -> Iterator[Log]:
    with timestone.open(quick_directory / "data", min_free_bytes=0, sync_interval_ms=10**9) as store:
        log = store.log("a")
        log.append(b"first")
        yield log


@pytest.fixture
def end(log: Log) -> LogEnd:
    return log._end


def test_written_records_are_published(log: Log, end: LogEnd) -> None:
    with end.lock:
        assert end.write_locked(WriteBatch([b"second", b"third"])) == 1
    assert end.end_offset == log.end_offset == 3
    assert log.record(2).payload == b"third"


def test_empty_batch_gets_the_end_offset_and_writes_nothing(end: LogEnd) -> None:
    with end.lock:
        assert end.write_locked(WriteBatch([])) == 1
        assert end.write_prepared_locked(WriteBatch([])) == (None if loops.REASON else 1)


def test_write_is_refused_before_it_begins_when_space_is_short(
    quick_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with timestone.open(quick_directory / "full", min_free_bytes=1 << 20) as store:
        log = store.log("a")
        log.append(b"x")
        monkeypatch.setattr(store.files, "free_bytes", lambda path: 1 << 20)
        with log._end.lock, pytest.raises(StorageFull, match="1048576"):
            log._end.write_locked(WriteBatch([b"x" * (1 << 20)]))
        assert log.end_offset == 1


def test_closed_log_end_refuses_writes(end: LogEnd) -> None:
    with end.lock:
        end.close_locked(StoreClosed("log a-0 is closed"))
        assert end.write_prepared_locked(WriteBatch([b"x"])) is None
        with pytest.raises(StoreClosed, match="log a-0 is closed"):
            end.write_locked(WriteBatch([b"x"]))
    assert end.has_ended


def test_failed_log_end_refuses_writes(log: Log, end: LogEnd) -> None:
    with end.lock:
        assert isinstance(end.fail_locked(OSError("no such luck")), LogFailed)
        with pytest.raises(LogFailed, match="no such luck"):
            end.write_locked(WriteBatch([b"x"]))
    assert log.failure is end.failure
