"""What a node answers to clients of the cluster: appends, questions about its logs, and clients of the front that have
arrived at another node."""

import asyncio
from collections.abc import Callable, Collection, Mapping

from timestone.commit.submission import Submission
from timestone.config import Ack
from timestone.errors import InvalidName, NotLeader, StorageFull, TimestoneError, TopicLimit, UnknownLog
from timestone.format.names import log_folder
from timestone.fronts import Arrived
from timestone.replication.replicated_log import ReplicatedLog
from timestone.store import Store
from timestone.writing.write_batch import WriteBatch
from timestone_cluster.etcd.keys import check_log_name, folder_of
from timestone_cluster.fronts.state_log import STATE_LOG
from timestone_cluster.node.forwarded import Forwards
from timestone_cluster.node.front_host import FrontHost
from timestone_cluster.shard.shard import Shard
from timestone_cluster.transport.links import plain_descriptor
from timestone_cluster.transport.refusals import refusal_of
from timestone_cluster.transport.wire import (
    Append,
    Appended,
    Describe,
    Described,
    Forward,
    ForwardOpen,
    Letter,
    LogState,
    Message,
    Relay,
    Relayed,
    encoded,
)

_ANSWER_BYTES = 4 << 20


class Requests:
    """Requests to one node. Event-loop thread only."""

    def __init__(
        self,
        store: Store,
        shards: Mapping[int, Shard],
        damaged: Callable[[], frozenset[str]],
        host: FrontHost | None,
        own_logs: Collection[str] = (STATE_LOG,),
        observed: Collection[int] = (),
    ) -> None:
        """damaged: returns the folders of damaged logs. host: of the front, if the node has one. own_logs: to which no
        client appends. observed: shards of which this node has promised nothing."""
        self._own_logs, self._observed = own_logs, observed
        self._store, self._shards, self._damaged = store, shards, damaged
        self._host = host
        self.forwards = Forwards(shards, frozenset(own_logs))

    def handle(self, writer: asyncio.StreamWriter, number: int, message: Message) -> bool:
        """Answer a request for a shard. Return whether the connection is a front's from now on."""
        if isinstance(message, Describe):
            _answer(writer, Described(message.number, self._states()))
        elif isinstance(message, Relay):
            return self._relay(writer, number, message)
        elif isinstance(message, ForwardOpen):
            self.forwards.open(writer, number, message)
        elif isinstance(message, Forward):
            self.forwards.append(writer, number, message)
        elif isinstance(message, Letter):
            sender = self.forwards.sender(writer, number)
            if sender is not None and self._host is not None:
                self._host.heard(number, sender.home, message.data, sender)
        elif isinstance(message, Append):
            try:
                self._append(writer, number, message)
            except (TimestoneError, ValueError, OSError) as error:
                is_refused = isinstance(error, ValueError | TopicLimit)
                refusal = refusal_of(error)
                found = Appended(message.number, -1, f"{error}", is_refused=is_refused, refusal=refusal)
                _answer(writer, found)
        else:
            writer.transport.abort()
        return False

    def _relay(self, writer: asyncio.StreamWriter, number: int, message: Relay) -> bool:
        transport = writer.transport
        if transport.is_closing():
            return False
        client = Arrived(
            message.door,
            (message.host, message.port),
            message.user,
            number,
            keep=writer,
            descriptor=plain_descriptor(transport),
        )
        found = self._host.admit(client) if self._host is not None else None
        if found is None:
            writer.writelines(encoded(Relayed("this node serves no clients now")))
            return False
        writer.writelines(encoded(Relayed()))
        transport.set_protocol(found)
        found.connection_made(transport)
        return True

    def _states(self) -> tuple[LogState, ...]:
        """Return what this node has of all logs, with or without a place in their shards, but for what it observes:
        recovery counts replicas."""
        damaged, states = self._damaged(), []
        for name, number in self._store.log_names():
            if number in self._observed:
                continue
            try:
                log, folder = self._store.log(name, number, create=False), log_folder(name, number)
            except UnknownLog:
                continue  # it was deleted since
            assert isinstance(log, ReplicatedLog)
            replica = self._shards[number].replica if number in self._shards else None
            known_logs = replica.logs.items() if replica is not None else ()
            is_out = any(state.damaged for known, state in known_logs if folder_of(known) == folder)
            is_damaged = folder in damaged or not log.is_whole or is_out
            known = max(log.last_generation, replica.generation if replica is not None else 0)
            record = replica.record if replica is not None else None
            is_in_sync = record is not None and replica is not None and replica.member in record.isr
            offsets = log.local_start_offset, log.written_offset, log.end_offset
            flags = is_damaged, is_in_sync
            states.append(LogState(number, name, *offsets, log.last_generation, known, *flags, log.ceiling))
        return tuple(states)

    def _append(self, writer: asyncio.StreamWriter, number: int, message: Append) -> None:
        shard = self._shards.get(number)
        log = shard.log(log_folder(check_log_name(message.log), number)) if shard is not None else None
        if shard is None or log is None:
            raise NotLeader(f"this node has no replica of {message.log} in shard {number}")
        if message.log in self._own_logs:
            raise InvalidName(f"log {message.log} is the server's own")
        log.check_leads()  # before it takes new topics, which only a leader numbers
        if not message.payloads or len(message.topics) not in (0, len(message.payloads)):
            raise ValueError("invalid append: expected records, and no topics or one for each")
        topics = log.topics.add_all(message.topics) if message.topics else None
        batch = WriteBatch(message.payloads) if topics is None else WriteBatch(message.payloads, topics)
        loop = asyncio.get_running_loop()

        def done(submission: Submission) -> None:
            loop.call_soon_threadsafe(answer, submission)

        def answer(submission: Submission) -> None:
            error = submission.error
            if error is None:
                found = Appended(message.number, submission.offsets.start)
            else:
                is_unknown = not isinstance(error, StorageFull)  # which is raised before anything is written
                refusal = refusal_of(error)
                found = Appended(message.number, -1, f"{error}", is_unknown=is_unknown, refusal=refusal)
            _answer(writer, found)

        log.submit(batch, ack=Ack.SYNCED, done=done)


def _answer(writer: asyncio.StreamWriter, answer: Appended | Described) -> None:
    if writer.transport.is_closing():
        return
    if writer.transport.get_write_buffer_size() > _ANSWER_BYTES:
        writer.transport.abort()  # takes no answers
        return
    writer.writelines(encoded(answer))
