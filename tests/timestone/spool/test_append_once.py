"""Appending once on replicas: what a lost leader has begun, the next one completes, and nothing twice."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.support.postings import frame
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import commit_alone
from timestone.config import Ack
from timestone.errors import NotLeader
from timestone.kernel.entries import NO_TOPIC
from timestone.replication.replicated_log import ReplicatedLog
from timestone.spool.append_once import append_frame, append_once, progress_of
from timestone.spool.format import Frame, PostingId
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch

POSTING = PostingId("t", 0, "meter", 5)
VALUES = [b"%d" % number for number in range(50)]


@contextmanager
def leading(path: Path) -> Iterator[tuple[Store, ReplicatedLog]]:
    """Open a log as the leader of a cluster of one, with segments of ten records."""
    with Store(path, crash_config(segment_entries=10), log_type=ReplicatedLog) as store:
        log = store.log("t")
        assert isinstance(log, ReplicatedLog)
        commit_alone(log)
        log.lead(1)
        yield store, log
        log.follow()


def payloads(log: ReplicatedLog) -> list[bytes]:
    return [bytes(record.payload) for record in log]


def test_next_leader_completes_a_batch_that_replicas_have_a_part_of_in_several_segments(
    tmp_path: Path,
) -> None:
    with leading(tmp_path) as (store, log):

        def lost() -> Frame:
            raise ConnectionError("the leader is lost before the first record")

        with pytest.raises(ConnectionError):
            append_once(log, store.documents, POSTING, (lost() for _ in range(1)))
        assert progress_of(store.documents, POSTING).begun == 5
        ids = np.array([NO_TOPIC], dtype=np.uint32)
        part = frame(VALUES[:10]).write_batch(ids, POSTING.mark(0, 0), 0)
        log.submit(part, ack=Ack.SYNCED).wait()
        log.submit(WriteBatch(VALUES[10:30]), ack=Ack.SYNCED).wait()
        assert len(log.segment_bounds()) == 2
        assert log.unbroken() == [(0, 30)]
        log.follow()
        log.lead(2)
        assert append_frame(log, store.documents, POSTING, frame(VALUES)) == range(30, 50)
        assert append_frame(log, store.documents, POSTING, frame(VALUES)) is None
        assert payloads(log) == VALUES
        assert log.unbroken() == [(0, 30), (30, 50)]


def test_batch_is_not_appended_again_when_all_of_it_is_there(tmp_path: Path) -> None:
    with leading(tmp_path) as (store, log):
        assert append_frame(log, store.documents, POSTING, frame(VALUES)) == range(50)
        key = POSTING.key
        store.documents.put_many("postings", {key: b'{"done": 4, "begun": 5, "since": 0}'})
        append_frame(log, store.documents, POSTING, frame(VALUES))
        assert payloads(log) == VALUES
        assert progress_of(store.documents, POSTING).done == 5


def test_append_is_refused_when_another_replica_has_led_since_it_was_looked_at(tmp_path: Path) -> None:
    with leading(tmp_path) as (_, log):
        append = log.appender()
        assert append(WriteBatch([b"a"])) == range(1)
        log.follow()
        log.lead(3)
        with pytest.raises(NotLeader, match="has not led all the time"):
            append(WriteBatch([b"b"]))
        assert log.appender()(WriteBatch([b"c"])) == range(1, 2)
        log.follow()
        with pytest.raises(NotLeader):
            log.appender()
