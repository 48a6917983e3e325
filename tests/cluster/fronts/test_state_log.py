"""State of a front in a replicated log: what a later leader reads is what was put, whole changes only."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.waiting import wait_for
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import commit_alone
from timestone.config import Ack
from timestone.errors import CorruptLog, NotLeader
from timestone.reading import named_readers
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.fronts.state_log import StateLog, StateRecord

BIG = b"x" * 300_000


@contextmanager
def leading(path: Path, generation: int = 1) -> Iterator[tuple[Store, ReplicatedLog]]:
    """Open the log of a state as the leader of a cluster of one."""
    with Store(path, crash_config(segment_bytes=1 << 20), log_type=ReplicatedLog) as store:
        log = store.log("mqtt-state")
        assert isinstance(log, ReplicatedLog)
        commit_alone(log)
        log.show(log.extent[0])
        log.lead(generation)
        yield store, log
        log.follow()


def read(store: Store, log: ReplicatedLog, **settings: Any) -> StateLog:
    state = StateLog(log, store.documents, **settings)
    state.read()
    return state


def test_documents_are_those_of_the_last_leader_when_another_one_reads_them(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        state.put_many("a", {"one": b"1", "two": b"2"})
        state.put_many("a", {"one": None, "three": BIG, "four": BIG})
        state.put_many("b", {"one": b""})
        again = read(store, log)
        assert again.items("a") == state.items("a") == {"two": b"2", "three": BIG, "four": BIG}
        assert again.items("b") == {"one": b""}
        assert again.items("c") == {}


def test_change_counts_as_not_made_when_its_leader_did_not_finish_it(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        state.put_many("a", {"one": b"1"})
        begun = StateRecord(1, 0, "a", {"one": b"2", "two": b"2"})
        log.submit(WriteBatch([msgspec.msgpack.encode(begun)]), ack=Ack.SYNCED).wait()
        assert read(store, log).items("a") == {"one": b"1"}
        read(store, log).put_many("a", {"three": b"3"})
        assert read(store, log).items("a") == {"one": b"1", "three": b"3"}


def test_log_begins_with_a_snapshot_when_much_was_written(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log, snapshot_bytes=1 << 20)
        state.put_many("kept", {"for good": b"1", "gone": b"1"})
        state.put_many("kept", {"gone": None})
        for number in range(40):
            state.put_many("a", {"changing": BIG + b"%d" % number})
        wait_for(lambda: len(log) < 30)  # deleted in the background, step by step
        again = read(store, log)
        assert again.items("kept") == {"for good": b"1"}
        assert again.items("a") == {"changing": BIG + b"39"}


def test_put_raises_and_writes_nothing_when_the_replica_leads_no_more(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        state.put_many("a", {"one": b"1"})
        log.follow()
        failed: list[Exception] = []

        def put() -> None:
            try:
                state.put_many("a", {"one": b"2"})
            except NotLeader as error:
                failed.append(error)

        thread = threading.Thread(target=put)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "it waits until it is known that another one leads"
        state.close()
        thread.join(10)
        assert failed and not thread.is_alive()
        assert read(store, log).items("a") == state.items("a") == {"one": b"1"}


def test_put_waits_when_appends_are_held_for_a_hand_over_that_does_not_take_place(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        log.is_held = True
        thread = threading.Thread(target=state.put_many, args=("a", {"one": b"1"}))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        log.is_held = False
        thread.join(10)
        assert state.items("a") == {"one": b"1"}
        state.close()


def test_time_continues_when_another_leader_reads_the_state(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        late = StateRecord(3, 5_000_000_000, "a", {})
        log.submit(WriteBatch([msgspec.msgpack.encode(late)]), ack=Ack.SYNCED).wait()
        again = read(store, log)
        assert again.clock.now_us() >= 5_000_000_000
        before = log.end_offset
        again.note_time(60_000_000)
        assert log.end_offset == before
        again.note_time(0)
        assert log.end_offset == before + 1
        assert state.clock.now_us() < 5_000_000_000


def test_commits_of_readers_are_those_of_this_node(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        state = read(store, log)
        state.put_many(named_readers.SPACE, {"key": b"1"})
        assert state.items(named_readers.SPACE) == store.documents.items(named_readers.SPACE) == {"key": b"1"}
        assert log.end_offset == 0


def test_read_raises_when_a_record_is_not_of_a_state(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        log.submit(WriteBatch([b"not msgpack of a state"]), ack=Ack.SYNCED).wait()
        with pytest.raises(CorruptLog, match="the state at offset 0 cannot be read"):
            read(store, log)
