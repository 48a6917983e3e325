"""Who may append to a replica."""

from pathlib import Path

import pytest

from tests.timestone.replication.replicas import payloads, replicated, ship, submitted
from timestone.config import Ack
from timestone.errors import NotLeader
from timestone.writing.write_batch import WriteBatch


def test_follower_takes_records_of_its_leader_and_none_of_clients(tmp_path: Path) -> None:
    with replicated(tmp_path / "a") as one, replicated(tmp_path / "b") as two:
        one.lead(1)
        submitted(one, b"a")
        ship(one, two, 1)
        for append in (lambda: submitted(two, b"x"), lambda: two.append(b"x")):
            with pytest.raises(NotLeader):
                append()
        two.show(1)
        assert payloads(two) == [b"a"]


def test_batch_that_waited_in_the_queue_is_refused_when_the_replica_leads_no_more(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        log.lead(1)
        with log._end.lock:  # so that it has to wait
            waiting = log.submit(WriteBatch([b"a"]), ack=Ack.SYNCED)
            log._replica_end.leads = False
        with pytest.raises(NotLeader):
            waiting.wait(10)
        assert log.written_offset == 0


def test_empty_batch_asks_for_a_flush_on_any_replica(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        assert log.sync() == 0
