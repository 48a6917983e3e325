"""Publishes to another shard, over real connections to a shard that leads."""

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.shard.test_shard import Noted
from tests.support.faulty_files import FaultyFiles
from tests.support.workload import crash_config
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import NotLeader, QueueFull, StorageFull, TopicLimit
from timestone.fronts import Correspondent
from timestone.record import FLAG_QOS_SHIFT, Header, HeaderKind, encode_headers
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.deadlines import TICK_S
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.node import forwarded, forwarding
from timestone_cluster.node.forwarding import ForeignTopics, ForwardedLog, Stream
from timestone_cluster.node.relay import Place
from timestone_cluster.node.requests import Requests
from timestone_cluster.shard.shard import Shard
from timestone_cluster.shard_record import ShardRecord
from timestone_cluster.transport.links import Listener
from timestone_cluster.transport.wire import Hello

QOS_2 = 2 << FLAG_QOS_SHIFT


class Leader:
    """A node that leads shard 1 of two, and what this node forwards to it."""

    def __init__(self, store: Store, cluster: str = "c") -> None:
        self.logs = {
            f"{name}-{number}": store.log(name, number) for number in (0, 1) for name in ("a", STATE_LOG)
        }
        self.shards = {
            number: Shard(
                number,
                "leader",
                1,
                1,
                {
                    name: log
                    for name, log in self.logs.items()
                    if isinstance(log, ReplicatedLog) and log.partition == number
                },
                frozenset(),
                Noted(),
            )
            for number in (0, 1)
        }
        self.record = ShardRecord.first(("leader",)).elected("leader", 1, 1)
        self.requests = Requests(store, self.shards, frozenset, None)
        self.listener = Listener(cluster, lambda node: None, lambda *frame: None, self.requests.handle)
        self.place: Place | None = None
        self.streams: list[Stream] = []

    async def start(self) -> None:
        port = await self.listener.start("127.0.0.1", 0, None)
        self.place = Place("leader", 1, f"127.0.0.1:{port}")
        for shard in self.shards.values():
            assert self.record is not None
            shard.record_seen(self.record, 1)
        self._ticks = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:  # as a node does: a shard without it has been suspended, and acknowledges nothing
            for shard in self.shards.values():
                shard.tick({"leader": 1}, set(), set())
            await asyncio.sleep(TICK_S)

    def stream(self, generation: int = 1) -> Stream:
        """Return a new stream of home 0."""
        logs = [self.logs["a-1"], self.logs[f"{STATE_LOG}-1"]]
        place = lambda: self.place  # noqa: E731
        made = Stream(0, generation, 1, logs, hello=Hello("c", ""), context=None, place=place)
        made.start()
        self.streams.append(made)
        return made

    @property
    def payloads(self) -> list[bytes]:
        return [bytes(record.payload) for record in self.logs["a-1"]]

    async def stop(self) -> None:
        self._ticks.cancel()
        for stream in self.streams:
            stream.close()
        await self.listener.stop()
        for shard in self.shards.values():
            await shard.close()


LARGE = bytes(1 << 20)


