"""Publishes of the clients of one home whose topics are in other shards: sent to the leaders of those, in order.

A stream has one connection to the leader of one shard. When that changes or ends, what is unanswered is sent again on
the next one, before anything new. A publish at QoS 2 is not: the new leader says up to where its log goes, and what of
it the replica on this node has by then is in it, and the rest never will be by the old connection."""

import asyncio
import itertools
import logging
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from timestone.address import parse_address, send
from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import CorruptRecord, NotLeader, OffsetOutOfRange, QueueFull, TimestoneError, TopicLimit
from timestone.kernel.entries import NO_TOPIC
from timestone.log import Log
from timestone.reading.wakeups import Woken
from timestone.record import FLAG_QOS_MASK, FLAG_QOS_SHIFT
from timestone.writing.write_batch import Numbers, WriteBatch
from timestone_cluster.errors import UndecodableFrame
from timestone_cluster.node.relay import Place
from timestone_cluster.transport.links import forget_frames, give_up_early
from timestone_cluster.transport.refusals import error_of
from timestone_cluster.transport.wire import (
    Forward,
    Forwarded,
    ForwardOpen,
    ForwardOpened,
    Hello,
    Letter,
    encoded,
    read_message,
)

_LOGGER = logging.getLogger("timestone.cluster")
WAIT_S = 10.0
"""After this time a publish without an answer has failed; it may be in the log or not."""
_DIAL_S = 2.0
_PAUSE_S = 0.1
_LOOK_S = 0.005
_EXACTLY_ONCE = 2 << FLAG_QOS_SHIFT


