"""Fast path for plain publishes: takes those of all connections in one turn of the loop as columns of records, with the
PUBACKs of each connection.

Plain are publishes at QoS 0 and 1 without properties and RETAIN, to known topics. All others are left in the buffer
for the general path (`Connection`, `handlers.publish`), which takes plain ones as well. The fast path is compiled only
(`_kernel.pyx`); `mqtt_front.kernel.loops` chooses."""

import sys
from typing import Any, NamedTuple, Protocol

import numpy as np

from mqtt_front.kernel.topic_cache import TopicCache
from timestone.writing.write_batch import WriteBatch


class Source(Protocol):
    """Connection that publishes. Implemented by `ClientProtocol`; `ingest` updates the counts."""

    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""
    publish_count: int
    """Publishes received, also refused ones."""
    refused_count: int
    exactly_once: bool
    """Whether it publishes at QoS 2 and needs the result of each publish."""

    @property
    def level(self) -> int: ...

    def hold(self) -> None:
        """Stop reading until `release`."""

    def release(self, portion: int) -> None:
        """Resume reading. portion: bytes to read before `FairShare.served` must be called; 0 for no limit."""

    def acknowledge(self, data: bytes, count: int) -> None:
        """Send acknowledgements of `count` publishes."""

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        """Report that these publishes are in the log or, with a reason of failure, never will be. Called before
        `acknowledge`."""

    def has_received(self, acknowledgement: bytes) -> bool:
        """Return whether the QoS 2 publish with the packet id of this answer is in the log; false if it could not be
        stored."""

    def refuse(self, message: str) -> None:
        """End the connection: a publish failed, and its protocol has no reason code for that."""


class PolledClient:
    """State of a client that is read and changed for each message: fields of C in the compiled twin."""

    __slots__ = (
        "closing", "counts", "delivery_count", "gathered_count", "inflight_limit", "last_seen", "permissions",
        "publish_count", "publish_rates", "received_bytes", "sent_bytes", "sent_packets", "session", "socket",
        "submitted_bytes", "target", "transport", "writable",
    )  # fmt: skip
    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""
    last_seen: int
    """Tick of the timer wheel at which something was last received."""
    writable: bool
    closing: bool
    publish_count: int
    gathered_count: int
    """Publishes that the fast path took."""
    received_bytes: int
    sent_bytes: int
    sent_packets: int
    counts: Any
    """`Counts` of all clients."""
    session: Any
    permissions: Any
    """Permissions of the client; None for all."""
    publish_rates: Any
    """Rate limits of publishes and bytes, if any."""
    socket: Any
    """Handle of the poller while it reads instead of the transport; always None here."""
    transport: Any

    def deliver(self, data: bytes, count: int = 0) -> None:
        """Send encoded packets. Dropped while closing. count: number of them that are not counted elsewhere."""
        if self.transport is None or self.closing:
            return
        self.counts.packets_sent += count
        self.counts.bytes_sent += len(data)
        self.sent_packets += count
        self.sent_bytes += len(data)
        self.transport.write(data)
        if not self.writable:
            self._unread(len(data))

    def takes_fast_path(self) -> bool:
        """Return whether publishes of the client need no check and no addition, so that the fast path may take them:
        none without the kernel."""
        return False

    def _unread(self, size_bytes: int) -> None:
        """Count what was sent while the socket was full."""
        raise NotImplementedError


class AdmittedCount:
    """Count of a connection, likewise."""

    __slots__ = ("unacknowledged",)
    unacknowledged: int
    """Number of publishes at QoS 1 and 2 that are not acknowledged. Decremented by the owner."""


def discharge(sources: list[Any], sizes: list[int]) -> None:
    """Subtract the wire bytes of settled publishes from their sources."""
    for source, size_bytes in zip(sources, sizes, strict=True):
        source.submitted_bytes -= size_bytes


class PublishColumns(NamedTuple):
    """Columns of one turn. Numbers are in native byte order."""

    log: int
    """Number of the log that takes all of them."""
    record_count: int
    size_bytes: int
    """Wire bytes of the publishes."""
    data: bytes
    """Payloads, concatenated."""
    lengths: bytes
    """Length of each payload, u32."""
    topic_ids: bytes
    """Topic id of each record, u32."""
    flags: bytes
    """Flags of each record, u8."""
    sources: list[Any]
    """Connections, each once, in order of arrival."""
    sizes: list[int]
    """Wire bytes of the publishes of each connection."""
    answers: list[bytes]
    """PUBACKs of each connection in the order of its publishes; empty at QoS 0."""

    @property
    def retained(self) -> bool:
        """Return whether some of them are to be retained, as none is that the fast path takes."""
        return False

    @property
    def acknowledged(self) -> bool:
        return any(self.answers)

    def write_batch(self) -> WriteBatch:
        return write_batch_of(self.data, self.lengths, self.topic_ids, self.flags)


def write_batch_of(
    data: bytes, lengths: bytes, topic_ids: bytes, flags: bytes, header_lengths: list[int] | int = 0
) -> WriteBatch:
    """Return a batch of records given as columns like those of `PublishColumns`."""
    same = flags.count(flags[0]) == len(flags)
    one_topic = (
        topic_ids[:4] * len(flags) == topic_ids
    )  # numpy costs more than all else about a single message
    return WriteBatch.from_columns(
        data,
        lengths,
        int.from_bytes(topic_ids[:4], sys.byteorder) if one_topic else np.frombuffer(topic_ids, np.uint32),
        flags=flags[0] if same else np.frombuffer(flags, np.uint8),
        header_lengths=header_lengths,
    )


class PublishFastPath:
    """Takes publishes from the receive buffers, connection by connection, until the turn is submitted. Without the
    kernel it takes none: in pure Python the general path takes as long."""

    count = 0
    size_bytes = 0
    """Wire bytes taken."""
    answer_count = 0
    """Number of PUBACKs due."""

    def __init__(self, known: TopicCache, packet_bytes: int) -> None:
        """known: codes of topics; refused topics have none. packet_bytes: maximum size of one packet."""
        self.paused = False
        """Set while publishes of the general path wait to be submitted first."""

    def take(self, source: Any, buffer: bytearray, position: int, end: int, level: int, room: int) -> int:
        """Take the publishes at the front of `buffer[position:end]` if all of them are plain, go to the same log as the
        earlier ones and include at most `room` at QoS 1. Return the position after them, or `position` if none was
        taken.

        source: a `Source` and `PolledClient`, for which is counted what is taken. Its `bring` gets unknown topics, once
        each in order of arrival, and returns False if the general path must decide. Raises ValueError for a position
        outside the buffer."""
        return position


class CollectedTurn:
    """Base class of `Ingest`: what the compiled one needs to append a turn of the fast path, to deliver and to
    acknowledge it."""

    _turn: Any
    modest_bytes: int
    room_bytes: int
    received_count: int
    gathered_count: int
    gathering: PublishFastPath

    def flush(self) -> None:
        """Submit the collected publishes. Called at the end of each turn."""
        if self._turn is not None:
            self._submit_turn()

    def _submit_turn(self) -> None:
        """Submit publishes that took the general path."""
        raise NotImplementedError
