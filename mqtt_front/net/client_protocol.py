"""One client's socket: bytes from the transport into its connection, events to the broker, packets back.

The methods in asyncio's words are what a `BufferedProtocol` is; `listener` mixes this class with asyncio's.
All links read into one buffer that the broker lends them: what arrives is copied out before the call returns.
"""

import enum
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from mqtt_front.codec import packets
from mqtt_front.codec.encode import encode_packet
from mqtt_front.codec.packets import MQTT_5, Packet
from mqtt_front.codec.properties import NO_PROPERTIES, Properties
from mqtt_front.delivery.delivery import Delivery
from mqtt_front.errors import MqttError, ProtocolViolation
from mqtt_front.ingest.ingest import Ingest
from mqtt_front.ingest.routing import Router
from mqtt_front.net.outbound_limit import Unsent
from mqtt_front.protocol.connection import Connection, Inbound
from mqtt_front.protocol.events import Event, Publishes, packet_count
from mqtt_front.reasons import Reason, connack_code_3, connack_reason
from mqtt_front.runtime.loop import Transport
from mqtt_front.runtime.timer_wheel import Deadlines
from mqtt_front.runtime.token_bucket import Rate
from mqtt_front.security.identity import Identity
from mqtt_front.security.rules import Permissions
from mqtt_front.security.scram import ScramExchange
from mqtt_front.sessions.session import Session, Target
from mqtt_front.settings import MqttSettings
from mqtt_front.wills.wills import KeptWill

FRONT_BYTES = 16 * 1024
"""Room in front of the receive buffer: an incomplete packet of up to this size is put there, so that it lies in one
piece with the rest of it."""
PACKET_BYTES_MAX = 5 + 268_435_455
"""The largest packet that MQTT can frame."""
_UNCONNECTED = Target(packets.MQTT_3_1_1, PACKET_BYTES_MAX)


_REDIRECTS = (Reason.USE_ANOTHER_SERVER, Reason.SERVER_MOVED)
_REASON_STRING_MAX = 200
_DISCARDED_BYTES_MAX = 1 << 20
"""What a client may still send after our last word to it."""
_NOT_EXPLAINED = frozenset((
    Reason.BAD_USER_NAME_OR_PASSWORD,
    Reason.NOT_AUTHORIZED,
    Reason.BANNED,
    Reason.BAD_AUTHENTICATION_METHOD,
    Reason.SESSION_TAKEN_OVER,
))  # fmt: skip
"""Whoever is not let in learns nothing about others, nor why."""


class Hold(enum.Flag):
    """Why nothing is read from a client."""

    UNDECIDED = enum.auto()
    """Its CONNECT is not answered yet, or where a replay that it asks for begins is being looked up."""
    UNSETTLED = enum.auto()
    """The disk has not settled enough of its publishes, or it is others' turn."""
    UNREAD = enum.auto()
    """It does not read its answers."""


class Exchange(NamedTuple):
    """An enhanced authentication that is under way."""

    scram: ScramExchange
    connect: packets.Connect | None
    """The CONNECT that it answers; None for one that the client begins again while it is connected."""


class Stay:
    """The time that a client may be connected, watched by the deadlines of the front: its token ends with it."""

    __slots__ = ("_link", "allowed_ticks", "last_seen", "looked_at")

    def __init__(self, link: "Link", now: int, allowed_ticks: int) -> None:
        self._link = link
        self.last_seen = now
        self.allowed_ticks = allowed_ticks
        self.looked_at = 0

    def overdue(self) -> None:
        """The time is over."""
        self._link.end(Reason.NOT_AUTHORIZED, "its token has expired")


class Counts(Protocol):
    """What links count. Implemented by `mqtt_front.metrics.Counts`."""

    packets_received: int
    packets_sent: int
    bytes_received: int
    bytes_sent: int


class PolledSocket(Protocol):
    """One socket of the poller, as its link sees it."""

    def send(self, transport: Transport, data: bytes) -> None:
        """Send behind what waits in the transport, which takes over what the socket does not."""


class SocketPoller(Protocol):
    """Reads the sockets of plain TCP links instead of their transports. Implemented by `Poller`."""

    def add(self, link: "Link", fd: int) -> PolledSocket | None: ...
    def pause(self, one: PolledSocket) -> None: ...
    def resume(self, one: PolledSocket) -> bool: ...
    def remove(self, one: PolledSocket) -> None: ...


