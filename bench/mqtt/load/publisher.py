"""One publishing connection: a batch is stamped column by column and sent in one system call."""

import socket
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ack_latency import AckLatency
from .client_protocols import PACKET_IDS, ClientProtocol
from .histogram import Histogram
from .packet_template import PacketTemplate

_BATCH_BYTES = 64 * 1024
_BATCHES = 8
"""Batches that are numbered together if they are small."""
_RECEIVE_BYTES = 64 * 1024
_RECEIVE_LEAST_BYTES = 256
_ACK = np.dtype([("start", ">u2"), ("id", ">u2")])
_PUBACK_START = 0x4002
_IDS = (np.arange(PACKET_IDS + _RECEIVE_BYTES // 4 + 1) % PACKET_IDS + 1).astype(">u2")
"""The packet ids of messages in turn, and beyond the last one as many again as are compared together."""
_ACKS = b"".join(b"\x40\x02" + packet_id.to_bytes(2, "big") for packet_id in _IDS.tolist())
"""The PUBACKs of these: a server's acknowledgements are compared with the expected ones all at once."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Due times of a publisher's messages. A message that is sent late is stamped with its due time, so that a server
    that keeps its clients waiting cannot hide it (coordinated omission)."""

    start_ns: int
    interval_ns: float

    def due(self, number: int) -> int:
        """Return when message `number` is due."""
        return self.start_ns + int(number * self.interval_ns)

    def due_count(self, now_ns: int) -> int:
        """Return how many messages are due by now."""
        return max(0, int((now_ns - self.start_ns) / self.interval_ns) + 1)

    def due_times(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Return the due times of `count` messages from `first` on."""
        times = self.start_ns + np.arange(first, first + count) * self.interval_ns
        return np.asarray(times, dtype=np.int64)


class Publisher:
    """Sends the messages that its pacing allows, and counts acknowledgements. Its socket does not block."""

    def __init__(
        self,
        channel: socket.socket,
        protocol: ClientProtocol,
        template: PacketTemplate,
        sender: int,
        *,
        messages: int,
        window: int,
    ) -> None:
        """`window` bounds the unacknowledged messages at QoS 1; it is at most PACKET_IDS."""
        channel.setblocking(False)
        self.channel = channel
        self.sender = sender
        self.messages = messages
        self.sent = self.acknowledged = self.misordered_acks = 0
        self.schedule: Schedule | None = None
        self.topics: npt.NDArray[np.bytes_] | None = None
        """The endings of the messages' topics, in turn."""
        self._ack_latency = AckLatency()
        # Python allocates all of it each time.
        self._receive_bytes = min(_RECEIVE_BYTES, max(_RECEIVE_LEAST_BYTES, window * _ACK.itemsize))
        self._protocol = protocol
        self._template = template
        self._acks = template.id_at is not None
        self._window = min(window, messages) if self._acks else messages
        self._batch = max(1, min(self._window, messages, _BATCH_BYTES // template.size_bytes))
        self._row_count = self._batch * max(
            1, min(_BATCHES, _BATCH_BYTES // (self._batch * template.size_bytes))
        )
        self._data = template.buffer(self._row_count)
        self._view = memoryview(self._data)
        self._rows = template.packets(self._data, self._row_count)
        self._rows["sender"] = sender
        self._due = self._rows["sent"]
        self._next_row = self._row_count
        """The row of the next message. After the last row, all are numbered again."""
        self._unsent = self._view[:0]
        self._tail = b""
        self._past_barrier = False
        self._barrier_sent = False

    @property
    def blocked(self) -> bool:
        """The socket did not take everything: call `push` when it is writable."""
        return bool(self._unsent)

    @property
    def latencies(self) -> Histogram:
        """Time from when a message was due to its acknowledgement."""
        return self._ack_latency.histogram()

    @property
    def done(self) -> bool:
        """Everything was sent, and the server has confirmed that it is settled."""
        return self.acknowledged == self.messages if self._acks else self._past_barrier

    @property
    def room(self) -> int:
        """Return how many messages may be sent now."""
        left = self.messages - self.sent
        return min(left, self._window - (self.sent - self.acknowledged)) if self._acks else left

    def send(self, allowed: int, now_ns: int) -> int:
        """Send at most `allowed` messages and one batch; return how many were taken."""
        if allowed <= 0 or self.blocked:
            return 0
        row = self._next_row
        if row == self._row_count:
            row = 0
            self._number_rows()
        count = min(allowed, self._batch, self._row_count - row)
        if self.schedule is None:
            self._stamp(row, count, now_ns)
        elif count == 1:
            self._stamp(row, 1, self.schedule.due(self.sent))
        else:
            times = self._due[row : row + count] = self.schedule.due_times(self.sent, count)
            if self._acks:
                self._ack_latency.sent_apart(times)
        self.sent += count
        self._next_row = row + count
        size = self._template.size_bytes
        self._offer(self._view[row * size : (row + count) * size])
        return count

    def _number_rows(self) -> None:
        first = self.sent
        numbers = np.arange(first, first + self._row_count)
        self._rows["number"] = numbers
        if self._acks:
            place = first % PACKET_IDS
            self._rows["id"] = _IDS[place : place + self._row_count]
        if self.topics is not None:
            self._rows["topic"] = self.topics[numbers % len(self.topics)]

    def _stamp(self, row: int, count: int, due_ns: int) -> None:
        """Stamp these rows with one due time."""
        if count == 1:
            self._template.stamp_time(self._data, row, due_ns)
        else:
            self._due[row : row + count] = due_ns
        if self._acks:
            self._ack_latency.sent(count, due_ns)

    def push(self) -> None:
        """Offer the socket the bytes that it has not taken yet."""
        if self.blocked:
            self._offer(self._unsent)

    def _offer(self, data: memoryview) -> None:
        try:
            taken = self.channel.send(data)
        except BlockingIOError:
            taken = 0
        self._unsent = data[taken:]

    def send_barrier(self, topic: str) -> None:
        """At QoS 0, once everything is sent: ask the server whether it has arrived."""
        if self._acks or self._barrier_sent or self.blocked or self.sent < self.messages:
            return
        self._barrier_sent = True
        self.channel.setblocking(True)
        self.channel.sendall(self._protocol.barrier(topic))
        self.channel.setblocking(False)

    def receive(self, now_ns: int) -> None:
        """Count acknowledgements. Raises ConnectionError when the server closes the connection or sends anything
        else."""
        try:
            data = self.channel.recv(self._receive_bytes)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError(f"the server closed the connection of publisher {self.sender}")
        if self._tail:
            data = self._tail + data
        if not self._acks:
            self._past_barrier = self._barrier_sent and self._protocol.is_past_barrier(data)
            self._tail = b"" if self._past_barrier else data[-1024:]
            return
        count = len(data) // 4
        self._tail = data[count * 4 :]
        if count:
            self._acknowledge(data[: count * 4], count, now_ns)

    def _acknowledge(self, data: bytes, count: int, now_ns: int) -> None:
        first = self.acknowledged % PACKET_IDS
        if data != _ACKS[first * 4 : (first + count) * 4]:
            self._note_misordered(np.frombuffer(data, _ACK), _IDS[first : first + count])
        if self.acknowledged + count > self.sent:
            raise ConnectionError(f"expected PUBACKs of unacknowledged messages, got {data[:16].hex()}")
        self._ack_latency.acknowledged(count, now_ns)
        self.acknowledged += count

    def _note_misordered(self, acks: npt.NDArray[np.void], expected: npt.NDArray[np.uint16]) -> None:
        if (acks["start"] != _PUBACK_START).any():
            raise ConnectionError(
                f"expected PUBACKs of unacknowledged messages, got {acks[:4].tobytes().hex()}"
            )
        self.misordered_acks += int(np.count_nonzero(acks["id"] != expected))