class Filling(FaultyFiles):
    """A disk that fills up, or does not write LARGE for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = threading.Event()
        self.writes.set()
        self.free: int | None = None
        self.error: OSError | None = None

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if len(data) >= len(LARGE):  # the event loop itself writes what is small
            assert self.writes.wait(60)
        return super().pwrite(fd, data, position)

    def free_bytes(self, path: Path) -> int:
        if self.error is not None:
            raise self.error
        return super().free_bytes(path) if self.free is None else self.free


def run(folder: Path, check: Callable[[Leader], Awaitable[None]], **opening: Any) -> None:
    async def main() -> None:
        config = opening.pop("config", crash_config())
        with Store(folder, config, log_type=ReplicatedLog, **opening) as store:
            leader = Leader(store)
            async with asyncio.timeout(30):
                await leader.start()
                try:
                    await check(leader)
                finally:
                    await leader.stop()

    asyncio.run(main())


def batch(log: ForwardedLog, *payloads: bytes, topic: str = "t") -> WriteBatch:
    return WriteBatch(payloads, log.topic_id(topic))


def once(log: ForwardedLog, *numbers: int) -> WriteBatch:
    """Return records at QoS 2 of a client, whose packet ids are the numbers."""
    blocks = [
        encode_headers(
            [
                Header(HeaderKind.PACKET_ID, "", number.to_bytes(2, "little")),
                Header(HeaderKind.PUBLISHER, "", b"client"),
            ]
        )
        for number in numbers
    ]
    stored = [block + b"%d" % number for block, number in zip(blocks, numbers, strict=True)]
    return WriteBatch(stored, log.topic_id("t"), flags=QOS_2, header_lengths=[len(one) for one in blocks])


async def settled(*submissions: Submission) -> None:
    while not all(one.resolved for one in submissions):
        await asyncio.sleep(0.005)


def test_records_are_appended_in_order_with_the_topics_of_the_leader(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        stream = leader.stream()
        log = stream.logs["a:1"]
        leader.logs["a-1"].topic_id("known to the leader only")
        sent = [
            log.submit(batch(log, b"%d" % number, topic=f"t{number % 3}"), ack=Ack.SYNCED)
            for number in range(50)
        ]
        ids = [log.topic_id(name) for name in ("x", "y")]
        mixed = WriteBatch([b"1", b"2", b"3"], [ids[0], ids[1], ids[0]], flags=[0, 1, 0])
        sent.append(log.submit(mixed, ack=Ack.SYNCED))
        await settled(*sent)
        assert [one.error for one in sent] == [None] * 51
        assert sent[-1].offsets == range(50, 53)
        records = list(leader.logs["a-1"])
        assert [record.topic for record in records] == [f"t{number % 3}" for number in range(50)] + [
            "x",
            "y",
            "x",
        ]
        assert [record.payload for record in records] == [b"%d" % one for one in (*range(50), 1, 2, 3)]
        assert records[-2].flags == 1
        assert (stream.count, stream.lags) == (53, False)

    run(tmp_path, check)


def test_what_is_unanswered_is_sent_again_and_is_in_the_log_once_at_qos_2(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        stream = leader.stream()
        log, replica = stream.logs["a:1"], leader.logs["a-1"]
        await stream.opened.wait()
        await asyncio.sleep(0.05)
        assert stream._writer is not None
        first = [
            log.submit(one, ack=Ack.SYNCED) for one in (once(log, 1, 2), batch(log, b"q1"), once(log, 3))
        ]
        stream._dialled[0].transport.pause_reading()  # type: ignore[index, union-attr]
        while len(replica) < 4:
            await asyncio.sleep(0.005)
        place, leader.place = leader.place, None
        stream.look()  # the answers are lost with the connection
        later = log.submit(once(log, 4, 5), ack=Ack.SYNCED)
        await asyncio.sleep(0.2)
        assert not any(one.resolved for one in (*first, later))
        leader.place = place
        await settled(*first, later)
        assert [one.error for one in (*first, later)] == [None] * 4
        assert leader.payloads == [b"1", b"2", b"q1", b"3", b"q1", b"4", b"5"], (
            "at QoS 1 a record may be there twice"
        )
        assert first[0].offsets == range(0, 2)

    run(tmp_path, check)


def test_records_of_an_earlier_leader_are_refused_once_a_later_one_has_come(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        old = leader.stream(generation=1)
        log = old.logs["a:1"]
        await settled(log.submit(batch(log, b"before"), ack=Ack.SYNCED))
        new = leader.stream(generation=2)
        await new.opened.wait()
        late = log.submit(batch(log, b"late"), ack=Ack.SYNCED)
        await settled(new.logs["a:1"].submit(batch(new.logs["a:1"], b"after"), ack=Ack.SYNCED))
        await asyncio.sleep(0.5)
        assert not late.resolved
        assert leader.payloads == [b"before", b"after"]
        old.close()
        with pytest.raises(NotLeader):
            log.submit(batch(log, b"never"), ack=Ack.SYNCED)

    run(tmp_path, check)


def test_record_without_an_answer_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "WAIT_S", 0.1)

    async def check(leader: Leader) -> None:
        stream = leader.stream()
        await stream.opened.wait()
        leader.place = None
        stream.look()
        log = stream.logs["a:1"]
        submission = log.submit(batch(log, b"x"), ack=Ack.SYNCED)
        await asyncio.sleep(0.15)
        stream.tick()
        assert isinstance(submission.error, QueueFull)
        assert "no leader has answered" in str(submission.error)

    run(tmp_path, check)


def test_record_that_the_leader_refuses_fails_alone(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        stream = leader.stream()
        log = stream.logs["a:1"]
        huge = bytes(leader.logs["a-1"].config.record_bytes + 1)
        sent = [log.submit(batch(log, one), ack=Ack.SYNCED) for one in (b"1", huge, b"2")]
        await settled(*sent)
        assert [one.error is None for one in sent] == [True, False, True]
        assert leader.payloads == [b"1", b"2"]

    run(tmp_path, check)


def test_records_fail_with_the_error_of_the_leader_when_its_disk_is_full(tmp_path: Path) -> None:
    files = Filling()

    async def check(leader: Leader) -> None:
        log = leader.stream().logs["a:1"]
        sent = [log.submit(batch(log, b"1"), ack=Ack.SYNCED)]
        await settled(*sent)
        files.free = 4
        sent.append(log.submit(batch(log, b"2"), ack=Ack.SYNCED))
        await settled(*sent)
        files.error = OSError(errno.ENOSPC, "No space left on device", "/disk")
        sent.append(log.submit(batch(log, b"3"), ack=Ack.SYNCED))
        await settled(*sent)
        one, two, three = (submission.error for submission in sent)
        assert one is None
        assert isinstance(two, StorageFull)
        facts = two.path, two.free_bytes, two.limit_bytes
        assert (facts, str(two)) == ((tmp_path / "a-1", 4, 4), str(StorageFull(*facts)))
        assert isinstance(three, OSError)
        assert (three.errno, str(three)) == (errno.ENOSPC, str(files.error))
        assert leader.payloads == [b"1"]

    run(tmp_path, check, files=files, config=replace(crash_config(), min_free_bytes=4))


def test_records_fail_with_the_error_of_the_leader_when_its_queue_is_full(tmp_path: Path) -> None:
    files = Filling()

    async def check(leader: Leader) -> None:
        log = leader.stream().logs["a:1"]
        first = log.submit(batch(log, b"1"), ack=Ack.SYNCED)
        await settled(first)
        files.writes.clear()
        try:
            sent = [log.submit(batch(log, one), ack=Ack.SYNCED) for one in (LARGE, b"3")]
            await settled(sent[1])
        finally:
            files.writes.set()
        await settled(sent[0])
        assert (sent[0].error, leader.payloads) == (None, [b"1", LARGE])
        assert isinstance(sent[1].error, QueueFull)
        assert (sent[1].error.log, sent[1].error.limit_bytes) == ("a-1", 1)
        assert sent[1].error.queued_bytes > 0
        assert "(queue_bytes)" in str(sent[1].error)

    run(tmp_path, check, files=files, config=replace(crash_config(), queue_bytes=1))


def test_record_fails_with_the_words_of_a_leader_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarded, "refusal_of", lambda error: ())
    monkeypatch.setattr(forwarding, "error_of", lambda refusal, words: None)
    files = Filling()

    async def check(leader: Leader) -> None:
        log = leader.stream().logs["a:1"]
        files.free = 4
        huge = bytes(leader.logs["a-1"].config.record_bytes + 1)
        sent = [log.submit(batch(log, one), ack=Ack.SYNCED) for one in (b"1", huge)]
        await settled(*sent)
        assert isinstance(sent[0].error, QueueFull) and "4 bytes free" in str(sent[0].error)
        assert not isinstance(sent[1].error, QueueFull) and "over the limit" in str(sent[1].error)

    run(tmp_path, check, files=files, config=replace(crash_config(), min_free_bytes=4))


def test_topics_beyond_the_limit_of_the_log_are_refused_unless_it_has_them() -> None:
    known = {"a", "b"}
    topics = ForeignTopics(known.__contains__, lambda: len(known), 2)
    assert (topics.find("a"), topics.find("new"), topics.take("b")) == (0, None, 1)
    with pytest.raises(TopicLimit):
        topics.take("new")
    assert (topics.add_all(["b", "a"]).tolist(), len(topics), topics.names) == ([1, 0], 2, ["a", "b"])


class Answering:
    """The host of a front that answers each message."""

    def __init__(self) -> None:
        self.heard_of: list[tuple[int, int, bytes]] = []
        self.correspondents: list[Correspondent] = []

    def heard(self, shard: int, home: int, data: bytes, correspondent: Correspondent) -> None:
        self.heard_of.append((shard, home, data))
        self.correspondents.append(correspondent)
        correspondent.send(data.upper())


def test_fronts_of_two_homes_exchange_messages_until_the_connection_ends(tmp_path: Path) -> None:
    async def check(leader: Leader) -> None:
        host, answers = Answering(), [(0, b"")][:0]
        leader.requests._host = host  # type: ignore[assignment]
        stream = leader.stream()
        stream._heard = lambda shard, data: answers.append((shard, data))
        stream.tell(b"dropped")
        await stream.opened.wait()
        first = stream.connection
        for data in (b"one", b"two"):
            stream.tell(data)
        while len(answers) < 2:
            await asyncio.sleep(0.005)
        assert host.heard_of == [(1, 0, b"one"), (1, 0, b"two")]
        assert answers == [(1, b"ONE"), (1, b"TWO")]
        (correspondent,) = set(host.correspondents)
        place, leader.place = leader.place, None
        stream.look()
        while correspondent.is_open:
            await asyncio.sleep(0.005)
        correspondent.send(b"dropped")
        leader.place = place
        while stream.connection in (None, first):
            await asyncio.sleep(0.005)
        stream.tell(b"three")
        while len(host.heard_of) < 3:
            await asyncio.sleep(0.005)
        assert host.correspondents[-1] is not correspondent

    run(tmp_path, check)
