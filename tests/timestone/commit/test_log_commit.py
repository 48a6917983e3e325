"""Waiting for writes and flushes of one log; tests/timestone/test_log.py tests the log as a whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import timestone
from tests.support.kernels import compiled_only
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


@compiled_only
def test_append_inline_is_refused_while_a_large_flush_runs(commit: LogCommit) -> None:
    commit.append(WriteBatch([bytes(1 << 20)]), Ack.SYNCED)
    with commit.sync_lock:
        assert commit.append_inline(WriteBatch([b"x"]), None) is None
    assert commit.append_inline(WriteBatch([b"x"]), None) == 2
    commit.sync()
    with commit.sync_lock:
        assert commit.append_inline(WriteBatch([b"x"]), None) == 3, "a write does not wait for a small flush"


@compiled_only
def test_list_of_payloads_is_appended_by_the_kernel_once_all_is_prepared(log: Log, commit: LogCommit) -> None:
    assert commit.append_gathered([b"x"], "t", Ack.WRITTEN) is None, "the topic is new"
    assert log.append_many([b"a", b"b"], topic="t", ack="written") == range(1, 3)
    assert commit.append_gathered([b"c", b"d" * 1000], "t", "written") == 3
    assert commit.append_gathered([b"e"], None, Ack.WRITTEN) == 5
    found = [(record.topic, record.payload) for record in log.read(1)]
    assert found == [("t", b"a"), ("t", b"b"), ("t", b"c"), ("t", b"d" * 1000), (None, b"e")]
    for payloads in ([], [bytearray(b"x")], (b"x",), b"xyz", [bytes(log.config.record_bytes + 1)]):
        assert commit.append_gathered(payloads, "t", Ack.WRITTEN) is None
    assert commit.append_gathered([b"x"], "t", Ack.SYNCED) is None
    assert log.end_offset == 6


@compiled_only
def test_single_record_is_appended_by_the_kernel_once_all_is_prepared(log: Log, commit: LogCommit) -> None:
    assert commit.append_single(b"x", "t", (), 0, Ack.WRITTEN) is None, "the topic is new"
    assert log.append(b"x", topic="t", ack="written") == 1
    assert commit.append_single(b"y", "t", (), 0, "written") == 2
    assert commit.append_single(b"z", None, (), 0, Ack.WRITTEN) == 3
    assert commit.is_sync_expected
    found = [(record.offset, record.topic, record.payload) for record in log.read(1)]
    assert found == [(1, "t", b"x"), (2, "t", b"y"), (3, None, b"z")]


@compiled_only
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((bytearray(b"x"), None, (), 0, Ack.WRITTEN), id="payload to copy"),
        pytest.param((b"x", None, [("a", b"b")], 0, Ack.WRITTEN), id="headers"),
        pytest.param((b"x", None, (), 1, Ack.WRITTEN), id="flags"),
        pytest.param((b"x", "new", (), 0, Ack.WRITTEN), id="new topic"),
        pytest.param((b"x", 7, (), 0, Ack.WRITTEN), id="topic of another type"),
        pytest.param((b"x", None, (), 0, Ack.SYNCED), id="synced"),
        pytest.param((b"x", None, (), 0, None), id="synced by default"),
        pytest.param((b"x", None, (), 0, "memory"), id="memory"),
        pytest.param((bytes(2 << 20), None, (), 0, Ack.WRITTEN), id="too large"),
    ],
)
def test_single_record_is_left_to_the_general_path_when_it_needs_more(
    log: Log, commit: LogCommit, arguments: tuple[Any, ...]
) -> None:
    assert commit.append_single(*arguments) is None
    assert log.end_offset == 1


@compiled_only
def test_single_record_is_left_to_the_general_path_when_submissions_precede_it(
    log: Log, commit: LogCommit
) -> None:
    with commit.sync_lock, commit._end.lock:
        waiting = commit.submit(WriteBatch([b"x"]), Ack.WRITTEN, None)
    assert log.append(b"y", ack="written") == 2
    assert waiting.wait(10) == range(1, 2)


@compiled_only
def test_single_record_is_left_to_the_general_path_when_the_disk_is_behind(quick_directory: Path) -> None:
    with timestone.open(quick_directory / "data", min_free_bytes=0, queue_bytes=4096, ack="written") as store:
        log = store.log("a")
        with log._commit.sync_lock:
            offsets = [log.append(bytes(1000)) for _ in range(4)]
            assert log._commit.append_single(bytes(1000), None, (), 0, None) is None
        assert offsets == [0, 1, 2, 3]


@compiled_only
def test_single_record_is_refused_when_the_log_is_closed(log: Log, commit: LogCommit) -> None:
    log.close()
    assert commit.append_single(b"x", None, (), 0, Ack.WRITTEN) is None
    with pytest.raises(StoreClosed):
        log.append(b"x", ack="written")


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
