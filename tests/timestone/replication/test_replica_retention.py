"""Retention of replicas: who deletes what, and what is known of it later."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.workload import crash_config
from tests.timestone.replication.replicas import leading, payloads, ship, submitted
from timestone.replication import names_used
from timestone.replication.names_used import names_in
from timestone.replication.replicated_log import GenerationRun, ReplicatedLog
from timestone.segment import Segment
from timestone.store import Store


@contextmanager
def small(path: Path) -> Iterator[Store]:
    """Open a store whose logs are replicas, of segments of eight records."""
    with Store(path, crash_config(segment_entries=8), log_type=ReplicatedLog) as store:
        yield store


def of(store: Store) -> ReplicatedLog:
    log = store.log("telemetry")
    assert isinstance(log, ReplicatedLog)
    return log


def apply(store: Store) -> int:
    """Seal what is rolled, and return where the log begins after retention."""
    of(store).seal_rolled()
    of(store).apply_retention()  # or the background did
    return of(store).start_offset


def test_leader_deletes_by_its_limits_what_was_shown_and_a_follower_what_its_leader_has_no_more(
    tmp_path: Path,
) -> None:
    with small(tmp_path / "a") as one, small(tmp_path / "b") as two:
        leader, follower = leading(one, 30), of(two)
        ship(leader, follower, 1)
        for log in (leader, follower):
            log.configure(retention_bytes=1)
        assert apply(one) == 0, "nothing was shown"
        leader.show(20)
        follower.show(20)
        assert apply(one) == 16
        assert apply(two) == 0
        follower.expire(12)
        assert apply(two) == 8
        follower.expire(1000)
        assert apply(two) == 16, "what is not shown stays"
        assert payloads(leader) == payloads(follower) == [b"16", b"17", b"18", b"19"]
        for log in (leader, follower):
            log.show(30)
        leader.roll()
        assert apply(one) == 24, "the newest segment with records stays"


def test_topic_ids_continue_behind_those_of_deleted_records_when_the_store_is_opened_again(
    tmp_path: Path,
) -> None:
    with small(tmp_path) as store:
        log = leading(store)
        for number in range(10):
            submitted(log, b"", topic=f"topic {number}")
        log.lead(2)
        submitted(log, b"last", topic="topic 0")
        log.show(11)
        log.configure(retention_bytes=1)
        before = log.names_count, log.generations()[-1]
        assert apply(store) > 0
    with small(tmp_path) as store:
        log = of(store)
        assert log.is_whole and log.start_offset > 0
        assert (log.names_count, log.generations()[-1]) == before
        assert log.names_count == 10
        log.reset(50)
        assert (log.names_count, log.generations()) == (0, ())
    with small(tmp_path) as store:
        assert (of(store).names_count, of(store).start_offset, of(store).written_offset) == (0, 50, 50)


def test_generations_are_not_read_while_retention_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small(tmp_path) as store:
        log = leading(store, 3)
        seen: list[bool] = []

        def noted(segment: Segment) -> int:
            seen.append(log.rewrites.lock.locked())
            return names_in(segment)

        monkeypatch.setattr(names_used, "names_in", noted)
        assert log.generations() == (GenerationRun(1, 0, 0),)
        assert seen == [True]


def test_log_continues_where_it_began_when_all_records_that_retention_has_left_are_cut(
    tmp_path: Path,
) -> None:
    with small(tmp_path) as store:
        log = leading(store, 16)
        log.show(16)
        log.lead(2)
        submitted(log, b"never committed")
        log.configure(retention_bytes=1)
        assert apply(store) == 16
        log.cut(16, log.generations()[-1].names)
    with small(tmp_path) as store:
        assert (of(store).start_offset, of(store).written_offset, of(store).end_offset) == (16, 16, 16)
        assert of(store).is_whole
