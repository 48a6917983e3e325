"""Parts in the logs of a shard. With real nodes and lost leaders: tests/cluster/node/test_flight.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flight_front.calls import Call
from flight_front.errors import InvalidRequest
from flight_front.settings import PARTS_LOG, FlightSettings
from flight_front.staging.cluster_staging import GROUPS_SPACE, ClusterStaging
from flight_front.staging.parts import PostOrder
from tests.support.postings import frame
from tests.support.workload import crash_config
from tests.timestone.replication.replicas import commit_alone
from timestone.errors import NotLeader
from timestone.replication.replicated_log import ReplicatedLog
from timestone.spool.format import PostingId
from timestone.store import Store
from timestone_access.identity import Identity
from timestone_access.rights import ALL_RIGHTS
from timestone_cluster.fronts.node_fronts import DOCUMENTS_LOG, NodeFronts

ALICE, BOB = (Call(None, Identity(user), ALL_RIGHTS) for user in ("alice", "bob"))
POSTING = PostingId("t", 0, "job", 0)


class Shard:
    """Logs of a shard that this process leads, and the staging on them."""

    def __init__(self, store: Store) -> None:
        self.logs = [self._log(store, name) for name in ("t", PARTS_LOG, DOCUMENTS_LOG)]
        self.log, self.parts, _ = self.logs
        self.fronts = NodeFronts([], store)
        self.staging = ClusterStaging(store, self.fronts, FlightSettings())

    def _log(self, store: Store, name: str) -> ReplicatedLog:
        log = store.log(name)
        assert isinstance(log, ReplicatedLog)
        commit_alone(log)
        return log

    def lead(self, generation: int) -> None:
        for log in self.logs:
            log.lead(generation)

    def follow(self) -> None:
        for log in self.logs:
            log.follow()

    def stage(self, call: Call, group: str, *values: bytes) -> str:
        return self.staging.stage(call, self.log, group, frame(list(values)).encode())

    def post(self, call: Call, *parts: str, number: int = 0) -> None:
        self.staging.post(call, self.log, PostOrder(POSTING._replace(number=number), parts, True, 30))

    def payloads(self) -> list[bytes]:
        return [bytes(record.payload) for record in self.log]


@contextmanager
def leading(path: Path) -> Iterator[Shard]:
    with Store(path, crash_config(segment_entries=2), log_type=ReplicatedLog) as store:
        shard = Shard(store)
        shard.lead(1)
        yield shard
        shard.follow()


def test_parts_are_posted_once_by_a_later_leader(tmp_path: Path) -> None:
    with leading(tmp_path) as shard:
        names = [shard.stage(ALICE, "g", b"a", b"x" * 3_000_000), shard.stage(ALICE, "g", b"b")]
        assert shard.parts.end_offset == 4
        shard.follow()
        with pytest.raises(NotLeader):
            shard.post(ALICE, *names)
        shard.lead(3)
        for _ in range(2):
            shard.post(ALICE, *names)
        assert shard.payloads() == [b"a", b"x" * 3_000_000, b"b"]


def test_part_of_another_user_or_another_group_is_missing(tmp_path: Path) -> None:
    with leading(tmp_path) as shard:
        name = shard.stage(ALICE, "g", b"secret")
        forged = [
            (BOB, name),
            (ALICE, name.replace("g/", "h/")),
            (ALICE, f"g/{0:016x}{9:016x}"),
            (ALICE, f"g/{1:016x}{0:016x}"),
            (ALICE, f"g/{1 << 63:016x}{(1 << 63) + 1:016x}"),
        ]
        for call, part in forged:
            with pytest.raises(InvalidRequest, match="a part of the posting is missing") as refused:
                shard.post(call, part)
            assert str(tmp_path) not in str(refused.value)
        assert shard.payloads() == []


def test_parts_are_deleted_when_no_group_needs_them(tmp_path: Path) -> None:
    with leading(tmp_path) as shard:
        for group in ("one", "two"):
            for number in range(4):
                shard.stage(ALICE, group, b"%d" % number)
        kept = shard.stage(ALICE, "one", b"late")
        shard.staging.discard(ALICE, shard.log, {"group": "two"})
        assert shard.parts.start_offset == 0
        shard.staging.discard(BOB, shard.log, {"group": "one"})
        shard.post(ALICE, kept)
        shard.staging.discard(ALICE, shard.log, {"group": "one", "parts": [kept], "producer": "job"})
        documents = shard.fronts.documents(0)
        assert documents.items(GROUPS_SPACE) == {}
        shard.parts.retention.run()
        assert shard.parts.start_offset >= 8
