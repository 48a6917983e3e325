"""One connection that publishes: a batch is stamped column by column and leaves in one system call."""

import socket
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .form import Form
from .histogram import Histogram
from .wire import PACKET_IDS, Wire

_BATCH_BYTES = 64 * 1024
_RECEIVE_BYTES = 64 * 1024
_ACK = np.dtype([("start", ">u2"), ("id", ">u2")])
_PUBACK_START = 0x4002
_IDS = (np.arange(PACKET_IDS + _RECEIVE_BYTES // 4 + 1) % PACKET_IDS + 1).astype(">u2")
"""The packet ids of messages in turn, and beyond the last one as many again as are looked at together."""
_ACKS = b"".join(b"\x40\x02" + packet_id.tobytes() for packet_id in _IDS)
"""The PUBACKs of these: what a server says is compared with what it should say, all at once."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When each message of a publisher is to be sent. What is sent late is stamped with the time it was due, so that
    a server that keeps its clients waiting does not hide behind them (coordinated omission)."""

    start_ns: int
    interval_ns: float

    def due(self, number: int) -> int:
        """When message `number` is due."""
        return self.start_ns + int(number * self.interval_ns)

    def due_count(self, now_ns: int) -> int:
        """How many messages are due by now."""
        return max(0, int((now_ns - self.start_ns) / self.interval_ns) + 1)

    def due_times(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """The same for `count` messages from `first` on."""
        times = self.start_ns + np.arange(first, first + count) * self.interval_ns
        return np.asarray(times, dtype=np.int64)


class Publisher:
    """Sends what it is allowed to, and counts what is acknowledged. Its socket does not block."""

    def __init__(
        self, channel: socket.socket, wire: Wire, form: Form, sender: int, *, messages: int, window: int
    ) -> None:
        """`window` bounds what is unacknowledged at QoS 1; it is at most PACKET_IDS."""
        channel.setblocking(False)
        self.channel = channel
        self.sender = sender
        self.messages = messages
        self.sent = self.acknowledged = self.misordered_acks = 0
        self.schedule: Schedule | None = None
        self.topics: npt.NDArray[np.bytes_] | None = None
        """What the messages put at the end of their topic, in turn."""
        self.latencies = Histogram()
        """From when a message was due to its acknowledgement."""
        self._wire = wire
        self._form = form
        self._acks = form.id_at is not None
        self._window = min(window, messages) if self._acks else messages
        self._batch = max(1, min(self._window, messages, _BATCH_BYTES // form.size_bytes))
        self._data = form.buffer(self._batch)
        self._rows = form.packets(self._data, self._batch)
        self._rows["sender"] = sender
        self._numbers, self._due = self._rows["number"], self._rows["sent"]
        self._ids = self._rows["id"] if self._acks else None
        self._count_up = np.arange(max(self._batch, _RECEIVE_BYTES // 4 + 1))
        self._times = np.zeros(self._window if self._acks else 0, np.int64)
        self._unsent: memoryview | None = None
        self._tail = b""
        self._past_barrier = False
        self._barrier_sent = False

    @property
    def blocked(self) -> bool:
        """The socket did not take everything: call `push` when it is writable."""
        return self._unsent is not None

    @property
    def done(self) -> bool:
        """Everything was sent, and the server has said that it is settled."""
        return self.acknowledged == self.messages if self._acks else self._past_barrier

    @property
    def room(self) -> int:
        """How many messages may be sent now."""
        left = self.messages - self.sent
        return min(left, self._window - (self.sent - self.acknowledged)) if self._acks else left

    def send(self, allowed: int, now_ns: int) -> int:
        """Send at most `allowed` messages and one batch; returns how many were taken."""
        count = min(allowed, self._batch)
        if count <= 0 or self._unsent is not None:
            return 0
        if count == 1 and self.topics is None:
            due = now_ns if self.schedule is None else self.schedule.due(self.sent)
            self._form.write_one(self._data, self.sender, self.sent, due, self.sent % PACKET_IDS + 1)
            if self._acks:
                self._times[self.sent % self._window] = due
        else:
            self._fill(count, now_ns)
        self.sent += count
        self._unsent = memoryview(self._data)[: count * self._form.size_bytes]
        self.push()
        return count

    def _fill(self, count: int, now_ns: int) -> None:
        numbers = self._count_up[:count] + self.sent
        self._numbers[:count] = numbers
        due = now_ns if self.schedule is None else self.schedule.due_times(self.sent, count)
        self._due[:count] = due
        if self._ids is not None:
            first = self.sent % PACKET_IDS
            self._ids[:count] = _IDS[first : first + count]
            self._times[self._places(self.sent, count)] = due
        if self.topics is not None:
            self._rows["topic"][:count] = self.topics[numbers % len(self.topics)]

    def _places(self, first: int, count: int) -> slice | npt.NDArray[np.int64]:
        """Where the times of `count` messages from number `first` on are kept."""
        at = first % self._window
        if at + count <= self._window:
            return slice(at, at + count)
        return (self._count_up[:count] + first) % self._window

    def push(self) -> None:
        """Offer the socket what it has not taken yet."""
        if self._unsent is None:
            return
        try:
            taken = self.channel.send(self._unsent)
        except BlockingIOError:
            return
        self._unsent = self._unsent[taken:] if taken < len(self._unsent) else None

    def send_barrier(self, topic: str) -> None:
        """Once everything is sent at QoS 0: ask whether it has arrived."""
        if self._acks or self._barrier_sent or self._unsent is not None or self.sent < self.messages:
            return
        self._barrier_sent = True
        self.channel.setblocking(True)
        self.channel.sendall(self._wire.barrier(topic))
        self.channel.setblocking(False)

    def receive(self, now_ns: int) -> None:
        """Count acknowledgements. Raises ConnectionError when the server hangs up or says something else."""
        try:
            data = self.channel.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError(f"the server closed the connection of publisher {self.sender}")
        if self._tail:
            data = self._tail + data
        if not self._acks:
            self._past_barrier = self._barrier_sent and self._wire.is_past_barrier(data)
            self._tail = b"" if self._past_barrier else data[-1024:]
            return
        count = len(data) // 4
        self._tail = data[count * 4 :]
        if count == 1:
            self._acknowledge_one(data, now_ns)
        elif count:
            self._acknowledge(data[: count * 4], count, now_ns)

    def _acknowledge_one(self, data: bytes, now_ns: int) -> None:
        if data[0] << 8 | data[1] != _PUBACK_START or self.acknowledged >= self.sent:
            raise ConnectionError(f"not a PUBACK that anybody waits for: {data[:4].hex()}")
        if data[2] << 8 | data[3] != self.acknowledged % PACKET_IDS + 1:
            self.misordered_acks += 1
        at = self.acknowledged % self._window
        self.latencies.add(now_ns - self._times[at : at + 1])
        self.acknowledged += 1

    def _acknowledge(self, data: bytes, count: int, now_ns: int) -> None:
        first = self.acknowledged % PACKET_IDS
        if data != _ACKS[first * 4 : (first + count) * 4]:
            self._note_misordered(np.frombuffer(data, _ACK), _IDS[first : first + count])
        if self.acknowledged + count > self.sent:
            raise ConnectionError(f"not PUBACKs that anybody waits for: {data[:16].hex()}")
        self.latencies.add(now_ns - self._times[self._places(self.acknowledged, count)])
        self.acknowledged += count

    def _note_misordered(self, acks: npt.NDArray[np.void], expected: npt.NDArray[np.uint16]) -> None:
        if (acks["start"] != _PUBACK_START).any():
            raise ConnectionError(f"not PUBACKs that anybody waits for: {acks[:4].tobytes().hex()}")
        self.misordered_acks += int(np.count_nonzero(acks["id"] != expected))
