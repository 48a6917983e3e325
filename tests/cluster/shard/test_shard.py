"""One replica at work, with surroundings that note what it asks for."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.transport.test_wire import body
from tests.timestone.replication.replicas import replicated, submitted
from timestone.config import Ack
from timestone.errors import NotLeader
from timestone.replication.replicated_log import ReplicatedLog
from timestone_cluster.actions import Propose
from timestone_cluster.deadlines import ASLEEP_S, WAKING_S
from timestone_cluster.frames import Committed, Fenced, Follow, Held, Records, Reset, Started
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard_record import ShardRecord
from timestone_cluster.transport.links import Item
from timestone_cluster.transport.wire import StoredData, decoded

RUNS = {"a": 1, "b": 1, "c": 1}


class Noted:
    """Surroundings of a shard."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.failures: list[Exception] = []
        self.proposed: list[Propose] = []
        self.refreshed = 0
        self.takes_beats = True
        self.beats: list[tuple[str, int, int]] = []
        self.deletions: list[str] = []

    def send(self, node: str, item: Item) -> None:
        self.sent.append(decoded(b"".join(item)[4:])[1] if isinstance(item, list) else item)

    def beat(self, node: str, shard: int, generation: int) -> bool:
        if self.takes_beats:
            self.beats.append((node, shard, generation))
        return self.takes_beats

    def hurry(self) -> None: ...
    def propose(self, shard: int, proposal: Propose) -> None:
        self.proposed.append(proposal)

    def refresh(self) -> None:
        self.refreshed += 1

    def shown(self, text: str) -> str:
        return f"{text} (its name)"

    def served(self, shard: int) -> None: ...
    def lost(self, shard: int) -> None: ...
    def deleted(self, log: str) -> None:
        self.deletions.append(log)

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


def test_leader_waits_to_hand_over_only_where_another_node_of_its_shard_is_registered(tmp_path: Path) -> None:
    """The last of all nodes that stop at once waited five seconds for one to lead."""

    def check(shard: Shard, around: Noted) -> None:
        assert not shard.hand_over({"b": 1}, "this node stops")
        assert not shard.hand_over({"b": 1, "d": 1}, "this node stops")
        assert shard.hand_over({"b": 1, "c": 1}, "this node stops")

    following(tmp_path, check, leader="b")


def test_log_names_the_leader_of_a_new_generation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "timestone.cluster"):
        following(tmp_path, lambda shard, around: None)
    assert "shard 0: generation 1, leader a; in sync: a, b, c (its name)" in caplog.messages


def test_log_has_no_line_of_a_record_that_the_replica_does_not_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def check(shard: Shard, around: Noted) -> None:
        caplog.clear()
        late = ShardRecord.first(("a", "b", "c"))
        for _ in range(2):  # it is read every two seconds
            shard.record_seen(late, 1)
        assert caplog.messages == []

    with caplog.at_level("INFO", "timestone.cluster"):
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
        shard.tick(RUNS, (), ())
        assert not [one for one in around.sent if isinstance(one, Held)]
        assert not shard.replica.may_stand

    following(tmp_path, check)


def test_heartbeat_repeats_all_by_one_frame_when_the_node_has_heard_it_on_its_connection(
    tmp_path: Path,
) -> None:
    held = Held(1, "telemetry-0", 0)

    def check(shard: Shard, around: Noted) -> None:
        question = around.sent[-1]
        assert isinstance(question, Follow)
        shard.received("a", Started(1, question))
        around.sent.clear()

        def said() -> tuple[list[Held], list[tuple[str, int, int]]]:
            shard.tick(RUNS, (), ())
            found = [one for one in around.sent if isinstance(one, Held)], around.beats[:]
            around.sent.clear()
            around.beats.clear()
            return found

        assert [said(), said()] == [([], [("a", 0, 1)])] * 2
        around.takes_beats = False  # of an older version
        assert said() == ([held], [])
        around.takes_beats = True
        assert said() == ([], [("a", 0, 1)])
        said_at = shard._said._said
        said_at.update({key: (frame, at_s - 2.0) for key, (frame, at_s) in said_at.items()})
        assert said() == ([held], [])  # now and then everything is said
        shard.linked("c")
        assert said() == ([], [("a", 0, 1)])
        shard.linked("a")
        around.sent.clear()
        assert said() == ([], [])  # asks again, and promises what it has once that is answered
        shard.received("a", Started(1, question))
        assert around.sent.pop() == held
        assert said() == ([], [("a", 0, 1)])

    following(tmp_path, check)


