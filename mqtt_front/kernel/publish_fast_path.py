"""Fast path for plain publishes: takes those of all connections in one turn of the loop as columns of records, with the
PUBACKs of each connection.

Plain are publishes at QoS 0 and 1 without properties and RETAIN, to known topics. All others are left in the buffer
for the general path (`Connection`, `handlers.publish`), which takes plain ones as well. The compiled twin in
`_kernel.pyx` needs a tenth of the time per message; `mqtt_front.kernel.loops` chooses."""

from array import array
from typing import Any, NamedTuple, Protocol

from mqtt_front.codec.scan import PublishRun, scan_publishes
from mqtt_front.kernel.topic_cache import TOPIC_BITS, TOPIC_MASK, TopicCache

_NOT_PLAIN = bytes(first for first in range(256) if first & 0x05)
"""First bytes with RETAIN or QoS 2."""
_PLAIN_FLAGS = bytes(first & 0x02 for first in range(256))


class Source(Protocol):
    """Connection that publishes. Implemented by `ClientProtocol`; `ingest` updates the counts."""

    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""
    publish_count: int
    """Publishes received, also refused ones, except for those that the poller counts."""
    gathered_count: int
    """Those of them that the fast path took."""
    refused_count: int
    exactly_once: bool
    """Whether it publishes at QoS 2 and needs the result of each publish."""

    @property
    def level(self) -> int: ...

    def bring(self, topics: list[bytes]) -> bool:
        """Have unknown topics learned, given once each in order of arrival, within the limits of the client. Return
        False if the general path must decide."""

    def hold(self) -> None:
        """Stop reading until `release`."""

    def release(self, portion: int) -> None:
        """Resume reading. portion: bytes to read before `FairShare.served` must be called; 0 for no limit."""

    def admitted(self, count: int) -> None:
        """Note that so many publishes that need acknowledgements were taken by the fast path."""

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
        "closing", "counts", "last_seen", "permissions", "publish_rates", "sent_bytes", "sent_packets", "session",
        "socket", "submitted_bytes", "transport", "writable",
    )  # fmt: skip
    submitted_bytes: int
    """Wire bytes of its publishes that are not settled."""
    last_seen: int
    """Tick of the timer wheel at which something was last received."""
    writable: bool
    closing: bool
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
    """Handle of the poller while it reads instead of the transport."""
    transport: Any

    def deliver(self, data: bytes, count: int = 0) -> None:
        """Send encoded packets. Dropped while closing. count: number of them that are not counted elsewhere."""
        if self.transport is None or self.closing:
            return
        self.counts.packets_sent += count
        self.counts.bytes_sent += len(data)
        self.sent_packets += count
        if self.socket is None:
            self.sent_bytes += len(data)
            self.transport.write(data)
        else:
            self.socket.send(self.transport, data)
        if not self.writable:
            self._unread(len(data))

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


class PublishFastPath:
    """Takes publishes from the receive buffers, connection by connection, until `finish`."""

    def __init__(self, known: TopicCache, packet_bytes: int) -> None:
        """known: codes of topics; refused topics have none. packet_bytes: maximum size of one packet."""
        self._known = known
        self._packet_bytes = packet_bytes
        self.paused = False
        """Set while publishes of the general path wait to be submitted first."""
        self.taken_count = 0
        """Publishes that the last call of `take` took."""
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.size_bytes = 0
        """Wire bytes taken."""
        self.answer_count = 0
        """Number of PUBACKs due."""
        self._log = -1
        self._data: list[bytes] = []
        self._lengths: list[bytes] = []
        self._ids = array("I")
        self._firsts: list[bytes] = []
        self._places: dict[Source, int] = {}
        self._sizes: list[int] = []
        self._answers: list[bytes] = []

    def take(self, source: Source, buffer: bytearray, position: int, end: int, level: int, room: int) -> int:
        """Take the publishes at the front of `buffer[position:end]` if all of them are plain, go to the same log as the
        earlier ones and include at most `room` at QoS 1. Return the position after them, or `position` if none was
        taken.

        Unknown topics are passed to `source.bring`. What is taken counts in `source.submitted_bytes`. Raises
        ValueError for a position outside the buffer."""
        if not 0 <= position <= end <= len(buffer):
            raise ValueError(f"bytes {position} to {end} of {len(buffer)}")
        runs = self._scanned(bytes(memoryview(buffer)[position:end]), level)
        answer_count = sum(len(run.acknowledgements) for run in runs) // 4
        if not runs or answer_count > room or not all(map(_is_plain, runs)):
            return position
        codes = {topic: self._known.get(topic, -1) for run in runs for topic in run.topics}
        unknown = [topic for topic, code in codes.items() if code < 0]
        if unknown:
            if not source.bring(unknown):
                return position
            codes.update((topic, self._known.get(topic, -1)) for topic in unknown)
        logs = {code >> TOPIC_BITS for code in codes.values()}
        if -1 in logs or len(logs | ({self._log} - {-1})) > 1:
            return position
        self._log = logs.pop()
        self.taken_count = 0
        for run in runs:
            self.taken_count += len(run.first_bytes)
            ids = [codes[topic] & TOPIC_MASK for topic in run.topics]
            self._ids.extend([ids[number] for number in array("H", run.topic_numbers)])
            self._data.append(run.data)
            self._lengths.append(run.lengths)
            self._firsts.append(run.first_bytes)
            self.count += len(run.first_bytes)
        taken_bytes = runs[-1].position
        self.size_bytes += taken_bytes
        place = self._places.setdefault(source, len(self._sizes))
        if place == len(self._sizes):
            self._sizes.append(0)
            self._answers.append(b"")
        self._sizes[place] += taken_bytes
        self._answers[place] += b"".join(run.acknowledgements for run in runs)
        self.answer_count += answer_count
        source.submitted_bytes += taken_bytes
        return position + taken_bytes

    def _scanned(self, data: bytes, level: int) -> list[PublishRun]:
        """Return the publishes at the front of `data`, in as many runs as the scanner needs."""
        runs: list[PublishRun] = []
        position = 0
        while (run := scan_publishes(data, position, len(data), level, self._packet_bytes)).first_bytes:
            runs.append(run)
            position = run.position
        return runs

    def finish(self) -> PublishColumns:
        """Return what was taken since the last call."""
        gathered = PublishColumns(
            self._log,
            self.count,
            self.size_bytes,
            b"".join(self._data),
            b"".join(self._lengths),
            self._ids.tobytes(),
            b"".join(self._firsts).translate(_PLAIN_FLAGS),
            list(self._places),
            self._sizes,
            self._answers,
        )
        self._clear()
        return gathered


def _is_plain(run: PublishRun) -> bool:
    return not run.properties and run.first_bytes.translate(None, _NOT_PLAIN) == run.first_bytes
