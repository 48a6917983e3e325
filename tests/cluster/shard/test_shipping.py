"""Records of a leader, as messages."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from tests.timestone.replication.replicas import replicated
from timestone.errors import CorruptRecord
from timestone.replication.replicated_log import ReplicatedLog
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.actions import Ship
from timestone_cluster.frames import Committed, Held, Records
from timestone_cluster.replica_log import ReplicaLog
from timestone_cluster.shard import shipping
from timestone_cluster.shard.shipping import Said, Shared, Shipping, Surroundings
from timestone_cluster.transport.wire import Message, decoded


class Shipped:
    """A range of a log that has four records, of two topics."""

    def __init__(self, log: ReplicatedLog, first: int = 1) -> None:
        log.lead(1)
        for topic in "abab":
            log.submit(WriteBatch([topic.encode()], log.topic_id(topic)), ack="written")
        log.sync()
        state = ReplicaLog()
        state.extend(1, *log.extent)
        self.leads = True
        self.damaged: list[str] = []
        shared = Shared()
        self.shipping, self.other = (
            Shipping(
                Ship(member, "telemetry-0", first, 4, 1),
                7,
                1,
                log,
                state,
                shared,
                leads=lambda: self.leads,
                damaged=self.damaged.append,
            )
            for member in "bc"
        )


def test_range_is_sent_with_the_names_that_it_is_the_first_to_use(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        shipping = shipped.shipping
        assert shipping.is_ready
        message = shipping.now()
        shard, records = decoded(b"".join(message)[4:])
        assert isinstance(records, Records)
        assert (shard, records.first, records.end, records.names) == (7, 1, 4, ("b",))
        assert shipping.is_over
        assert asyncio.run(shipping.next()) is None
        assert shipped.other.now() is message, "followers that lack the same share it"
        assert shipped.other.is_over


def test_nothing_is_sent_when_the_generation_is_led_no_more(tmp_path: Path) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        shipped.leads = False
        assert shipped.shipping.is_over
        assert asyncio.run(shipped.shipping.next()) is None


def test_damage_is_reported_and_ends_the_range_when_a_record_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)

        def read(first: int, end: int, *, max_bytes: int) -> None:
            raise CorruptRecord(log.folder, first, "as after bit rot")

        monkeypatch.setattr(log, "read_stored", read)
        with pytest.raises(CorruptRecord):
            shipped.shipping.now()
        assert asyncio.run(shipped.shipping.next()) is None
        assert shipped.damaged == ["telemetry-0"]


def test_link_ends_when_the_records_were_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replicated(tmp_path) as log:
        shipped = Shipped(log)
        monkeypatch.setattr(type(log), "local_start_offset", 3)
        monkeypatch.setattr(log, "read_stored", lambda *_, **__: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(ConnectionError, match="begins at 3"):
            asyncio.run(shipped.shipping.next())
        assert not shipped.damaged


class Heard:
    """Nodes that are spoken to."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, Message]] = []
        self.beats: list[tuple[str, int, int]] = []

    def send(self, node: str, item: list[bytes]) -> None:
        self.frames.append((node, decoded(b"".join(item)[4:])[1]))

    def beat(self, node: str, shard: int, generation: int) -> bool:
        self.beats.append((node, shard, generation))
        return True


def saying(check: Callable[[Said, Heard], Awaitable[None]]) -> Heard:
    """Run a check with what a shard 7 says, and return what was heard."""
    heard = Heard()

    async def run() -> None:
        await check(Said(7, cast(Surroundings, heard)), heard)

    asyncio.run(run())
    return heard


def test_heartbeat_repeats_a_frame_by_a_beat_until_it_is_old_or_the_connection_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(shipping, "now_s", lambda: now_s)
    frame = Held(1, "telemetry-0", 4)

    async def check(said: Said, heard: Heard) -> None:
        nonlocal now_s
        said.say("a", frame, is_beating=True)
        now_s = 101.9
        said.say("a", frame, is_beating=True)
        assert (heard.frames, heard.beats) == ([("a", frame)], [("a", 7, 1)])
        said.say("a", frame)
        said.say("b", frame, is_beating=True)
        later = Held(1, "telemetry-0", 5)
        said.say("b", later, is_beating=True)
        assert heard.frames[1:] == [("a", frame), ("b", frame), ("b", later)]
        now_s = 102.0
        said.say("a", frame, is_beating=True)
        said.forget("a")
        said.say("a", frame, is_beating=True)
        assert heard.frames[4:] == 2 * [("a", frame)]
        assert len(heard.beats) == 1

    saying(check)


def test_newest_committed_offset_of_each_log_is_said_after_what_the_loop_has_to_do() -> None:
    async def check(said: Said, heard: Heard) -> None:
        for offset in (1, 2):
            said.say_soon("a", Committed(1, "telemetry-0", offset, 0, 0))
        said.say_soon("a", Committed(1, "other-1", 9, 0, 0))
        said.say_soon("b", Committed(1, "telemetry-0", 2, 0, 0))
        assert heard.frames == []
        await asyncio.sleep(0)
        said.say_soon("a", Committed(1, "telemetry-0", 3, 0, 0))
        await asyncio.sleep(0)

    assert saying(check).frames == [
        ("a", Committed(1, "telemetry-0", 2, 0, 0)),
        ("a", Committed(1, "other-1", 9, 0, 0)),
        ("b", Committed(1, "telemetry-0", 2, 0, 0)),
        ("a", Committed(1, "telemetry-0", 3, 0, 0)),
    ]