class ForeignTopics:
    """Numbers of the topics of a log elsewhere, by which the records of this node name them until they are sent."""

    def __init__(self, is_known: Callable[[str], bool], count: Callable[[], int], limit: int) -> None:
        """is_known: whether the log has a topic. count: how many it has. limit: most that it may have."""
        self._is_known, self._count, self._limit = is_known, count, limit
        self._ids: dict[str, int] = {}
        self.names: list[str] = []

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """Return the number of a topic; None for one that is new to the log."""
        found = self._ids.get(name)
        return self.take(name) if found is None and self._is_known(name) else found

    def take(self, name: str) -> int:
        """Return the number of a topic, which may be new. Raises TopicLimit."""
        found = self._ids.get(name)
        if found is None:
            if self._count() >= self._limit and not self._is_known(name):
                raise TopicLimit("elsewhere", self._limit)
            found = self._ids[name] = len(self.names)
            self.names.append(name)
        return found

    def add_all(self, names: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the numbers of topics. Raises TopicLimit."""
        return np.array([self.take(name) for name in names], np.uint32)


class ForwardedLog:
    """A log whose leader may be another node, as publishes see it; see `timestone.fronts.Appendable`."""

    def __init__(self, log: Log, stream: "Stream") -> None:
        """log: the replica on this node."""
        self.log, self.key, self._stream = log, log.key, stream
        known = log.topics
        self.topics = ForeignTopics(
            lambda name: known.find(name) is not None, lambda: len(known), log.config.topic_count
        )
        self.answered = 0
        """Offset behind the last record of this home that is known to be in the log."""

    def topic_id(self, topic: str) -> int:
        """Return the number of a topic. Raises TopicLimit."""
        return self.topics.take(topic)

    def append_now(self, write_batch: WriteBatch, woken: list[Woken] | None = None) -> range | None:
        """Return None: an append has to wait for the leader."""
        return None

    def submit(
        self,
        write_batch: WriteBatch,
        *,
        ack: Ack | str,
        done: Callable[[Submission], None] | None = None,
        woken: list[Woken] | None = None,
    ) -> Submission:
        """Send a batch to the leader. Resolved when it is committed there. Raises NotLeader, if this node does not lead
        the home any more."""
        submission = Submission(write_batch, Ack(ack), done)
        self._stream.add(self, submission)
        return submission

    def message(self, number: int, batch: WriteBatch) -> Forward:
        """Return the message that forwards a batch."""
        ids = batch.topic_ids
        if isinstance(ids, int):
            used = np.array([] if ids == NO_TOPIC else [ids], np.uint32)
            topics: int | bytes = ids if ids == NO_TOPIC else 0
        else:
            used = np.unique(ids[ids != NO_TOPIC])
            places = np.searchsorted(used, ids).astype(np.uint32)
            places[ids == NO_TOPIC] = NO_TOPIC
            topics = places.tobytes()
        names = tuple(self.topics.names[one] for one in used.tolist())
        columns = _sent(batch.flags), _sent(batch.header_lengths)
        stored = b"".join(batch.stored.pieces)
        return Forward(number, self.log.name, names, topics, columns[0], columns[1], batch.lengths, stored)


def _sent(column: int | Numbers) -> int | bytes:
    return column if isinstance(column, int) else column.tobytes()


@dataclass(slots=True)
class _Waiting:
    """A batch without an answer."""

    log: ForwardedLog
    submission: Submission
    batch: WriteBatch
    """What is left of it to append."""
    ends_s: float


class Stream:
    """Publishes of one home to one other shard. Event-loop thread only."""

    def __init__(
        self,
        home: int,
        generation: int,
        shard: int,
        logs: Sequence[Log],
        *,
        hello: Hello,
        context: ssl.SSLContext | None,
        place: Callable[[], Place | None],
        answered: Callable[[int, bytes], None] = lambda shard, data: None,
    ) -> None:
        """logs: replicas of the shard on this node, the last one of what its front has stored. place: where the leader
        is, as far as this node knows. answered: called with the shard and what its front answers."""
        self._home, self._generation, self.shard = home, generation, shard
        self._replicas = tuple(logs)
        self.logs = {log.key: ForwardedLog(log, self) for log in logs[:-1]}
        self._hello, self._context, self._place, self._heard = hello, context, place, answered
        self._numbers = itertools.count()
        self._waiting: dict[int, _Waiting] = {}
        self._writer: asyncio.StreamWriter | None = None
        """Of a connection on which everything unanswered was sent."""
        self._dialled: tuple[asyncio.StreamWriter, Place] | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False
        self.opened = asyncio.Event()
        """Set once this node has all that earlier leaders of the home have appended."""
        self.count = 0
        """Records that were forwarded so far."""

    def start(self) -> None:
        """Connect, and again whenever the connection ends, until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Send nothing more. What waits is not answered."""
        self.is_closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
        if self._dialled is not None:
            self._dialled[0].transport.abort()

    def look(self) -> None:
        """Connect again if another node leads by now: the one before may be suspended, and would not answer."""
        if self._dialled is not None and self._dialled[1] != self._place():
            self._dialled[0].transport.abort()

    def tick(self) -> None:
        """Fail what has waited for too long."""
        now_s = time.monotonic()
        for number, one in list(self._waiting.items()):
            if one.ends_s > now_s:
                break
            del self._waiting[number]
            one.submission.resolve(_Unanswered(one.log.key))

    @property
    def connection(self) -> asyncio.StreamWriter | None:
        """Return the connection on which messages can be sent."""
        return None if self._writer is None or self._writer.transport.is_closing() else self._writer

    def tell(self, data: bytes) -> None:
        """Send a message to the front of the shard. Dropped without a connection."""
        if (writer := self.connection) is not None:
            send(writer, *encoded(Letter(data), self.shard))

    @property
    def lags(self) -> bool:
        """Return whether the replicas here lack something that the leader has of this home."""
        return any(one.answered > one.log.end_offset for one in self.logs.values())

    def add(self, log: ForwardedLog, submission: Submission) -> None:
        """Send a batch behind those before. Raises NotLeader."""
        if self.is_closed:
            raise NotLeader(f"this node does not lead shard {self._home}")
        number, batch = next(self._numbers), submission.write_batch
        self._waiting[number] = _Waiting(log, submission, batch, time.monotonic() + WAIT_S)
        if (writer := self.connection) is not None:
            self._send(writer, number)

    def _send(self, writer: asyncio.StreamWriter, number: int) -> None:
        one = self._waiting[number]
        send(writer, *encoded(one.log.message(number, one.batch), self.shard))

    async def _run(self) -> None:
        while True:
            try:
                await self._connected()
            except (OSError, TimeoutError, TimestoneError, asyncio.IncompleteReadError) as error:
                _LOGGER.debug("shard %d: publishes to shard %d wait: %r", self._home, self.shard, error)
                forget_frames(error)
            except UndecodableFrame as error:
                _LOGGER.warning("shard %d: answers of shard %d: %s", self._home, self.shard, error)
            finally:
                self._writer = None
                if self._dialled is not None:
                    self._dialled[0].transport.abort()
                    self._dialled = None
            await asyncio.sleep(_PAUSE_S)

    async def _connected(self) -> None:
        place = self._place()
        if place is None:
            return
        host, port = parse_address(place.address, setting="peer")
        async with asyncio.timeout(_DIAL_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=self._context)
        self._dialled = writer, place
        give_up_early(writer)
        names = tuple(log.name for log in self._replicas)
        opening = ForwardOpen(self._home, self._generation, time.monotonic_ns(), names)
        send(writer, *encoded(self._hello), *encoded(opening, self.shard))
        _, answer = await read_message(reader)
        if not isinstance(answer, ForwardOpened) or answer.error or len(answer.ends) != len(names):
            raise NotLeader(getattr(answer, "error", "not an answer"))
        while any(log.end_offset < end for log, end in zip(self._replicas, answer.ends, strict=True)):
            self.look()
            if writer.transport.is_closing():
                return
            await asyncio.sleep(_LOOK_S)
        await self._leave_out(answer.ends)
        for number in list(self._waiting):
            self._send(writer, number)
        self._writer = writer
        self.opened.set()
        while True:
            _, message = await read_message(reader)
            if isinstance(message, Letter):
                self._heard(self.shard, message.data)
            elif isinstance(message, Forwarded):
                self._answered(message)
            else:
                raise UndecodableFrame(f"expected an answer, got {type(message).__name__}")

    def _answered(self, message: Forwarded) -> None:
        one = self._waiting.pop(message.number, None)
        if one is None:
            return
        if message.error:
            error = error_of(message.refusal, message.error)
            if error is None:
                error = QueueFull(one.log.key, 0, 0) if message.is_full else _Refused()
                error.args = (message.error,)
            one.submission.resolve(error)
            return
        self._resolve(one, message.first + one.batch.count)

    def _resolve(self, one: _Waiting, end: int) -> None:
        self.count += one.batch.count
        one.log.answered = max(one.log.answered, end)
        one.submission.offsets = range(end - one.submission.write_batch.count, end)
        one.submission.resolve()

    # What must not be sent again.

    async def _leave_out(self, ends: Sequence[int]) -> None:
        """Drop what is in the log from the batches without an answer, as far as it must not be there twice."""
        for log, end in zip(self.logs.values(), ends, strict=False):
            once = {
                number: one for number, one in self._waiting.items() if one.log is log and _is_once(one.batch)
            }
            if once:
                found = await asyncio.to_thread(_blocks, log.log, log.answered, end)
                for number, one in once.items():
                    self._leave_out_of(number, one, found)
            log.answered = max(log.answered, end)

    def _leave_out_of(self, number: int, one: _Waiting, found: Mapping[bytes, int]) -> None:
        rest, end = _without(one.batch, found)
        if number not in self._waiting or rest is one.batch:
            return
        one.batch = rest
        if not rest.count:
            del self._waiting[number]
            self._resolve(one, end)


class _Refused(TimestoneError):
    """The leader of the log has refused it."""


class _Unanswered(QueueFull):
    """No leader has answered in time."""

    def __init__(self, log: str) -> None:
        super().__init__(log, 0, 0)
        self.args = (
            f"log {log}: no leader has answered for {WAIT_S:g} s; the records may be in the log or not",
        )


def _is_once(batch: WriteBatch) -> bool:
    return bool((np.atleast_1d(batch.flags) & FLAG_QOS_MASK == _EXACTLY_ONCE).any())


def _blocks(log: Log, start: int, end: int) -> dict[bytes, int]:
    """Return the header blocks of records at QoS 2, which have the client and the packet id, with the offset behind
    each. Reads the disk."""
    found: dict[bytes, int] = {}
    position = max(start, log.start_offset)
    while position < end:
        try:
            batch = log.read(position)
        except (OffsetOutOfRange, CorruptRecord) as error:
            position = error.start if isinstance(error, OffsetOutOfRange) else error.next_offset
            continue
        for number in np.flatnonzero((batch.flags & FLAG_QOS_MASK) == _EXACTLY_ONCE).tolist():
            found[batch.header_block(number)] = int(batch.offsets[number]) + 1
        position = batch.next_offset
    return found


def _without(batch: WriteBatch, found: Mapping[bytes, int]) -> tuple[WriteBatch, int]:
    """Return the records of a batch that are not found, and the offset behind the last one that is."""
    count, end = batch.count, 0
    lengths = np.frombuffer(batch.lengths, np.uint32)
    flags = _each(batch.flags, count, np.uint16)
    headers = _each(batch.header_lengths, count, np.uint16)
    stored, ends = b"".join(batch.stored.pieces), np.cumsum(lengths, dtype=np.int64)
    kept, pieces = np.ones(count, bool), []
    for number in range(count):
        begin = int(ends[number] - lengths[number])
        block = stored[begin : begin + int(headers[number])]
        at = found.get(block) if flags[number] & FLAG_QOS_MASK == _EXACTLY_ONCE and block else None
        if at is None:
            pieces.append(stored[begin : int(ends[number])])
        else:
            kept[number], end = False, max(end, at)
    if kept.all():
        return batch, end
    topics = _each(batch.topic_ids, count, np.uint32)
    return WriteBatch(pieces, topics[kept], flags=flags[kept], header_lengths=headers[kept]), end


def _each(column: int | Numbers, count: int, kind: type[np.unsignedinteger]) -> Numbers:
    return np.full(count, column, kind) if isinstance(column, int) else column