def test_heartbeat_of_another_generation_is_answered_as_its_frames_are(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        around.sent.clear()
        shard.beat("a", 1)
        assert around.sent == []
        shard.beat("c", 0)
        assert around.sent == [Fenced(1)]
        shard.beat("a", 2)
        assert around.refreshed == 1

    following(tmp_path, check)


def test_leader_resigns_at_once_when_it_has_to_begin_again(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        assert shard.replica.record is not None and shard.replica.record.leader == "b"
        shard._begin_again(ValueError("as when an action fails"))
        assert [(one.revision, one.record.leader) for one in around.proposed] == [(1, None)]
        assert (shard.replica.role, shard.replica.ended) == (None, 1)

    following(tmp_path, check, leader="b")


def test_replica_has_caught_up_once_it_has_had_all_that_its_leader_has_committed(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        question = around.sent[-1]
        assert isinstance(question, Follow)
        shard.received("a", Committed(1, "telemetry-0", 0, 0))
        assert not shard.tick({}, (), ())  # not compared yet
        shard.received("a", Started(1, question))
        shard.received("a", Committed(1, "telemetry-0", 3, 0))
        assert not shard.tick({}, (), ())
        shard.received("a", Committed(1, "telemetry-0", 0, 0))
        assert shard.tick({}, (), ())

    following(tmp_path, check)


def shipped(source: ReplicatedLog, first: int, end: int) -> Records:
    found = source.read_stored(first, end, max_bytes=1 << 20)
    names = ("t",)[first:]
    data = StoredData(found.entries, found.data)
    return Records(1, "telemetry-0", first, end, 1, 1 - len(names), names, data)


def test_replica_holds_what_is_written_before_it_is_flushed_at_level_written(tmp_path: Path) -> None:
    async def run() -> None:
        around = Noted()
        with replicated(tmp_path / "b") as log, replicated(tmp_path / "a") as source:
            source.lead(1)
            submitted(source, b"one", b"two")
            log.level = Ack.WRITTEN
            shard = Shard(0, "b@1", 1, 2, {"telemetry-0": log}, frozenset(), around)
            record = ShardRecord.first(("a@1", "b@1", "c@1")).elected("a@1", 1, 2)
            assert record is not None
            shard.record_seen(record, 1)
            question = around.sent[-1]
            assert isinstance(question, Follow)
            shard.received("a@1", Started(1, question))
            shard.received("a@1", shipped(source, 0, 2))
            assert around.sent[-1] == Held(1, "telemetry-0", 2, 0)
            assert log.synced_offset == 0
            await shard.close()

    asyncio.run(run())


def test_replica_that_has_begun_again_holds_further_records_whichever_way_its_last_flush_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("as by a fault of the code")

    async def held(around: Noted, offset: int) -> None:
        async with asyncio.timeout(20):
            while Held(1, "telemetry-0", offset) not in around.sent:
                await asyncio.sleep(0.001)

    async def run() -> None:
        around = Noted()
        with replicated(tmp_path / "b") as log, replicated(tmp_path / "a") as source:
            source.lead(1)
            submitted(source, b"one", b"two", b"three")
            shard = Shard(0, "b", 1, 2, {"telemetry-0": log}, frozenset(), around)
            record = ShardRecord.first(("a", "b", "c")).elected("a", 1, 2)
            assert record is not None

            def follows() -> None:
                shard.record_seen(record, 1)
                question = around.sent[-1]
                assert isinstance(question, Follow)
                shard.received("a", Started(1, question))

            follows()
            with monkeypatch.context() as patch:
                patch.setattr(shard._flushes, "begin", fails)
                shard.received("a", shipped(source, 0, 1))
            assert shard.replica.role is None, "it has begun again"
            follows()
            late = list[Callable[[int | Exception], None]]()
            with monkeypatch.context() as patch:
                patch.setattr(shard._flushes, "begin", lambda log, ended: late.append(ended))
                shard.received("a", shipped(source, 1, 2))
            assert len(late) == 1
            shard._begin_again(ValueError("as when another action fails"))
            follows()
            shard.received("a", shipped(source, 2, 3))
            late[0](2)  # tells nothing of what was written since, which is flushed now
            await held(around, 3)
            await shard.close()

    asyncio.run(run())


@pytest.mark.parametrize("successor", [None, "c"])
def test_leader_that_was_suspended_acknowledges_only_after_it_would_know_of_a_successor(
    tmp_path: Path, successor: str | None
) -> None:
    def check(shard: Shard, around: Noted) -> None:
        log, deadlines = shard.log("telemetry-0"), shard._deadlines
        assert log is not None
        for member in "ac":
            shard.received(member, Follow(1, "telemetry-0", 0, 0, 0))
        waits = submitted(log, b"one")
        shard._logs_changed()
        deadlines._ticked_s -= ASLEEP_S  # suspended, while these are on their way
        for member in "ac":
            shard.received(member, Held(1, "telemetry-0", 1))
        shard.tick(RUNS, (), ())
        assert [waits.resolved, log.end_offset] == [False, 0]
        if successor is None:
            deadlines._awake_s -= WAKING_S
            shard.tick(RUNS, (), ())
            assert waits.resolved and waits.error is None
        else:
            record = shard.replica.record
            assert record is not None
            later = record.elected(successor, 1, 2)
            assert later is not None
            shard.record_seen(later, 2)
            assert isinstance(waits.error, NotLeader)
        assert log.end_offset == 1, "all in-sync replicas have it"

    following(tmp_path, check, leader="b")


def test_node_ends_when_a_flush_has_failed_that_nothing_waited_for(tmp_path: Path) -> None:
    def check(shard: Shard, around: Noted) -> None:
        log = shard.log("telemetry-0")
        assert log is not None
        with log._end.lock:
            failure = log._end.fail_locked(OSError("broken"))
        for _ in range(2):
            shard.tick({}, (), ())
        assert [str(one) for one in around.failures] == [str(failure)]

    following(tmp_path, check)
