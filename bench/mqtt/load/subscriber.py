"""One receiving connection: bytes are collected, and checked a megabyte at a time."""

import socket

import numpy as np
import numpy.typing as npt

from .client_protocols import ClientProtocol
from .delivery_check import DeliveryCheck
from .histogram import Periods
from .packet_template import STAMP, Packets, PacketTemplate

_INBOX_BYTES = 512 * 1024
_ACK = np.dtype([("start", ">u2"), ("id", ">u2")])
_PUBACK_START = 0x4002
_RESENT_FLAG = 0x08
_RETAINED_FLAG = 0x01


class Subscriber:
    """Receives messages of one form until it has the expected number. Its socket does not block."""

    def __init__(
        self,
        channel: socket.socket,
        protocol: ClientProtocol,
        template: PacketTemplate,
        *,
        expected: int,
        latencies: Periods | None = None,
        inbox_bytes: int = 0,
    ) -> None:
        """Each message adds its latency to `latencies`, from when it was due to when its bytes were read."""
        channel.setblocking(False)
        self.channel = channel
        self.expected = expected
        self.delivery_check = DeliveryCheck()
        self.received_bytes = 0
        self.last_ns = 0
        self._protocol = protocol
        self._template = template
        self._latencies = latencies
        size = max(inbox_bytes or _INBOX_BYTES, 2 * template.size_bytes)
        self._inbox = memoryview(bytearray(size))
        self._filled = 0
        self._marks: list[tuple[int, int]] = []
        self._acks_to = 0
        """Position in the inbox of the first packet that is not acknowledged yet."""
        self._unsent = b""
        example = template.packets(bytearray(template.packet), 1)
        mask = ~(_RESENT_FLAG | _RETAINED_FLAG) & 0xFFFF if template.id_at is not None else 0xFFFF
        self._start_mask, self._start = mask, int(example["start"][0]) & mask
        self._tail = int(example["tail"][0]) if "tail" in template.dtype.names else None  # type: ignore[operator]

    @property
    def received(self) -> int:
        """Messages that have arrived, checked or not."""
        return self.received_bytes // self._template.size_bytes

    @property
    def done(self) -> bool:
        """All expected messages have arrived."""
        return self.received >= self.expected and self.delivery_check.distinct() >= self.expected

    @property
    def blocked(self) -> bool:
        """The socket did not take all acknowledgements: call `push` when it is writable."""
        return bool(self._unsent)

    def receive(self, now_ns: int) -> None:
        """Read the bytes that have arrived. Raises ConnectionError when the server closes the connection or its stream
        is not valid."""
        try:
            count = self.channel.recv_into(self._inbox[self._filled :])
        except BlockingIOError:
            return
        if not count:
            raise ConnectionError("the server closed the connection of a subscriber")
        self._filled += count
        self.received_bytes += count
        self.last_ns = now_ns
        if self._latencies is not None:
            self._marks.append((self._filled, now_ns))
        if self._template.id_at is not None:
            self._acknowledge()
        if self._filled == len(self._inbox) or self.received >= self.expected:
            self.look()

    def _acknowledge(self) -> None:
        count = (self._filled - self._acks_to) // self._template.size_bytes
        if not count:
            return
        acks = np.empty(count, _ACK)
        acks["start"] = _PUBACK_START
        acks["id"] = self._template.packets(self._inbox, count, self._acks_to)["id"]
        self._acks_to += count * self._template.size_bytes
        self._unsent += acks.tobytes()
        self.push()

    def push(self) -> None:
        """Offer the socket the acknowledgements that it has not taken yet."""
        try:
            self._unsent = self._unsent[self.channel.send(self._unsent) :]
        except BlockingIOError:
            pass

    def look(self) -> None:
        """Check and count the messages in the inbox, and make room in it."""
        size = self._template.size_bytes
        rows = self._template.packets(self._inbox, self._filled // size)
        wrong = (rows["start"] & self._start_mask) != self._start
        if self._tail is not None:
            wrong |= rows["tail"] != self._tail
        if wrong.any():
            rows = self._cut_noise(int(np.argmax(wrong)))
        if len(rows):
            self.delivery_check.add(rows["sender"], rows["number"])
            if self._latencies is not None:
                self._latencies.add(rows["sent"], self._arrival_times(len(rows)) - rows["sent"])
        end = len(rows) * size
        left = self._filled - end
        self._inbox[:left] = bytes(self._inbox[end : self._filled])
        self._marks = [(at - end, time_ns) for at, time_ns in self._marks if at > end]
        self._filled, self._acks_to = left, max(0, self._acks_to - end)

    def _arrival_times(self, count: int) -> npt.NDArray[np.int64]:
        ends, times = np.array(self._marks, np.int64).T
        own_ends = np.arange(1, count + 1) * self._template.size_bytes
        return np.asarray(times[np.searchsorted(ends, own_ends)])

    def _cut_noise(self, at: int) -> Packets:
        """Remove the server's other packets. Anything unexpected ends the run."""
        size, noise = self._template.size_bytes, self._protocol.noise
        start = at * size
        found = bytes(self._inbox[start : start + len(noise)])
        if not noise or found != noise:
            seen = bytes(self._inbox[start : start + self._template.stamp_at + STAMP.size])
            raise ConnectionError(
                f"message {self.delivery_check.received + at} differs from the published one: {seen.hex()}"
            )
        rest = bytes(self._inbox[start + len(noise) : self._filled])
        self._inbox[start : start + len(rest)] = rest
        self._filled -= len(noise)
        self.received_bytes -= len(noise)
        self._marks = [(mark - len(noise) if mark > start else mark, time) for mark, time in self._marks]
        return self._template.packets(self._inbox, at)  # the rest has its turn next time
