"""One replica at work, with surroundings that note what it asks for."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.cluster.node.test_wire import body
from tests.timestone.replication.replicas import replicated
from timestone_cluster.actions import Propose
from timestone_cluster.frames import Follow, Held, Reset, Started
from timestone_cluster.node.links import Item
from timestone_cluster.node.shard import Shard
from timestone_cluster.node.wire import decoded
from timestone_cluster.shard_record import ShardRecord


class Noted:
    """Surroundings of a shard."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.failures: list[Exception] = []
        self.proposed: list[Propose] = []

    def send(self, node: str, item: Item) -> None:
        assert isinstance(item, list)
        self.sent.append(decoded(b"".join(item)[4:])[1])

    def propose(self, shard: int, proposal: Propose) -> None:
        self.proposed.append(proposal)

    def refresh(self) -> None: ...
    def served(self, shard: int) -> None: ...
    def lost(self, shard: int) -> None: ...
    def has_left(self, shard: int) -> bool:
        return True

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


def following(folder: Path, check: Callable[[Shard, Noted], None], *, leader: str = "a") -> None:
    """Run a check with a shard of the node `b` in generation 1, which the node `a` leads, or another one."""

    async def run() -> None:
        around = Noted()
        with replicated(folder) as log:
            shard = Shard(0, "b", 1, 2, {"telemetry-0": log}, frozenset(), around)
            record = ShardRecord.first(("a", "b", "c")).elected(leader, 1, 2)
            assert record is not None
            shard.record_seen(record, 1)
            check(shard, around)
            await shard.close()

    asyncio.run(run())


def test_replica_begins_again_from_its_disk_when_a_frame_asks_for_what_cannot_be_done(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        before = shard.replica
        question = around.sent[-1]
        assert isinstance(question, Follow)
        impossible = decoded(body(Reset(1, question, 2**64 - 1)))[1]  # more than the catalogue can hold
        assert isinstance(impossible, Reset)
        shard.received("a", impossible)
        assert shard.replica is not before
        assert (shard.replica.role, around.failures) == (None, [])

    following(tmp_path, check)


def test_replica_acknowledges_no_more_when_it_is_damaged_while_it_follows(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        question = around.sent[-1]
        assert isinstance(question, Follow)
        shard.received("a", Started(1, question))
        assert around.sent[-1] == Held(1, "telemetry-0", 0)
        shard.damaged(frozenset({"other-0"}))
        assert not shard.alarm
        shard.damaged(frozenset({"telemetry-0"}))
        assert "telemetry-0 has a damaged record" in shard.alarm
        around.sent.clear()
        shard.tick({"a": 1, "b": 1, "c": 1})
        assert not [one for one in around.sent if isinstance(one, Held)]
        assert not shard.replica.may_stand

    following(tmp_path, check)


def test_leader_resigns_at_once_when_it_has_to_begin_again(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        assert shard.replica.record is not None and shard.replica.record.leader == "b"
        shard._begin_again(ValueError("as when an action fails"))
        assert [(one.revision, one.record.leader) for one in around.proposed] == [(1, None)]
        assert (shard.replica.role, shard.replica.ended) == (None, 1)

    following(tmp_path, check, leader="b")
