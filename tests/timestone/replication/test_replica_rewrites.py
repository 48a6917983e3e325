"""Compression and compaction of replicas: each for itself, of what was shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import timestone
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import payloads, ship, submitted
from timestone.config import LogConfig
from timestone.repair.inspection import inspect_store
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store

SETTINGS = LogConfig(segment_entries=4, compact=True, tombstone_ms=0, compression="zstd")  # type: ignore[arg-type]


@contextmanager
def compacting(path: Path) -> Iterator[ReplicatedLog]:
    """Open a replica of small segments that are compacted and compressed, when a test says so."""
    with Store(path, crash_config(), log_type=ReplicatedLog) as store:
        store.maintenance.stop()
        log = store.log("telemetry", config=SETTINGS)
        assert isinstance(log, ReplicatedLog)
        yield log


def written(log: ReplicatedLog, *records: tuple[str, bytes]) -> None:
    """Append records one by one, sealing full segments, and show them."""
    for topic, payload in records:
        submitted(log, payload, topic=topic)
    settled(log)
    log.show(log.written_offset)


def settled(log: ReplicatedLog) -> None:
    """Seal what is full."""
    log.sync()
    log.seal_rolled()


def rounds(count: int) -> list[tuple[str, bytes]]:
    """Return `count` records of three topics in turn, and one of a topic of its own at the end of each four."""
    return [(f"line/{number % 3}", b"%d " % number * 100) for number in range(count)]


def test_a_replica_gets_what_compaction_has_left_and_serves_it_like_the_leader(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as one, compacting(tmp_path / "b") as two:
        one.lead(1)
        written(one, *rounds(30))
        assert one.apply_compaction() > 10
        assert one.apply_compression() > 0
        ship(one, two, 1)
        settled(two)
        two.show(30)
        assert payloads(two) == payloads(one)
        assert [record.offset for record in two] == [record.offset for record in one]
        assert two.topics.names() == one.topics.names()
        left = payloads(one)
        with pytest.raises(timestone.OffsetOutOfRange):
            two.record(1)
        seen = timestone.view(tmp_path / "b").log("telemetry")
        assert [bytes(record.payload) for record in seen] == left
    with compacting(tmp_path / "b") as two:
        assert payloads(two) == left
        assert two.is_whole
    assert inspect_store(tmp_path / "b", deep=True).exit_code == 0


def test_a_replica_compacts_and_compresses_what_it_was_sent(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as one, compacting(tmp_path / "b") as two:
        one.lead(1)
        written(one, *rounds(30))
        ship(one, two, 1)
        settled(two)
        two.show(30)
        before = payloads(two)
        assert two.apply_compaction() > 10 and two.apply_compression() > 0
        assert len(two) == len(payloads(two)) < len(before)
        assert payloads(two)[-3:] == before[-3:]


def test_what_was_not_shown_is_neither_rewritten_nor_does_it_replace_a_record(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as log:
        log.lead(1)
        written(log, *rounds(10))
        for topic, payload in rounds(20):
            submitted(log, payload, topic=topic)
        settled(log)
        log.apply_compaction()
        shown = [one for one in payloads(log)]
        assert shown[-3:] == [payload for _, payload in rounds(10)[-3:]]
        assert all(not one.trailer.removed_count for one in log.segment_list.segments[2:] if one.trailer)
        log.follow()
        log.cut(10, log.names_count)
        assert payloads(log) == shown


def test_a_tombstone_stays_until_no_replica_has_a_record_that_it_deletes(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as log:
        log.lead(1)
        written(log, ("gone", b"here"), ("gone", b""), *rounds(30))
        log.apply_compaction()
        log.apply_compaction()
        assert log.record(1).payload == b""
        assert log.clean_offset >= 28
        log.drop_tombstones(1)
        log.apply_compaction()
        assert log.record(1).payload == b""
        log.drop_tombstones(log.clean_offset)
        assert log.apply_compaction() == 1


def test_a_topic_whose_records_are_all_gone_keeps_its_number(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as log:
        log.lead(1)
        written(log, *rounds(3), ("gone", b"here"), ("gone", b""), *rounds(30))
        log.drop_tombstones(1 << 40)
        log.apply_compaction()
        log.apply_compaction()
        assert "gone" not in {record.topic for record in log}
        runs = log.generations()
    with compacting(tmp_path / "a") as log:
        assert (log.names_count, log.generations()) == (4, runs)
        assert log.topic_id("new") == 4
        log.lead(2)
        written(log, ("new", b"1"))
        assert [(run.generation, run.names) for run in log.generations()] == [(1, 0), (2, 4)]
        log.follow()
        log.reset(log.end_offset)
        assert log.names_count == 0
    with compacting(tmp_path / "a") as log:
        assert log.names_count == 0


def test_the_committed_offset_stays_when_its_segment_was_compacted(tmp_path: Path) -> None:
    with compacting(tmp_path / "a") as log:
        log.lead(1)
        written(log, *rounds(12))
        submitted(log, b"not shown", topic="line/0")  # the newest segment has no committed offset
        log.apply_compaction()
        assert log.segment_list.segments[-1].base_offset == 12
    with compacting(tmp_path / "a") as log:
        assert (log.end_offset, log.written_offset) == (12, 13)