class LinkServer(Protocol):
    """What a link needs of the server: its parts, and calls for what happens. Implemented by `Broker`."""

    settings: MqttSettings
    inbound: Inbound
    deadlines: Deadlines
    delivery: Delivery
    ingest: Ingest
    router: Router
    unsent: Unsent
    over: Counter[str]
    memory: bytearray
    buffer: memoryview

    @property
    def counts(self) -> Counts: ...
    @property
    def poller(self) -> SocketPoller | None: ...

    def new_rates(self) -> tuple[Rate | None, Rate | None] | None: ...
    def arrived(self, link: "Link") -> None: ...
    def publish(self, link: "Link", run: Publishes) -> None: ...
    def handle(self, link: "Link", event: Event) -> None: ...
    def moved(self, session: Session, count: int) -> None: ...
    def settled(self, key: str, packet_ids: list[int], *, stored: bool) -> None: ...
    def closing(self, link: "Link", *, linger: bool) -> bool: ...
    def gone(self, link: "Link", how: str, level: int = ...) -> None: ...
    def departed(self, link: "Link") -> None: ...


class Link:
    """One connected socket, from accept to the last byte."""

    __slots__ = (
        "allow_anonymous",
        "allowed_ticks",
        "awaited",
        "bridge",
        "broker",
        "client_id",
        "closing",
        "connected",
        "connection",
        "descriptor",
        "discarded_bytes",
        "exactly_once",
        "exchange",
        "filters_served",
        "holds",
        "identity",
        "inflight_limit",
        "last_seen",
        "looked_at",
        "owner",
        "peer",
        "permissions",
        "portion",
        "publish_rates",
        "refusal",
        "requests",
        "session",
        "session_key",
        "socket",
        "stay",
        "submitted_bytes",
        "target",
        "transport",
        "unread_bytes",
        "will",
        "writable",
    )  # fmt: skip

    def __init__(self, broker: LinkServer, *, allow_anonymous: bool = True, descriptor: int = -1) -> None:
        """`allow_anonymous`: its listener lets clients in that do not say who they are. `descriptor`: of a socket that
        speaks nothing but MQTT, so that others than its transport may read it."""
        self.broker = broker
        self.allow_anonymous = allow_anonymous
        self.connection = Connection(broker.inbound)
        self.transport: Transport | None = None
        self.descriptor = descriptor
        self.socket: PolledSocket | None = None
        """Where the poller reads and not the transport: how it knows this link."""
        self.peer = ""
        self.client_id = ""
        self.session_key = ""
        """The key of its session, also when that is another connection's by now."""
        self.owner = ""
        """Whose share of the limits it uses (`Shares`)."""
        self.bridge = False
        """The client is another server's bridge."""
        self.session: Session | None = None
        self.will: KeptWill | None = None
        self.target = _UNCONNECTED
        self.inflight_limit = 0
        self.writable = True
        self.connected = False
        """CONNACK with success was sent."""
        self.closing = False
        self.discarded_bytes = 0
        """What came after our last word."""
        self.awaited = "CONNECT"
        """What the client has to do next before it is connected."""
        self.identity: Identity | None = None
        """Who the client is; None while that is not known."""
        self.permissions: Permissions | None = None
        """What the client may do; None for everything."""
        self.exchange: Exchange | None = None
        """An enhanced authentication that is under way."""
        self.stay: Stay | None = None
        """How long the client may stay connected, if not without end."""
        self.refusal: ProtocolViolation | None = None
        """Why a CONNECT on this link will be refused, known since it was accepted."""
        self.publish_rates = broker.new_rates()
        """How fast the client may publish, if there is a limit to it: publishes and bytes."""
        self.requests: Rate | None = None
        """How often the client may ask for something that is answered one by one, once it did."""
        self.filters_served = 0
        """Topic filters that were served since other clients had their turn."""
        self.holds = Hold(0)
        """Why nothing is read from the client, if nothing is."""
        self.portion = 0
        """How many bytes are read before it is others' turn; 0: as many as come."""
        self.unread_bytes = 0
        """What was sent since the socket took no more."""
        self.submitted_bytes = 0
        self.exactly_once = False
        """The client publishes at QoS 2."""
        self.last_seen = 0
        self.allowed_ticks = 0
        self.looked_at = 0

    @property
    def level(self) -> int:
        return self.connection.level

    def __repr__(self) -> str:
        """What log lines call this client. Client ids come from outside: quoted, and not without end."""
        name = f"client {self.client_id[:100]!r} at " if self.client_id else ""
        return f"{name}{self.peer}"

    @property
    def address(self) -> str:
        """Where the client connects from, without the port."""
        return self.peer.rpartition(":")[0]

    @property
    def unsent_bytes(self) -> int:
        """What the client's socket has not taken yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    @property
    def certificate_name(self) -> str | None:
        """The user in the client's certificate, where its listener takes it from there."""
        if self.transport is None:
            return None
        name: str | None = self.transport.get_extra_info("certificate_name")
        return name

    def may_write(self, topic: str) -> bool:
        """May the client publish to this topic?"""
        return self.permissions is None or self.permissions.may_write(topic)

    # What asyncio calls.

    def connection_made(self, transport: Transport) -> None:
        self.transport = transport
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "unknown"
        transport.set_write_buffer_limits(high=self.broker.settings.unsent_bytes)
        self.broker.arrived(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        buffer = self.broker.buffer
        return buffer[: self.portion] if self.portion else buffer

    def buffer_updated(self, count: int) -> None:
        if self.closing:
            self._discard(count)
            return
        broker, connection = self.broker, self.connection
        memory, position, end = broker.memory, FRONT_BYTES, FRONT_BYTES + count
        if self.is_plain and (front := connection.front(memory, FRONT_BYTES)) >= 0:
            position = broker.ingest.gather(self, memory, front, end, connection.level, connection.room)
        broker.counts.bytes_received += count
        self.last_seen = broker.deadlines.now
        if position < end:
            self.take_rest(position, end)
        if self.portion:
            self._served(count)

    @property
    def is_plain(self) -> bool:
        """Nothing has to be asked or added for what the client publishes: it may be gathered."""
        session = self.session
        return (
            session is not None
            and self.permissions is None
            and self.publish_rates is None
            and not session.no_local
        )

    def take_rest(self, position: int, end: int) -> None:
        """What is left in the receive buffer once publishes were gathered goes the usual way."""
        self._take(self.connection.receive_data(bytes(memoryview(self.broker.memory)[position:end])))

    def take_pubacks(self, packet_ids: list[int]) -> None:
        """PUBACKs were received, and nothing else: every delivery to a client that reads along brings one."""
        broker, session = self.broker, self.session
        broker.counts.packets_received += len(packet_ids)
        if session is not None:
            broker.moved(session, session.acknowledged(packet_ids))

    def receive(self, data: bytes) -> None:
        """Bytes of MQTT came in."""
        self.broker.counts.bytes_received += len(data)
        self.last_seen = self.broker.deadlines.now
        self._take(self.connection.receive_data(data))
        if self.portion:
            self._served(len(data))

    def _served(self, count: int) -> None:
        self.portion = max(0, self.portion - count)
        if not self.portion:
            self.broker.ingest.served(self)
            if not self.holds and self.transport is not None and not self.closing:
                self._read(self.transport)

    def _take(self, events: Iterator[Event]) -> None:
        broker = self.broker
        try:
            for event in events:
                if type(event) is Publishes:
                    broker.counts.packets_received += len(event.first_bytes)
                    broker.publish(self, event)
                else:
                    broker.counts.packets_received += packet_count(event)
                    broker.handle(self, event)
        except MqttError as error:
            self.fail(error)

    def eof_received(self) -> bool:
        return False

    def reading_ended(self, error: OSError | None) -> None:
        """The poller has come to the end of what the client sends, and does not read from it any more."""
        self.socket = None
        if self.transport is None:
            return
        if error is None:
            self.transport.resume_reading()  # it will see the end itself
        else:
            self.broker.gone(self, f"lost: {error}")
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave_poller()
        if not self.closing:  # or it was said why it ends
            self.broker.gone(self, "lost" if error is None else f"lost: {error}")
        self.broker.departed(self)
        self.transport = None

    def pause_writing(self) -> None:
        self.writable = False
        self.broker.unsent.stopped(self)

    def resume_writing(self) -> None:
        self.writable = True
        self.unread_bytes = 0
        self.broker.unsent.went_on(self)
        self._read_on(Hold.UNREAD)
        if self.session is not None:
            self.broker.delivery.resume(self.session)

    # What the broker, the ingest and the delivery call.

    def send(self, packet: Packet) -> None:
        """Send one packet. For one that is larger than the client takes, and that it waits for, the connection ends
        [MQTT-3.1.2-24]."""
        data = encode_packet(packet, self.connection.level)
        if len(data) <= self.target.packet_bytes:
            self.deliver(data, 1)
            return
        message = (
            f"{type(packet).__name__.upper()} has {len(data)} bytes, and it takes {self.target.packet_bytes}"
        )
        self.end(Reason.PACKET_TOO_LARGE, message)

    def deliver(self, data: bytes, count: int = 0) -> None:
        """Send packets that are bytes already. Dropped when the link is closing. `count` of them are not counted
        elsewhere."""
        if self.transport is None or self.closing:
            return
        counts = self.broker.counts
        counts.packets_sent += count
        counts.bytes_sent += len(data)
        if self.socket is None:
            self.transport.write(data)
        else:
            self.socket.send(self.transport, data)
        if not self.writable:
            self.unread_bytes += len(data)
            if self.unread_bytes > self.broker.settings.unsent_bytes and Hold.UNREAD not in self.holds:
                # It asks on and reads no answers: without this, they would fill our memory.
                self.broker.over["unsent_bytes"] += 1
                self._read_no_more(Hold.UNREAD)

    def bring(self, topics: list[bytes]) -> bool:
        return self.broker.router.learn(topics, self.owner)

    def admitted(self, count: int) -> None:
        self.connection.unacknowledged += count

    def acknowledge(self, data: bytes, count: int) -> None:
        self.connection.unacknowledged -= count
        self.deliver(data, count)

    def settled(self, acknowledgements: bytes, reason: int) -> None:
        at_qos_2 = [at for at in range(0, len(acknowledgements), 4) if acknowledgements[at] == 0x50]
        if at_qos_2:
            ids = [int.from_bytes(acknowledgements[at + 2 : at + 4], "big") for at in at_qos_2]
            if reason == 0 and self.level == MQTT_5:
                self.connection.unreleased.update(ids)
            self.broker.settled(self.session_key, ids, stored=reason == 0)

    def refuse(self, message: str) -> None:
        self.end(Reason.IMPLEMENTATION_SPECIFIC_ERROR, message)

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
        if before and not self.holds and self.transport is not None and not self.closing:
            self._read(self.transport)

    def _read(self, transport: Transport) -> None:
        """Go on reading, in the quickest way there is."""
        poller = self.broker.poller
        if self.portion:  # the poller reads whatever there is
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
        """CONNACK with success was sent."""
        self.connected = True
        if not self.holds and self.transport is not None and not self.closing:
            self._read(self.transport)

    def _leave_poller(self) -> bool:
        """Leave the socket to its transport. Was it the poller that read it?"""
        one, self.socket = self.socket, None
        if one is not None and self.broker.poller is not None:
            self.broker.poller.remove(one)
        return one is not None

    def overdue(self) -> None:
        """Silent for too long: before CONNECT, within the keep alive, or while closing."""
        if self.closing:
            self.abort()
        elif not self.connected:
            self.broker.over["connect_timeout_ms"] += 1
            self.end(Reason.KEEP_ALIVE_TIMEOUT, f"no {self.awaited} in time")
        elif self.holds & (Hold.UNSETTLED | Hold.UNDECIDED):
            # It may have sent a PINGREQ: we are the ones who do not listen, because the disk is slow.
            self.last_seen = self.broker.deadlines.now
            self.broker.deadlines.watch(self)
        else:
            self.end(Reason.KEEP_ALIVE_TIMEOUT, "nothing received within 1.5 times the keep alive")

    # Between CONNECT and CONNACK.

    def wait(self, awaited: str) -> None:
        """Take nothing from the client until `go_on`. What it sent already is kept."""
        self.awaited = awaited
        self.connection.hold()
        self._read_no_more(Hold.UNDECIDED)

    def go_on(self, decide: Callable[[], None]) -> None:
        """What was waited for is there: `decide` answers the CONNECT, then what was sent meanwhile is served."""
        if self.closing or self.transport is None:
            return
        events = self.connection.go_on()
        try:
            decide()
        except MqttError as error:
            self.fail(error)
        if not self.connection.held:  # or there is something else to wait for
            self._read_on(Hold.UNDECIDED)
            self._take(events)

    # Ending.

    def turn_away(self, message: str) -> None:
        """End the connection before any MQTT was spoken."""
        if not self.closing and self.transport is not None:
            self.broker.gone(self, message)
            self.close(linger=True)

    def fail(self, error: MqttError) -> None:
        """The client broke the protocol: tell it what MQTT has a word for, and close."""
        if error.limit is not None:
            self.broker.over[error.limit] += 1
        self.end(error.reason, str(error), logging.WARNING)

    def end(self, reason: Reason, message: str, level: int = logging.INFO) -> None:
        """End the connection from our side. The session loses its client now, not when the socket is gone."""
        if self.closing or self.transport is None:
            return
        told = self.connection.saw_connect and (not self.connected or self.connection.level == MQTT_5)
        if not self.connected:
            self._refuse_connect(reason, message)
        elif told:
            self._tell(functools.partial(packets.Disconnect, reason), reason, message)
        self.broker.gone(self, f"{message} ({reason.name})", level)
        self.close(linger=told)

    def _refuse_connect(self, reason: Reason, message: str) -> None:
        """CONNACK with failure, once a CONNECT came that says what version the client speaks."""
        if not self.connection.saw_connect:
            return
        if self.connection.level == MQTT_5:
            self._tell(functools.partial(packets.Connack, False, connack_reason(reason)), reason, message)
        elif (code := connack_code_3(reason)) is not None:
            self.send(packets.Connack(False, code))

    def _tell(self, packet: Callable[[Properties], Packet], reason: Reason, message: str) -> None:
        """Send a packet with what else a client of MQTT 5 should know, as far as there is room for it in the largest
        packet that the client takes [MQTT-3.2.2-19, MQTT-3.14.2-3]."""
        reference = self.broker.settings.server_reference if reason in _REDIRECTS else None
        text = None if reason in _NOT_EXPLAINED else message[:_REASON_STRING_MAX].replace("\0", "")
        for properties in (Properties(reason_string=text, server_reference=reference), NO_PROPERTIES):
            data = encode_packet(packet(properties), MQTT_5)
            if len(data) <= self.target.packet_bytes:
                self.deliver(data, 1)
                return

    def cut_off(self) -> None:
        """Close now, because the client does not read what waits for it in memory: it would not read why, either."""
        self.broker.over["total_unsent_bytes"] += 1
        if not self.closing:
            message = f"too much waits for all clients, and {self.unsent_bytes} bytes that it does not read"
            self.broker.gone(self, message, logging.WARNING)
        self.closing = True
        self.connection.end()
        self.abort()

    def abort(self) -> None:
        """Close now, whatever is still to be written."""
        self._leave_poller()
        if self.transport is not None:
            self.transport.abort()

    def close(self, *, linger: bool = False) -> None:
        """Close once everything is written, or after a while if the peer does not read it.

        A socket that is closed while its peer still sends is reset, and that takes away what the peer has not read
        yet. With `linger` only our direction ends at first, and what comes is thrown away: until the peer ends its own,
        has sent too much, or the while is over.
        """
        if self.closing or self.transport is None:
            return
        self.closing = True
        self.connection.end()
        paused = self._leave_poller() or bool(self.holds)
        if self.broker.closing(self, linger=linger):
            self._linger(self.transport, paused)
        else:
            self.transport.close()

    def _linger(self, transport: Transport, paused: bool) -> None:
        try:
            transport.write_eof()
        except OSError:  # the peer has reset it
            transport.abort()
            return
        if paused:
            transport.resume_reading()

    def _discard(self, count: int) -> None:
        self.broker.counts.bytes_received += count
        self.discarded_bytes += count
        if self.discarded_bytes > _DISCARDED_BYTES_MAX:
            self.abort()
