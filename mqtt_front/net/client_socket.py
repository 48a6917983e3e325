"""Client socket: how the socket of one client is read, written and closed. It knows no MQTT.

Reading stops for several reasons at once, may be limited to a portion, and is done by the transport or by the poller.
Bytes that the socket does not take wait in the transport. After the last packet, what the client still sends is
discarded."""

import enum
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mqtt_front.kernel import loops
from mqtt_front.runtime.loop import Transport
from mqtt_front.settings import MqttSettings

_DISCARDED_BYTES_MAX = 1 << 20
"""Maximum bytes discarded from a client after the last packet to it."""


class Hold(enum.Flag):
    """Reason for not reading from a client."""

    UNDECIDED = enum.auto()
    """Its CONNECT is not answered, or the start of a replay is being looked up."""
    UNSETTLED = enum.auto()
    """The disk has not settled enough of its publishes, or other clients have their turn."""
    UNREAD = enum.auto()
    """It does not read its answers."""


class Traffic(NamedTuple):
    """Counts of what a connection has received and sent."""

    publishes_received: int = 0
    deliveries_sent: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    packets_received: int = 0
    packets_sent: int = 0
    publishes_refused: int = 0


@dataclass(slots=True)
class Counts:
    """Counters of connections."""

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Connections that ended before the client was let in, by reason."""
    ended: Counter[str] = field(default_factory=Counter)
    """Connections of connected clients that ended, by reason."""
    forbidden: int = 0
    """Publishes to topics that the client may not write."""
    packets_received: int = 0
    packets_sent: int = 0
    """Without deliveries, which are counted where they are made."""
    bytes_received: int = 0
    bytes_sent: int = 0


class SocketPoller(Protocol):
    """Reads the sockets of plain TCP clients instead of their transports. Implemented by `Poller`."""

    def add(self, link: "ClientSocket", fd: int) -> object: ...
    def pause(self, one: object) -> None: ...
    def resume(self, one: object) -> bool: ...
    def remove(self, one: object) -> None: ...


class SocketServer(Protocol):
    """The server, as a client socket sees it."""

    settings: MqttSettings
    over: Counter[str]
    buffer: memoryview
    counts: Counts

    @property
    def poller(self) -> SocketPoller | None: ...


class ClientSocket(loops.PolledClient):
    """The socket of one client. Event-loop thread only."""

    __slots__ = (
        "began_us",
        "broker",
        "connected",
        "descriptor",
        "discarded_bytes",
        "holds",
        "number",
        "peer",
        "portion",
        "protocol",
        "received_packets",
        "refused_count",
        "unread_bytes",
    )  # fmt: skip

    def __init__(self, broker: SocketServer, descriptor: int = -1) -> None:
        """descriptor: of a socket that carries only MQTT, so that the poller may read it."""
        self.broker, self.counts = broker, broker.counts
        self.transport: Transport | None = None
        self.descriptor = descriptor
        self.socket: object = None
        self.peer = ""
        self.writable = True
        self.connected = False
        """Whether CONNACK with success was sent."""
        self.closing = False
        self.discarded_bytes = 0
        """Bytes received after the last packet to the client."""
        self.holds = Hold(0)
        """Reasons for not reading from the client."""
        self.portion = 0
        """Bytes to read before other clients have their turn; 0 for no limit."""
        self.unread_bytes = 0
        """Bytes sent since the socket was full."""
        self.protocol = "TCP"
        """Protocols of its listener, for people."""
        self.number = 0
        """Number of the connection among those accepted since the start."""
        self.began_us = 0
        """When the client was let in, in microseconds since 1970."""
        self.publish_count = self.delivery_count = self.received_bytes = self.sent_bytes = 0
        self.gathered_count = 0
        """Publishes among them that the fast path took, which are not in `received_packets`."""
        self.received_packets = self.sent_packets = 0
        """Other packets, without deliveries."""
        self.refused_count = 0
        """Publishes that were refused."""

    @property
    def traffic(self) -> Traffic:
        """Return what the connection has received and sent."""
        return Traffic(
            self.publish_count,
            self.delivery_count,
            self.received_bytes,
            self.sent_bytes,
            self.received_packets + self.gathered_count,
            self.sent_packets + self.delivery_count,
            self.refused_count,
        )

    @property
    def address(self) -> str:
        """Return the address of the client without the port."""
        return self.peer.rpartition(":")[0]

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that the socket of the client has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def certificate_name(self) -> str | None:
        """Return the user in the client's certificate, if its listener uses it."""
        if self.transport is None:
            return None
        name: str | None = self.transport.get_extra_info("certificate_name")
        return name

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "unknown"
        transport.set_write_buffer_limits(high=self.broker.settings.unsent_bytes)

    def get_buffer(self, size_hint: int) -> memoryview:
        buffer = self.broker.buffer
        return buffer[: self.portion] if self.portion else buffer

    def eof_received(self) -> bool:
        return False

    def _unread(self, size_bytes: int) -> None:
        self.unread_bytes += size_bytes
        if self.unread_bytes > self.broker.settings.unsent_bytes and Hold.UNREAD not in self.holds:
            # It sends requests and reads no answers, which would fill the memory.
            self.broker.over["unsent_bytes"] += 1
            self._read_no_more(Hold.UNREAD)

    def hold(self) -> None:
        self._read_no_more(Hold.UNSETTLED)

    def release(self, portion: int) -> None:
        self.portion = portion
        self._read_on(Hold.UNSETTLED)

    def _read_no_more(self, why: Hold) -> None:
        if not self.holds and self.transport is not None and not self.closing:
            if self.socket is None:
                self.transport.pause_reading()
            elif self.broker.poller is not None:
                self.broker.poller.pause(self.socket)
        self.holds |= why

    def _read_on(self, why: Hold) -> None:
        before = self.holds
        self.holds &= ~why
        if before:
            self._read()

    def _read(self) -> None:
        """Read by the fastest way available, unless there is a reason not to."""
        transport, poller = self.transport, self.broker.poller
        if self.holds or transport is None or self.closing:
            return
        if self.portion:  # the poller reads without limit
            self._leave_poller()
            transport.resume_reading()
        elif poller is None or self.descriptor < 0 or not self.connected:
            transport.resume_reading()
        elif self.socket is None:
            transport.pause_reading()
            self.socket = poller.add(self, self.descriptor)
            if self.socket is None:
                transport.resume_reading()
        elif not poller.resume(self.socket):
            self._leave_poller()
            transport.resume_reading()

    def welcomed(self) -> None:
        """Note that CONNACK with success was sent."""
        self.connected = True
        self.began_us = time.time_ns() // 1000
        self._read()

    def _leave_poller(self) -> bool:
        """Leave the socket to its transport. Return whether the poller read it."""
        one, self.socket = self.socket, None
        if one is not None and self.broker.poller is not None:
            self.broker.poller.remove(one)
        return one is not None

    def read_by(self, descriptor: int) -> None:
        """Have the poller read the socket with this descriptor, or with -1 only the transport."""
        self._leave_poller()
        self.descriptor = descriptor
        self._read()

    def shut(self, transport: Transport, *, linger: bool) -> None:
        """Close when everything is written. With `linger` only the server's direction is closed first, and received
        bytes are discarded: a socket closed while its peer sends is reset, which discards what the peer has not
        read."""
        self.closing = True
        paused = self._leave_poller() or bool(self.holds)
        if not linger:
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:  # reset by the client
            transport.abort()
            return
        if paused:
            transport.resume_reading()

    def abort(self) -> None:
        """Close at once and drop what is unwritten."""
        self._leave_poller()
        if self.transport is not None:
            self.transport.abort()

    def _discard(self, count: int) -> None:
        self.broker.counts.bytes_received += count
        self.received_bytes += count
        self.discarded_bytes += count
        if self.discarded_bytes > _DISCARDED_BYTES_MAX:
            self.abort()
