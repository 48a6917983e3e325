"""Publishes of clients whose home is another shard, appended by the leader of the shard of their topics.

The leader of a home opens a connection for them. From then on records on its earlier connections are refused, and those
of earlier leaders: what is in the log by then is all that they have appended, and the answer comes when it is
committed. So the sender can find in its own replica what of it is there."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import NotLeader, QueueFull, StorageFull, TimestoneError, TopicLimit
from timestone.format.names import log_folder
from timestone.kernel.entries import NO_TOPIC
from timestone.replication.replicated_log import ReplicatedLog
from timestone.writing.write_batch import Numbers, WriteBatch
from timestone_cluster.leader import Leader
from timestone_cluster.shard.shard import Shard
from timestone_cluster.transport.refusals import refusal_of
from timestone_cluster.transport.wire import Forward, Forwarded, ForwardOpen, ForwardOpened, Letter, encoded

_FULL = (QueueFull, StorageFull, TopicLimit)


@dataclass(slots=True, eq=False)
class Sender:
    """Connection that may append to a shard for the clients of a home."""

    writer: asyncio.StreamWriter
    home: int
    generation: int
    turn: int
    term: int
    """Generation of the shard that is appended to."""

    @property
    def is_open(self) -> bool:
        """See `timestone.fronts.Correspondent`."""
        return not self.writer.transport.is_closing()

    def send(self, data: bytes) -> None:
        """See `timestone.fronts.Correspondent`."""
        _answer(self.writer, Letter(data))


class Forwards:
    """Appends for other shards at one node. Event-loop thread only."""

    def __init__(self, shards: Mapping[int, Shard], refused: frozenset[str]) -> None:
        """refused: logs that only the node itself writes."""
        self._shards, self._refused = shards, refused
        self._senders: dict[tuple[int, int], Sender] = {}
        """By shard and home."""
        self.count = 0
        """Records that were appended so far."""

    def open(self, writer: asyncio.StreamWriter, number: int, message: ForwardOpen) -> None:
        """Let a connection append for a home, and answer when all that came before is committed."""
        try:
            logs = self._opened(writer, number, message)
            ends, missing = [0] * len(logs), len(logs)
            loop = asyncio.get_running_loop()

            def answer(place: int, submission: Submission) -> None:
                nonlocal missing
                if submission.error is not None:
                    writer.transport.abort()
                    return
                ends[place] = submission.offsets.stop
                missing -= 1
                if not missing:
                    _answer(writer, ForwardOpened(tuple(ends)))

            for place, log in enumerate(logs):
                # An empty batch is committed with all that was submitted before it.
                log.submit(WriteBatch(()), ack=Ack.SYNCED, done=_in_loop(loop, answer, place))
        except (TimestoneError, ValueError) as error:
            _answer(writer, ForwardOpened((), str(error) or "not now"))

    def _opened(self, writer: asyncio.StreamWriter, number: int, message: ForwardOpen) -> list[ReplicatedLog]:
        term = self._term(number)
        logs = [self._log(number, name, is_read=True) for name in message.logs]
        if not logs:
            raise ValueError("invalid message: expected names of logs")
        home = self._shards.get(message.home)
        if home is None or home.replica.generation > message.generation:
            raise NotLeader(f"another node leads shard {message.home}")
        before = self._senders.get((number, message.home))
        if before is not None:
            if (before.generation, before.turn) >= (message.generation, message.turn):
                raise NotLeader(f"shard {message.home} appends by another connection")
            before.writer.transport.abort()
        sender = Sender(writer, message.home, message.generation, message.turn, term)
        self._senders[number, message.home] = sender
        return logs

    def append(self, writer: asyncio.StreamWriter, number: int, message: Forward) -> None:
        """Append records, and answer when they are committed."""
        try:
            self._sender(writer, number)
            log = self._log(number, message.log)
            batch = _batch(log, message)
            loop = asyncio.get_running_loop()
            log.submit(batch, ack=Ack.SYNCED, done=_in_loop(loop, self._answer, writer, message.number))
        except NotLeader:
            writer.transport.abort()
        except (TimestoneError, ValueError, OverflowError, IndexError, OSError) as error:
            _refuse(writer, message.number, error)

    def sender(self, writer: asyncio.StreamWriter, number: int) -> Sender | None:
        """Return who may append to a shard by a connection; None, and the connection ends, if no one may."""
        try:
            return self._sender(writer, number)
        except NotLeader:
            writer.transport.abort()
            return None

    def _sender(self, writer: asyncio.StreamWriter, number: int) -> Sender:
        senders = [one for (shard, _), one in self._senders.items() if shard == number]
        sender = next((one for one in senders if one.writer is writer), None)
        if sender is None or sender.term != self._term(number):
            raise NotLeader("the connection may not append any more")
        return sender

    def _answer(self, writer: asyncio.StreamWriter, number: int, submission: Submission) -> None:
        error = submission.error
        if error is None:
            self.count += submission.write_batch.count
            _answer(writer, Forwarded(number, submission.offsets.start))
        elif isinstance(error, NotLeader):
            writer.transport.abort()
        else:
            _refuse(writer, number, error)

    def _term(self, number: int) -> int:
        shard = self._shards.get(number)
        role = shard.replica.role if shard is not None else None
        if shard is None or not isinstance(role, Leader) or not role.is_serving:
            raise NotLeader(f"this node does not lead shard {number}")
        return role.generation

    def _log(self, number: int, name: str, *, is_read: bool = False) -> ReplicatedLog:
        log = self._shards[number].log(log_folder(name, number))
        if log is None or (name in self._refused and not is_read):
            raise ValueError(f"invalid log {name!r}: expected one that clients append to")
        log.check_leads()  # before it takes new topics, which only a leader numbers
        return log


def _batch(log: ReplicatedLog, message: Forward) -> WriteBatch:
    """Return the records with the topic ids of the log. Raises ValueError, OverflowError, TopicLimit, InvalidName."""
    ids = np.append(log.topics.add_all(message.names), np.uint32(NO_TOPIC))
    places = _column(message.topics, np.uint32)
    if isinstance(places, int):
        topics: int | Numbers = int(ids[-1 if places == NO_TOPIC else places])
    else:
        topics = ids[np.where(places == NO_TOPIC, len(ids) - 1, places)].astype(np.uint32)
    return WriteBatch.from_columns(
        message.stored,
        message.lengths,
        topics,
        flags=_column(message.flags, np.uint16),
        header_lengths=_column(message.header_lengths, np.uint16),
    )


def _column(column: int | bytes, kind: type[np.unsignedinteger]) -> int | Numbers:
    return column if isinstance(column, int) else np.frombuffer(column, kind)


def _in_loop(
    loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *parts: Any
) -> Callable[[Submission], None]:
    """Return what has the event loop call with an outcome; any thread may call it."""

    def done(submission: Submission) -> None:
        loop.call_soon_threadsafe(functools.partial(call, *parts, submission))

    return done


def _refuse(writer: asyncio.StreamWriter, number: int, error: Exception) -> None:
    words, is_full = str(error) or repr(error), isinstance(error, _FULL)
    _answer(writer, Forwarded(number, -1, words, is_full, refusal_of(error)))


def _answer(writer: asyncio.StreamWriter, answer: ForwardOpened | Forwarded | Letter) -> None:
    if not writer.transport.is_closing():
        writer.writelines(encoded(answer))
